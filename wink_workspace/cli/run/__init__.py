"""The commands that let a model, a script or an agent program work on a directory."""
