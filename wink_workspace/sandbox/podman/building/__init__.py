"""Images: their names, recipes and builds, and those of projects."""
