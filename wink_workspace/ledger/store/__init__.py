"""Objects, trees and refs of the private git repository, and how they are written and read.

It knows no entries: what a commit means is decided in ``entries``.
"""
