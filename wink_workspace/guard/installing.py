"""Writes hooks into a program's settings, and removes them.

``<state>/guard/installed.json`` has each file as it was before. A file that did not change since is
restored byte for byte; from another one only our hooks are removed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, cast

from wink_workspace.errors import UsageError
from wink_workspace.filesystem.os_errors import translate_os_error

from .hook_pipes import HookPipes
from .programs.hook_format import AgentHooks
from .settings_text import with_hooks, without_hooks

_RECORD: Final = "installed.json"


@dataclass(frozen=True, slots=True)
class GuardedFile:
    """A file with hooks.

    Attributes:
        path: The file.
        program: The program that reads it.
        before: Its text before; ``None`` if it did not exist.
        after: What was written.
    """

    path: Path
    program: str
    before: str | None
    after: str

    @property
    def works(self) -> bool:
        """Whether it still has what was written."""
        text = _read(self.path)
        return text == self.after or (text is not None and f"hook {self.program}" in text)


class Installation:
    """The hooks of one user.

    Args:
        state_dir: The state directory of the program.
        home: The user's home.
    """

    def __init__(self, state_dir: Path, home: Path) -> None:
        self.pipes = HookPipes(state_dir / "guard")
        self._home = home

    def files(self) -> list[GuardedFile]:
        """What was written and not removed, in order."""
        record = self.pipes.directory / _RECORD
        try:
            rows: object = json.loads(record.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{record} cannot be read: {error}", hint="Remove the hooks by hand, then the file."
            ) from error
        return [
            GuardedFile(Path(row["path"]), row["program"], row["before"], row["after"])
            for row in cast("list[dict[str, str]]", rows)
        ]

    def install(self, program: AgentHooks, project: Path | None = None) -> list[Path]:
        """Write the hooks of *program* for the user, or only for *project*; the changed files.

        Raises:
            UsageError: If the program has no settings for this, or they cannot be read.
            FilesystemError: If a file cannot be written.
        """
        if project is not None and not program.project_settings:
            raise UsageError(
                f"{program.name} has no settings of a project that stay uncommitted",
                hint="Install it for yourself, with --user: other projects are not recorded.",
            )
        self.remove(program, project)
        self.pipes.prepare()
        command = f"/bin/sh {shlex.quote(str(self.pipes.script))} {program.name}"
        known, changed = self.files(), list[Path]()
        for path, text in self._wanted(program, project, command):
            before = _read(path)
            if text is None:
                text = with_hooks(before or "", program.hooks(command))
            elif before is not None:
                continue  # the user's own command of this name
            with translate_os_error(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            known.append(GuardedFile(path, program.name, before, text))
            self._write(known)
            changed.append(path)
        return changed

    def _wanted(
        self, program: AgentHooks, project: Path | None, command: str
    ) -> Iterator[tuple[Path, str | None]]:
        """The files and their texts; ``None`` for one that hooks are added to."""
        if project is not None:
            yield project / program.project_settings, None
            return
        path = self._home / program.user_settings
        own = str(program.entry).replace("COMMAND", json.dumps(command))
        yield path, own if program.own_file else None
        for name, text in program.files.items():
            yield self._home / name, text

    def remove(self, program: AgentHooks, project: Path | None = None) -> list[Path]:
        """Remove the hooks of *program*, everywhere or only from *project*; the changed files."""
        left, changed = list[GuardedFile](), list[Path]()
        for file in reversed(self.files()):
            is_meant = file.program == program.name and (
                file.path == project / program.project_settings if project is not None else True
            )
            if not is_meant:
                left.insert(0, file)
                continue
            present = _read(file.path)
            with translate_os_error(file.path):
                if present == file.after and file.before is None:
                    file.path.unlink()
                elif present == file.after:
                    file.path.write_text(file.before or "", encoding="utf-8")
                elif present is not None:
                    text = without_hooks(present, lambda each: str(self.pipes.script) in each)
                    file.path.write_text(text, encoding="utf-8")
            changed.append(file.path)
        if changed:
            self._write(left)
        return changed

    def _write(self, files: list[GuardedFile]) -> None:
        rows = [asdict(each) | {"path": str(each.path)} for each in files]
        record = self.pipes.directory / _RECORD
        with translate_os_error(record):
            new = record.with_name("installed.new")
            new.write_text(json.dumps(rows), encoding="utf-8")
            new.chmod(0o600)
            new.replace(record)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="Correct the file.") from error
