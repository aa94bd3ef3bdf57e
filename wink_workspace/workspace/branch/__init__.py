"""One branch of a workspace as it is stored, and the making of a new one."""
