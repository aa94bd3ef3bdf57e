"""Changes as a diff that git and patch accept."""

from .rendering import render_diff

__all__ = ["render_diff"]
