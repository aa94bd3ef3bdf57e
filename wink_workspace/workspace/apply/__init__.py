"""From a branch to its source: the merge with what the user changed meanwhile, and the writing.

The user's directory is written durably, and nothing of the user's is deleted that the branch
did not know.
"""
