"""Programs that run inside a container, without any import of ours."""
