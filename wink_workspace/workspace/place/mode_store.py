"""Permissions narrower than git can record, so that a restored path never gets wider ones.

The history has the executable bit alone, so every restored file would be 0644 or 0755. A secret
of mode 0600 that is deleted and restored would become readable by all users.

Rule 1: a narrower mode is recorded whenever it is seen, with the content that had it.
Rule 2: the record is deleted when the same content is seen with wider permissions. If another
content is seen at the path, the narrower of both modes counts.
Rule 3: changes are appended to the file. It is rewritten when most of its lines are outdated.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.disk.descriptors import usual_mode, with_executable_bits
from wink_workspace.ledger import TreeEntry
from wink_workspace.ledger.store.disk import ledger_failures, write_whole

_Recorded = tuple[int | None, str]

_FEWEST_OUTDATED = 100


class ModeStore:
    """The modes of some paths, stored in a file.

    Args:
        file: The file; it is read when first needed.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._n_lines = 0
        self._recorded: dict[str, _Recorded] | None = None
        self._unsaved: list[str] = []

    def observe(self, path: WorkspacePath, mode: int, entry: TreeEntry) -> None:
        """Record the mode of *path*; ``save`` writes it."""
        if entry.kind is FileKind.SYMLINK:
            return
        name, mode = str(path), mode & 0o777
        recorded, content = self._all.get(name, (None, ""))
        usual = usual_mode(executable=entry.kind is FileKind.DIRECTORY or entry.executable)
        is_same = entry.id == content
        if mode & usual != usual:
            narrowest = mode if recorded is None or is_same else mode & recorded
            self._record(name, (narrowest, entry.id))
        elif recorded is not None and is_same:
            self._record(name, (None, ""))

    def mode_for(self, path: WorkspacePath, entry: TreeEntry) -> int | None:
        """The mode for restoring *entry*; ``None`` if the usual mode is not wider."""
        mode, _ = self._all.get(str(path), (None, ""))
        if mode is None or entry.kind is FileKind.DIRECTORY:
            return mode
        return with_executable_bits(mode, executable=entry.executable)

    def save(self) -> None:
        """Write what was recorded; free if nothing was.

        Raises:
            LedgerError: If it cannot be written.
        """
        if not self._unsaved:
            return
        with ledger_failures("the modes of files cannot be recorded"):
            self._n_lines += len(self._unsaved)
            if self._n_lines > 2 * len(self._all) + _FEWEST_OUTDATED:
                self._rewrite()
            else:
                with self._file.open("a", encoding="ascii") as file:
                    file.write("".join(self._unsaved))
        self._unsaved.clear()

    def _rewrite(self) -> None:
        known = {name: recorded for name, recorded in self._all.items() if recorded[0] is not None}
        lines = [_line(name, recorded) for name, recorded in known.items()]
        write_whole(self._file, "".join(lines).encode("ascii"), durable=False)
        self._recorded, self._n_lines = known, len(lines)

    def _record(self, name: str, recorded: _Recorded) -> None:
        if self._all.get(name) != recorded:
            self._all[name] = recorded
            self._unsaved.append(_line(name, recorded))

    @property
    def _all(self) -> dict[str, _Recorded]:
        if self._recorded is None:
            self._recorded = {}
            for line in self._lines():
                with suppress(ValueError, TypeError):  # a crash truncated this line
                    name, mode, content = json.loads(line)
                    self._recorded[name] = (mode, content)
        return self._recorded

    def _lines(self) -> list[str]:
        try:
            lines = self._file.read_text(encoding="ascii", errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        self._n_lines = len(lines)
        return lines


def _line(name: str, recorded: _Recorded) -> str:
    """One line, beginning with the newline: a line that a crash truncated does not swallow it."""
    return "\n" + json.dumps([name, *recorded])
