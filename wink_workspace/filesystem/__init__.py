"""Files in a workspace: one protocol, confined paths, and its backends."""
