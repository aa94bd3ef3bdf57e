"""Histories of others: bundles, the user's own repository, and shallow copies of it.

Everything read here is untrusted.
"""
