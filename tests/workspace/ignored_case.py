"""Let lookups below a directory ignore the case of names, as on a Windows drive in WSL 2.

The kernels of our tests have no such filesystem. The functions of ``os`` and two system calls of
this package are replaced, so it works within this process only.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wink_workspace.filesystem.disk import descriptors, tree

Normal = Callable[[str], str]


def fold_case(name: str) -> str:
    """The same text for all names that a lookup takes for one."""
    return name.casefold()


def fold_form(name: str) -> str:
    """As ``fold_case``, for a filesystem that compares names in a normal form."""
    return unicodedata.normalize("NFC", name)


def ignoring(monkeypatch: pytest.MonkeyPatch, top: Path, normal: Normal = fold_case) -> None:
    """Let lookups below *top* take names for one that have the same *normal* text."""
    _Names(top, normal).replace(monkeypatch)


class _Names:
    def __init__(self, top: Path, normal: Normal) -> None:
        self._top = os.path.realpath(top)
        self._normal = normal

    def stored(self, directory: str, name: str) -> str:
        """The name of the entry that a lookup of *name* finds."""
        if directory != self._top and not directory.startswith(f"{self._top}/"):
            return name
        try:
            names = [path.name for path in Path(directory).iterdir()]
        except OSError:
            return name
        if name in names:
            return name
        wanted = self._normal(name)
        return next((each for each in names if self._normal(each) == wanted), name)

    def at(self, name: Any, descriptor: int | None) -> Any:
        if descriptor is None or not isinstance(name, str) or "/" in name or name in ("", "."):
            return name
        return self.stored(_path_of(descriptor), name)

    def replace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for function in ("stat", "open", "unlink", "rmdir", "mkdir", "symlink"):
            monkeypatch.setattr(os, function, self._with_name(function))
        rename, open_beneath = os.rename, descriptors.open_beneath
        renameat2 = descriptors._renameat2()  # private, as Python has no function for it

        def renamed(old: Any, new: Any, **options: int) -> None:
            if options:
                old = self.at(old, options["src_dir_fd"])
                found = self.at(new, options["dst_dir_fd"])
                new = new if found == old else found
            rename(old, new, **options)

        def renamed_with_flag(one: int, old: str, other: int, new: str, flag: int) -> int:
            return renameat2(one, self.at(old, one), other, self.at(new, other), flag)

        def opened_beneath(top: int, parts: tuple[str, ...], flags: int) -> int:
            at = _path_of(top)
            found: list[str] = []
            for name in parts:
                found.append(self.stored("/".join((at, *found)), name))
            return open_beneath(top, tuple(found), flags)

        monkeypatch.setattr(os, "rename", renamed)
        # Private, as Python has no function for this system call that could be replaced
        monkeypatch.setattr(descriptors, "_renameat2", lambda: renamed_with_flag)
        for module in (descriptors, tree):
            monkeypatch.setattr(module, "open_beneath", opened_beneath)

    def _with_name(self, function: str) -> Callable[..., Any]:
        real = getattr(os, function)

        def call(*arguments: Any, **options: Any) -> Any:
            n = 1 if function == "symlink" else 0
            name = self.at(arguments[n], options.get("dir_fd"))
            return real(*arguments[:n], name, *arguments[n + 1 :], **options)

        return call


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())
