"""Runs of models on a workspace: recorded ones, and those that happen now."""
