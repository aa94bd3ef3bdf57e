"""Contract test suites and fault injection, for authors of backends and of tests.

``wink_workspace.testing.filesystem_contract`` has the suites for filesystems. It needs pytest, so
it is not imported here.
"""

from .faults import CrashAt, CrashError, FailingFilesystem

__all__ = ["CrashAt", "CrashError", "FailingFilesystem"]
