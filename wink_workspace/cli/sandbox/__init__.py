"""The commands for sandboxes, images, services and the settings of projects."""
