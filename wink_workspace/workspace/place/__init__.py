"""Where workspaces are stored on disk, and their settings.

``storage`` names the folders and locks, ``workspace_config`` and ``path_rules`` what users set.
Nothing here reads the files or the history of a workspace.
"""
