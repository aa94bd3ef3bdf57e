"""Plain Python, without a tool: the time of the disk itself, without record or rollback."""

from __future__ import annotations

from pathlib import Path

from protocol import EDITS, FILE, TAKEN_BACK, n_succeeded, serve, timed


class Plain:
    def start(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        return self.root / name

    def write(self, text: str) -> float:
        return timed(lambda: self.path(FILE).write_text(text))

    def write_and_fail(self) -> float:
        return self.write(TAKEN_BACK)

    def edit_twice(self) -> int:
        return n_succeeded([lambda old=old, new=new: self._edit(old, new) for old, new in EDITS])

    def undo_command(self) -> str:
        return "there is no undo"

    def _edit(self, old: str, new: str) -> bool:
        path = self.path(FILE)
        path.write_text(path.read_text().replace(old, new))
        return True


if __name__ == "__main__":
    serve(Plain())
