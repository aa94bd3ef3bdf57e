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
from wink_workspace.ledger.disk import ledger_failures, write_whole

__all__ = ["KnownModes"]

_Noted = tuple[int | None, str]

_FEWEST_OUTDATED = 100


class KnownModes:
    """The modes of some paths, stored in a file.

    Args:
        place: The file; it is read when first needed.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._n_lines = 0
        self._noted: dict[str, _Noted] | None = None
        self._unsaved: list[str] = []

    def saw(self, path: WorkspacePath, mode: int, entry: TreeEntry) -> None:
        """Record the mode of *path*; ``save`` writes it."""
        if entry.kind is FileKind.SYMLINK:
            return
        name, mode = str(path), mode & 0o777
        noted, content = self._all.get(name, (None, ""))
        usual = usual_mode(executable=entry.kind is FileKind.DIRECTORY or entry.executable)
        is_same = entry.id == content
        if mode & usual != usual:
            narrowest = mode if noted is None or is_same else mode & noted
            self._note(name, (narrowest, entry.id))
        elif noted is not None and is_same:
            self._note(name, (None, ""))

    def of(self, path: WorkspacePath, entry: TreeEntry) -> int | None:
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
                self._write_anew()
            else:
                with self._place.open("a", encoding="ascii") as file:
                    file.write("".join(self._unsaved))
        self._unsaved.clear()

    def _write_anew(self) -> None:
        known = {name: noted for name, noted in self._all.items() if noted[0] is not None}
        lines = [_line(name, noted) for name, noted in known.items()]
        write_whole(self._place, "".join(lines).encode("ascii"), durable=False)
        self._noted, self._n_lines = known, len(lines)

    def _note(self, name: str, noted: _Noted) -> None:
        if self._all.get(name) != noted:
            self._all[name] = noted
            self._unsaved.append(_line(name, noted))

    @property
    def _all(self) -> dict[str, _Noted]:
        if self._noted is None:
            self._noted = {}
            for line in self._lines():
                with suppress(ValueError, TypeError):  # a crash truncated this line
                    name, mode, content = json.loads(line)
                    self._noted[name] = (mode, content)
        return self._noted

    def _lines(self) -> list[str]:
        try:
            lines = self._place.read_text(encoding="ascii", errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        self._n_lines = len(lines)
        return lines


def _line(name: str, noted: _Noted) -> str:
    """One line, beginning with the newline: a line that a crash truncated does not swallow it."""
    return "\n" + json.dumps([name, *noted])
