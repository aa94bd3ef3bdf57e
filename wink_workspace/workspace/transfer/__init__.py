"""Workspaces in other places: bundles in files, and copies on the nodes of a cluster.

What comes from elsewhere is checked before it is stored, and chooses no rules.
"""
