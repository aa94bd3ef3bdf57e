"""Messages between the host and a runner: frames with limits, and their stream."""
