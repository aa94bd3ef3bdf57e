"""Runs attempts on a Ray cluster. Only this package imports ray.

``engine`` is the coordinator's side and ``node`` that of the workers; ``cluster`` has the calls to
Ray, and ``mailbox`` what both sides say to each other while an attempt runs. Importing this package
does not load ray.
"""

from .engine import RayEngine

__all__ = ["RayEngine"]
