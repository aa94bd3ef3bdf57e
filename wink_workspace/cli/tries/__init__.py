"""The commands ``attempts``: a task tried several times, each in a fork."""
