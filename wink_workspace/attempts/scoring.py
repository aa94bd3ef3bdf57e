"""Scores an attempt by a command, in a temporary fork of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

from wink_workspace.errors import FileMissingError, FilesystemError, ScorerError, UsageError
from wink_workspace.sandbox import ExecRequest, ExecResult, SandboxConfig
from wink_workspace.workspace import Workspace

from .engine_protocol import Score

_MAX_XML_BYTES: Final = 16 * 1024 * 1024
_TAIL_CHARS: Final = 200
_NOT_FOUND: Final = 127
"""The exit code of a shell that does not find the program."""
_NOT_PASSED: Final = frozenset({"failure", "error", "skipped"})


@dataclass(frozen=True, slots=True)
class CommandScore:
    """Passed if a command exits with 0 in the sandbox of a temporary fork.

    A command that ends in another way, or without the report that it should write, gives no score:
    the attempt fails. Its error says whether the command also fails so on the unchanged files.

    Attributes:
        command: The program and its arguments, or both as one text with the quotes of a shell.
        junit: A file that the command writes, in the form of JUnit XML: the score is then the
            part of the tests that passed; a skipped one did not. An older file is deleted first.
            Without, the score is 1 or 0.
        timeout_s: After this time the command is killed.
        sandbox: The sandbox; the default one if left out.

    Raises:
        UsageError: If *command* is empty or *timeout_s* is not positive.
    """

    command: str | Sequence[str]
    junit: str = ""
    timeout_s: float = 600.0
    sandbox: SandboxConfig | None = None

    def __post_init__(self) -> None:
        if not self.argv:
            raise UsageError("the command of the scorer is empty", hint="Name a program.")
        if not self.timeout_s > 0:
            raise UsageError(f"timeout_s is {self.timeout_s}", hint="Use a positive number.")

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments.

        Raises:
            UsageError: If a quote of *command* is not closed.
        """
        if not isinstance(self.command, str):
            return tuple(self.command)
        try:
            return tuple(shlex.split(self.command))
        except ValueError as error:
            raise UsageError(
                f"the command {self.command!r} cannot be split: {error}", hint="Close the quotes."
            ) from error

    def __call__(self, workspace: Workspace) -> Score:
        """Run the command; the caller gives a fork that is deleted afterwards.

        Raises:
            ScorerError: If the program is missing, the command was stopped, or there is no report
                of a test that ran.
        """
        request = ExecRequest(
            argv=self.argv, timeout_s=self.timeout_s, output_bytes=4_096, merge_stderr=True
        )
        results: list[ExecResult] = []
        with workspace.call("score", params={"argv": request.argv}):
            if self.junit:
                with suppress(FileMissingError):  # one that the attempt wrote
                    workspace.files.delete(self.junit, recursive=True)
            results.append(workspace.sandbox(self.sandbox).run(request))
        result = results[0]
        if result.timed_out or result.stopped or result.exit_code == _NOT_FOUND:
            kind = "timed out" if result.timed_out else result.stopped or "program missing"
            raise ScorerError(_detail(result), kind=kind)
        passed = result.exit_code == 0
        value = float(passed)
        if self.junit:
            n_passed, n_tests = _counted(workspace, self.junit)
            if not n_tests:
                what = f"{self.junit} has no test that ran; the command ended with "
                raise ScorerError(what + _detail(result), kind="no tests")
            value = n_passed / n_tests
        return Score(value, passed, _detail(result))


def _detail(result: ExecResult) -> str:
    if result.timed_out:
        return "timed out"
    if result.stopped:
        return f"stopped: {result.stopped}"
    ended = f"exit code {result.exit_code}"
    if result.signal is not None:
        ended = f"signal {result.signal}"
    output = result.stdout.tail or result.stdout.head
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return f"{ended}: {lines[-1][:_TAIL_CHARS]}" if lines else ended


def _counted(workspace: Workspace, path: str) -> tuple[int, int]:
    """How many tests of a JUnit file passed, and of how many; 0 of 0 if none was run."""
    try:
        content = workspace.files.read_bytes(path)
        if len(content) > _MAX_XML_BYTES or b"<!DOCTYPE" in content or b"<!ENTITY" in content:
            return 0, 0
        cases = list(ET.fromstring(content).iter("testcase"))  # noqa: S314 - it has no DTD
    except (FilesystemError, ET.ParseError):
        return 0, 0
    ends = [{child.tag for child in case} for case in cases]
    if all("skipped" in end for end in ends):
        return 0, 0
    return sum(end.isdisjoint(_NOT_PASSED) for end in ends), len(ends)
