"""Programs that run inside a sandbox, without any import of ours."""
