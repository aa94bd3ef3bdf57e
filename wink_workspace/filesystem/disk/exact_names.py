"""Whether a path that a lookup found has exactly the names that were looked up.

Some filesystems ignore the case of names, or compare Unicode names in a normal form, such as
Windows drives in WSL 2 and shared folders of virtual machines. If README.md was renamed to
Readme.md there, a lookup of README.md still finds a file.

Rule 1: a path exists if each directory on the way lists exactly its name.
Rule 2: directories are listed only where lookups are known to ignore something. The first name with
a letter that is found on a device is looked up again in the other case, and the first one with
other characters than ASCII in another normal form. If both are found, but not both are listed, the
lookups of this device ignore the difference.

Limits: only the first such path of a device is examined, so directories of one filesystem that
differ in this (``casefold`` of ext4) are treated alike. A directory that cannot be listed counts
as one that lists all names.
"""

from __future__ import annotations

import os
import string
import unicodedata
from collections.abc import Callable, Generator, Set
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
from threading import get_ident

from .descriptors import MISSING, PATH_ONLY, Descriptor, Parts, enter, open_beneath, open_listing

__all__ = ["ExactNames"]

_device = attrgetter("st_dev")
_OTHER_CASE = str.maketrans(
    string.ascii_letters, string.ascii_uppercase + string.ascii_lowercase
)  # swapcase() changes other letters in ways that no filesystem ignores


class ExactNames:
    """Compares the names of found paths with those that the directories of one tree list.

    Attributes:
        exact_case: The devices on which lookups do not ignore the case; names of ASCII characters
            that were found there are exact.
        inexact: The devices on which lookups ignore the case or the normal form.
    """

    def __init__(self) -> None:
        self.exact_case: set[int] = set()
        self.inexact: set[int] = set()
        self._exact_form: set[int] = set()
        self._listed: tuple[int, dict[Parts, Set[str] | None]] | None = None

    def are_exact(self, root: int, parts: Parts, device: int) -> bool:
        """Whether a path that was found exists with exactly these names.

        Args:
            root: A descriptor of the root of the tree.
            parts: The path, at least one name.
            device: The device of what was found (``st_dev``).
        """
        if self._finds_exact(root, parts, device):
            return True
        listings = (self._names(root, parts[:n]) for n in range(len(parts)))
        return all(
            names is None or name in names for name, names in zip(parts, listings, strict=True)
        )

    def exact_in(
        self, root: int, directory: Parts, found: dict[str, os.stat_result]
    ) -> dict[str, os.stat_result]:
        """Those of the entries *found* in a directory that exist with exactly these names."""
        devices = set(map(_device, found.values()))
        if not self.exact_case.issuperset(devices):
            for name, at in islice(found.items(), 1):
                self._finds_exact(root, (*directory, name), at.st_dev)
        if (
            self.inexact.isdisjoint(devices)
            and self.exact_case.issuperset(devices)
            and (self._exact_form.issuperset(devices) or "".join((*directory, *found)).isascii())
        ):
            return found
        paths = {name: (*directory, name) for name in found}
        with self.listing_once():
            return {
                name: at
                for name, at in found.items()
                if self.are_exact(root, paths[name], at.st_dev)
            }

    def _finds_exact(self, root: int, parts: Parts, device: int) -> bool:
        """Whether lookups on a device compare names such as *parts* exactly."""
        if device not in self.inexact:
            if device not in self.exact_case:
                self._probe(root, parts, device, self.exact_case, _other_case)
            if device not in self._exact_form and not "".join(parts).isascii():
                self._probe(root, parts, device, self._exact_form, _other_form)
        return device not in self.inexact

    def _probe(
        self, root: int, parts: Parts, device: int, exact: set[int], other: Callable[[str], str]
    ) -> None:
        for n in reversed(range(len(parts))):
            name = other(parts[n])
            if name == parts[n]:
                continue
            is_found = _exists(root, (*parts[:n], name, *parts[n + 1 :]))
            names = self._names(root, parts[:n]) if is_found else None
            is_exact = names is None or {name, parts[n]} <= names
            (exact if is_exact else self.inexact).add(device)
            return

    @contextmanager
    def listing_once(self) -> Generator[None]:
        """List each directory at most once for this thread in the block, which changes nothing."""
        before = self._listed
        if before is None or before[0] != get_ident():
            self._listed = get_ident(), {}
        try:
            yield
        finally:
            self._listed = before

    def _names(self, root: int, directory: Parts) -> Set[str] | None:
        """The names that a directory lists; ``None`` if that is not possible."""
        thread, listed = self._listed or (0, {})
        if thread != get_ident():
            return _names_of(root, directory)
        if directory not in listed:
            listed[directory] = _names_of(root, directory)
        return listed[directory]


def _other_case(name: str) -> str:
    return name.translate(_OTHER_CASE)


def _other_form(name: str) -> str:
    decomposed = unicodedata.normalize("NFD", name)
    return decomposed if decomposed != name else unicodedata.normalize("NFC", name)


def _exists(root: int, parts: Parts) -> bool:
    found = open_beneath(root, parts, PATH_ONLY)
    if found >= 0:
        os.close(found)
    if found >= 0 or found == MISSING:
        return found >= 0
    try:
        with Descriptor(enter(root, parts[:-1])) as directory:
            os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def _names_of(root: int, directory: Parts) -> Set[str] | None:
    try:
        with (
            Descriptor(enter(root, directory)) as entered,
            Descriptor(open_listing(entered)) as listed,
        ):
            return frozenset(os.listdir(listed))  # noqa: PTH208 - pathlib takes no descriptor
    except OSError:
        return None
