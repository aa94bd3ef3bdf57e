"""Scores an attempt by a command, in a temporary fork of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

from wink_workspace.errors import FileMissingError, UsageError
from wink_workspace.sandbox import ExecRequest, ExecResult, SandboxConfig
from wink_workspace.workspace import Workspace

from .protocol import Score

__all__ = ["CommandScore"]

_MAX_XML_BYTES: Final = 16 * 1024 * 1024
_TAIL_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class CommandScore:
    """Passed if a command exits with 0 in the sandbox of a temporary fork.

    Attributes:
        command: The program and its arguments, or both as one text with the quotes of a shell.
        junit: A file that the command writes, in the form of JUnit XML: the score is then the
            part of the tests that passed. Without, it is 1 or 0.
        timeout_s: After this time the command is killed, and the attempt has not passed.
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
        """Run the command; the caller gives a fork that is deleted afterwards."""
        request = ExecRequest(
            argv=self.argv, timeout_s=self.timeout_s, output_bytes=4_096, merge_stderr=True
        )
        results: list[ExecResult] = []
        with workspace.call("score", params={"argv": request.argv}):
            results.append(workspace.sandbox(self.sandbox).run(request))
        result = results[0]
        passed = result.exit_code == 0 and not result.timed_out and not result.stopped
        value = float(passed)
        if self.junit and not result.timed_out:
            value = _passed_part(workspace, self.junit, passed=passed)
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


def _passed_part(workspace: Workspace, path: str, *, passed: bool) -> float:
    """The part of the tests in a JUnit file that passed; 0 if the file cannot be used."""
    try:
        content = workspace.files.read_bytes(path)
    except FileMissingError:
        return float(passed)
    if len(content) > _MAX_XML_BYTES or b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        return 0.0
    try:
        cases = list(ET.fromstring(content).iter("testcase"))  # noqa: S314 - it has no DTD
    except ET.ParseError:
        return 0.0
    bad = sum(any(case.find(kind) is not None for kind in ("failure", "error")) for case in cases)
    return (len(cases) - bad) / len(cases) if cases else float(passed)
