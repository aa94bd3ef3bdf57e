"""Cases of frameworks' own suites that our isolation forbids, each with the reason.

The keys are ends of the ids that pytest shows, without parameters. Such a case must fail: one that
passes, or that no longer exists, is reported as a failure.
"""

from __future__ import annotations

_GLOB = "deepagents' protocol wants absolute paths of regular files; the suite wants names"

_TMP = (
    "nothing outside of the workspace outlives a command; only single files that inspect_ai writes "
    "below /tmp do"
)

FORBIDDEN: dict[str, str] = {
    "inspect_ai_suite.py::test_cwd_absolute": _TMP,
    "inspect_ai_suite.py::test_write_binary_file_is_directory": _TMP,
    "inspect_ai_suite.py::test_write_text_file_is_directory": _TMP,
    "inspect_ai_suite.py::test_exec_as_user": "commands run as one user, and never as root",
    # Seven cases of LangChain's suite contradict the protocol of deepagents itself (0.7.32).
    "TestWorkspaceSandbox::test_glob": _GLOB,
    "TestWorkspaceSandbox::test_glob_basic_pattern": _GLOB,
    "TestWorkspaceSandbox::test_glob_with_directories": _GLOB,
    "TestWorkspaceSandbox::test_glob_hidden_files_explicitly": _GLOB,
    "TestWorkspaceSandbox::test_glob_with_character_class": _GLOB,
    "TestWorkspaceSandbox::test_glob_with_question_mark": _GLOB,
    "TestWorkspaceSandbox::test_write_existing_file_fails": (
        "deepagents' protocol wants write to overwrite a file; the suite wants it to refuse"
    ),
    "TestWorkspaceBackend::test_a_backend_attached_by_ref_reaches_a_detached_process": (
        "all processes of a command end with it, also those in sessions of their own; a declared "
        "service outlives its call"
    ),
    "TestWorkspaceBackend::test_cancellation_stops_foreground_work": (
        "a cancelled command is rolled back, so the file with its process id, which the case reads "
        "afterwards, does not exist"
    ),
}
