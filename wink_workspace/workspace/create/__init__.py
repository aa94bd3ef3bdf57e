"""The first entry of a workspace: the survey of a source, its import, and the shared base.

A base is never written again once it has its name.
"""
