"""Messages between the host and a container: frames with limits, and their stream."""
