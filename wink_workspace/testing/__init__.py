"""For authors of backends and of tests: contract suites and fault injection.

``wink_workspace.testing.filesystem_contract`` holds the suite for filesystems; it needs
pytest, so it is not imported here.
"""

from .faults import CrashAt, CrashError, FailingFilesystem

__all__ = ["CrashAt", "CrashError", "FailingFilesystem"]
