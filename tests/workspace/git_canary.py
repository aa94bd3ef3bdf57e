"""Repositories whose configuration makes git run a canary program, and a check for them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

HEAD = "ref: refs/heads/main\n"


class Canary:
    """A program that leaves a trace when git runs it, and repositories that run it.

    Args:
        directory: A new directory outside of the tested files.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._trace = directory / "ran"
        self.program = directory / "canary"
        self.program.write_text(f"#!/bin/sh\necho ran >> {self._trace}\n")
        self.program.chmod(0o755)
        (directory / "hooks").mkdir()
        for hook in ("pre-commit", "post-index-change"):
            (directory / "hooks" / hook).symlink_to(self.program)
        self._hooks = directory / "hooks"
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_EDITOR": "true",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CEILING_DIRECTORIES": str(directory.parent),
            **{
                f"GIT_{who}_{what}": "a@b"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }

    @property
    def has_run(self) -> bool:
        """Whether the program ran since ``reset``."""
        return self._trace.exists()

    def reset(self) -> None:
        """Remove the trace."""
        self._trace.unlink(missing_ok=True)

    def config(self, *settings: str) -> str:
        """A configuration with *settings* and a working tree; ``%`` stands for the program."""
        lines = "\n".join(settings or ("[core]", "fsmonitor = %"))
        text = lines.replace("%h", str(self._hooks)).replace("%", str(self.program))
        return f"[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\n{text}\n"

    def git(
        self, directory: Path, *arguments: str, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a git command; it may fail."""
        return subprocess.run(
            ["git", *arguments],
            cwd=directory,
            env=self._environment | more,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def repositories_below(self, root: Path, *, own: Iterable[Path] = ()) -> list[str]:
        """The repositories that git finds in *root* and every directory below, except *own*.

        git gets another directory for objects, so that it also finds repositories without one. In
        each repository, commands run that would start a configured canary.
        """
        known = {path.resolve() for path in own}
        found: set[str] = set()
        for directory in directories(root):
            objects = {"GIT_OBJECT_DIRECTORY": str(root)}
            done = self.git(directory, "rev-parse", "--absolute-git-dir", **objects)
            repository = Path(done.stdout.rstrip("\n")).resolve()
            if done.returncode == 0 and repository not in known:
                found.add(str(repository))
                for command in ("status", "diff", "log"):
                    self.git(directory, command)
        return sorted(found)


def directories(root: Path) -> list[Path]:
    """*root* and every directory below that is neither a ``.git`` nor inside one."""
    found = [root]
    for directory in found:
        inside = (Path(entry.path) for entry in os.scandir(directory) if entry.is_dir())
        found += [path for path in inside if not path.is_symlink() and path.name != ".git"]
    return found
