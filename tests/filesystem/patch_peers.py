"""Other tools that apply patches: git apply, GNU patch, git merge-file, codex's apply_patch.

Where possible, a tool takes many cases in one process: every case has its own file name. A case
counts as refused if the tool reports a failure for its file, whatever the tool wrote to it.
"""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wink_workspace.environment import Environment

__all__ = ["PEERS", "Task", "codex_binary", "why_no_codex"]

_CODEX = Path(sys.prefix, "mcp-checks", "node_modules", "@openai")
_TRIPLES = {"x86_64": ("x64", "x86_64"), "aarch64": ("arm64", "aarch64")}


@dataclass(frozen=True, slots=True)
class Task:
    """A patch for one file, as a tool takes it.

    Args:
        path: The file's name, which no other task of the same run has.
        file: Its content.
        text: The patch.
        alone: Whether the text is malformed and must be sent without others.
        base: For a merge, the file as the patch's writer saw it.
        edited: For a merge, the same with the edit.
    """

    path: str
    file: bytes
    text: str
    alone: bool = False
    base: bytes = b""
    edited: bytes = b""


Results = Mapping[str, bytes | None]
"""For each path the new content, ``None`` where the tool refused."""


def _run(
    command: Sequence[str], directory: str, text: str = ""
) -> subprocess.CompletedProcess[bytes]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": directory,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": directory,
    }
    data = text.encode("utf-8", "surrogateescape")
    return subprocess.run(
        command, cwd=directory, input=data, env=environment, capture_output=True, check=False
    )


def _in_files(command: Sequence[str], tasks: Sequence[Task]) -> Results:
    """Run a tool that continues after a failure and writes rejected hunks to ``NAME.rej``."""
    results: dict[str, bytes | None] = {}
    batch = [task for task in tasks if not task.alone]
    groups = ([batch] if batch else []) + [[task] for task in tasks if task.alone]
    while groups:
        group = groups.pop()
        found = _in_one_run(command, group)
        if found is not None:
            results |= found
        elif len(group) == 1:
            results[group[0].path] = None
        else:  # the tool refuses all if it cannot parse one: find that one
            middle = len(group) // 2
            groups += [group[:middle], group[middle:]]
    return results


def _in_one_run(command: Sequence[str], group: Sequence[Task]) -> Results | None:
    """The results of all, or ``None`` if the tool failed without naming one of them."""
    with tempfile.TemporaryDirectory() as directory:
        for task in group:
            Path(directory, task.path).write_bytes(task.file)
        done = _run(command, directory, "".join(task.text for task in group))
        rejected = {path.stem for path in Path(directory).glob("*.rej")}
        if done.returncode and not rejected:
            return None
        paths = {task.path: Path(directory, task.path) for task in group}
        return {
            name: path.read_bytes() if name not in rejected and path.exists() else None
            for name, path in paths.items()
        }


def git_apply(tasks: Sequence[Task]) -> Results:
    """``git apply --reject``, which continues with the next file after a failure."""
    return _in_files(["git", "apply", "--whitespace=nowarn", "--reject", "-"], tasks)


def gnu_patch(tasks: Sequence[Task]) -> Results:
    """``patch`` with its usual fuzz of 2."""
    return _in_files(["patch", "-p1", "-f", "--no-backup-if-mismatch"], tasks)


_MERGE = """
for file in *.py; do
    git merge-file -q -p "$file" "$file.base" "$file.edited" >"$file.merged" || rm "$file.merged"
done
"""


def git_merge_file(tasks: Sequence[Task]) -> Results:
    """``git merge-file``, which gets the whole base and edited file instead of a patch."""
    with tempfile.TemporaryDirectory() as directory:
        for task in tasks:
            Path(directory, task.path).write_bytes(task.file)
            Path(directory, f"{task.path}.base").write_bytes(task.base)
            Path(directory, f"{task.path}.edited").write_bytes(task.edited)
        done = _run(["sh", "-c", _MERGE], directory)
        assert not done.stderr, done.stderr.decode()
        merged = ((task.path, Path(directory, f"{task.path}.merged")) for task in tasks)
        return {name: path.read_bytes() if path.exists() else None for name, path in merged}


@functools.cache
def codex_binary() -> Path | None:
    """The program in the package ``@openai/codex`` for this machine, if it is installed."""
    short, long = _TRIPLES.get(platform.machine(), ("", ""))
    found = _CODEX.glob(f"codex-linux-{short}/vendor/{long}-unknown-linux-musl/**/bin/codex")
    return next(found, None)


def why_no_codex() -> str:
    """Why the tests that need codex cannot run; empty if they can."""
    if codex_binary() is not None or Environment.from_os().is_ci:
        return ""
    return "codex is not installed; scripts/setup does that where npm is"


def codex_apply_patch(tasks: Sequence[Task]) -> Results:
    """codex's ``apply_patch``; it writes file by file and stops at the first that fails."""
    binary = codex_binary()
    assert binary is not None, "codex is not installed"
    results: dict[str, bytes | None] = {}
    alone = [task for task in tasks if task.alone]
    batch = [task for task in tasks if not task.alone]
    with tempfile.TemporaryDirectory() as directory:
        for task in tasks:
            Path(directory, task.path).write_bytes(task.file)

        def sent(text: str, *, is_valid: bool = False) -> bool:
            done = _run([str(binary), "--codex-run-as-apply-patch", text], directory)
            assert not (is_valid and b"Invalid patch" in done.stderr), done.stderr.decode()
            return done.returncode == 0

        for task in alone:
            accepted = sent(task.text)
            results[task.path] = Path(directory, task.path).read_bytes() if accepted else None
        while batch:
            group = batch[: _n_sent(batch)]
            inner = (task.text.removeprefix(_BEGIN).removesuffix(_END) for task in group)
            complete = sent("".join([_BEGIN, *inner, _END]), is_valid=True)
            for task in group:
                batch.pop(0)
                content = Path(directory, task.path).read_bytes()
                if not complete and content == task.file:
                    results[task.path] = None
                    break
                results[task.path] = content
    return results


_BEGIN, _END = "*** Begin Patch\n", "*** End Patch\n"
_MAX_ARGUMENT_BYTES = 100_000  # Linux allows an argument 128 KiB


def _n_sent(tasks: Sequence[Task]) -> int:
    n_bytes = 0
    for n, task in enumerate(tasks):
        n_bytes += len(task.text.encode("utf-8", "surrogateescape"))
        if n_bytes > _MAX_ARGUMENT_BYTES:
            return max(1, n)
    return len(tasks)


PEERS: Mapping[str, Callable[[Sequence[Task]], Results]] = {
    "git apply": git_apply,
    "GNU patch": gnu_patch,
    "git merge-file": git_merge_file,
    "codex apply_patch": codex_apply_patch,
}
