"""Overlay mounts without a mount point, for the branches of workspaces.

A branch on an overlay is a *base*, an immutable directory that branches share, and an *upper
layer* of its own. ``mounter`` is the program that makes the mounts, ``mounting`` its client.
"""
