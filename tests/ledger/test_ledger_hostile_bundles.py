"""Bundles that no ledger writes: each is refused with one error, in bounded memory."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from wink_workspace.errors import BundleError
from wink_workspace.filesystem.git_binary import git_hash
from wink_workspace.ledger import BundleLimits, Ledger, read_bundle
from wink_workspace.ledger.entries.commits import Commit, format_commit
from wink_workspace.ledger.store.compression import ObjectKind
from wink_workspace.ledger.store.deltas import delta_between
from wink_workspace.ledger.store.packs import PACK_HEADER, encode_object, entry_header

AT = datetime(2026, 1, 2, tzinfo=UTC)
EVENT = {"schema": 1, "type": "ExternalChange", "data": {"paths": [], "at": "2026-01-02T00:00:00"}}


class Forger:
    """Writes a bundle with any objects; ``main`` is the head of its only branch."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.empty = self.add("tree", b"")
        self.main = ""

    def add(self, kind: ObjectKind, content: bytes) -> str:
        made = encode_object(kind, content)
        if made.entry not in self.entries:
            self.entries.append(made.entry)
        return made.id

    def delta(self, base: str, delta: bytes) -> None:
        self.entries.append(entry_header(None, len(delta), base=base) + zlib.compress(delta))

    def tree(self, *rows: tuple[bytes, bytes, str]) -> str:
        return self.add(
            "tree", b"".join(b"%b %b\0%b" % (m, n, bytes.fromhex(i)) for m, n, i in rows)
        )

    def entry(
        self,
        files: str,
        *,
        number: int = 1,
        parent: str | None = None,
        record: bytes | None = None,
        skip: str = "",
    ) -> str:
        text = json.dumps(EVENT).encode() if record is None else record
        session = self.tree((b"100644", b"schema", self.add("blob", b"2\n")))
        root = self.tree(
            (b"100644", b"call.json", self.add("blob", text)),
            (b"40000", b"files", files),
            (b"40000", b"session", session),
        )
        trailers = {"Kind": "external", "Number": str(number), "Skip": skip}
        self.main = self.add("commit", format_commit(Commit(root, parent, AT, "forged", trailers)))
        return self.main

    def bundle(self, *, ref: str = "refs/heads/main", manifest: object = None) -> bytes:
        refs = {ref: self.main}
        about = (
            {"format": 1, "refs": refs, "boundary": [], "about": {}}
            if manifest is None
            else manifest
        )
        blob = self.add("blob", json.dumps(about).encode())
        tree = self.tree((b"100644", b"manifest.json", blob))
        commit = self.add("commit", format_commit(Commit(tree, None, AT, "manifest", {})))
        head = f"{self.main} HEAD\n" if ref == "refs/heads/main" else ""
        header = f"# v2 git bundle\n{head}{self.main} {ref}\n{commit} refs/wink/bundle/1\n\n"
        pack = PACK_HEADER.pack(b"PACK", 2, len(self.entries)) + b"".join(self.entries)
        return header.encode() + pack + git_hash(pack).digest()


def read(tmp_path: Path, data: bytes, **limits: int) -> None:
    Ledger.create(tmp_path / "ledger.git")
    with Ledger(tmp_path / "ledger.git") as ledger:
        read_bundle(ledger.store, io.BytesIO(data), limits=BundleLimits(**limits))


def test_a_forged_bundle_without_a_fault_is_read(tmp_path: Path) -> None:
    forger = Forger()
    blob = forger.add("blob", b"a")
    forger.entry(forger.tree((b"100644", b"a.txt", blob)))
    read(tmp_path, forger.bundle())


NAMES = (b".git", b"..", b".", b"a/b", b".GIT", b"%zz", b"git~1", b"%2Egit", b"x" * 2_000)


@pytest.mark.behaviour(154)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_ledger_stores_is_refused(tmp_path: Path, name: bytes) -> None:
    forger = Forger()
    forger.entry(forger.tree((b"100644", name, forger.add("blob", b"evil"))))
    with pytest.raises(BundleError, match="cannot be the name of a file"):
        read(tmp_path, forger.bundle())


def _missing(forger: Forger) -> None:
    forger.entry(forger.tree((b"100644", b"a", "1" * 40)))


def _wrong_kind(forger: Forger) -> None:
    forger.entry(forger.tree((b"100644", b"a", forger.empty)))


def _submodule(forger: Forger) -> None:
    forger.entry(forger.tree((b"160000", b"a", "1" * 40)))


def _twice(forger: Forger) -> None:
    blob = forger.add("blob", b"a")
    forger.entry(forger.tree((b"100644", b"a", blob), (b"40000", b"a", forger.empty)))


def _unsorted(forger: Forger) -> None:
    blob = forger.add("blob", b"a")
    forger.entry(forger.tree((b"100644", b"b", blob), (b"100644", b"a", blob)))


def _deep(forger: Forger) -> None:
    tree = forger.empty
    for _ in range(400):
        tree = forger.tree((b"40000", b"d", tree))
    forger.entry(tree)


def _record(forger: Forger) -> None:
    forger.entry(forger.empty, record=b"[" * 100_000)


def _order(forger: Forger) -> None:
    first = forger.entry(forger.empty, number=3)
    forger.entry(forger.empty, number=3, parent=first)


def _gap(forger: Forger) -> None:
    first = forger.entry(forger.empty)
    forger.entry(forger.empty, number=3, parent=first)


def _skip(forger: Forger) -> None:
    """The fourth entry skips to the first one in an honest history, here to the second one."""
    entry, entries = None, list[str]()
    for number in range(1, 4):
        entry = forger.entry(forger.empty, number=number, parent=entry)
        entries.append(entry)
    forger.entry(forger.empty, number=4, parent=entry, skip=entries[1])


def _not_an_id(forger: Forger) -> None:
    forger.entry(forger.empty, skip="../../../config")


def _long_link(forger: Forger) -> None:
    forger.entry(forger.tree((b"120000", b"a", forger.add("blob", b"x" * 5_000))))


def _delta_of_nothing(forger: Forger) -> None:
    forger.delta("2" * 40, delta_between(b"a" * 300, b"b" * 300))
    forger.entry(forger.empty)


def _bad_delta(forger: Forger) -> None:
    base = forger.add("blob", b"a" * 300)
    forger.delta(base, delta_between(b"a" * 299, b"b" * 300))
    forger.entry(forger.empty)


def _long_chain(forger: Forger) -> None:
    content = b"x" * 400
    base = forger.add("blob", content)
    for n in range(80):
        newer = content + b"%d" % n
        forger.delta(base, delta_between(content, newer))
        base, content = encode_object("blob", newer).id, newer
    forger.entry(forger.empty)


def _double(forger: Forger) -> None:
    forger.add("blob", b"a")
    forger.entries.append(forger.entries[-1])
    forger.entry(forger.empty)


def _lying_size(forger: Forger) -> None:
    forger.entries.append(entry_header("blob", 10) + zlib.compress(b"x" * 1_000_000))
    forger.entry(forger.empty)


@pytest.mark.behaviour(154)
@pytest.mark.parametrize(
    ("forge", "error"),
    [
        (_missing, "cannot be read"),
        (_wrong_kind, "a file is expected"),
        (_submodule, "is not a tree"),
        (_twice, "not unique"),
        (_unsorted, "not sorted"),
        (_deep, "nested directories"),
        (_record, "an entry cannot be read"),
        (_order, "not in order"),
        (_gap, "not in order"),
        (_skip, "skips to another one"),
        (_not_an_id, "is not an id"),
        (_long_link, "a link has a target"),
        (_delta_of_nothing, "lacks the object"),
        (_bad_delta, "a delta cannot be applied"),
        (_long_chain, "a chain of more than"),
        (_double, "an object twice"),
        (_lying_size, "larger than its header says"),
    ],
)
def test_a_history_that_no_workspace_writes_is_refused(
    tmp_path: Path, forge: Callable[[Forger], None], error: str
) -> None:
    forger = Forger()
    forge(forger)
    with pytest.raises(BundleError, match=error):
        read(tmp_path, forger.bundle())


@pytest.mark.behaviour(154)
def test_a_few_objects_that_name_very_many_files_are_refused(tmp_path: Path) -> None:
    forger = Forger()
    blob = forger.add("blob", b"x" * 100)
    tree = forger.tree(*((b"100644", b"%02d" % n, blob) for n in range(50)))
    for _ in range(10):
        tree = forger.tree(*((b"40000", b"%02d" % n, tree) for n in range(50)))
    forger.entry(tree)
    with pytest.raises(BundleError, match="at most 500,000 files"):
        read(tmp_path, forger.bundle())


@pytest.mark.parametrize(
    "ref",
    [
        "refs/wink/forks/../x",
        "refs/wink/forks/main",
        "refs/heads/other",
        "refs/wink/discarded/../../x",
    ],
)
def test_a_ref_that_no_workspace_has_is_refused(tmp_path: Path, ref: str) -> None:
    forger = Forger()
    forger.entry(forger.empty)
    with pytest.raises(BundleError, match="a ref that no workspace has"):
        read(tmp_path, forger.bundle(ref=ref))


@pytest.mark.parametrize(
    "manifest",
    [
        [],
        {"format": 1},
        {"format": 2, "refs": {}, "boundary": [], "about": {}},
        {"format": 1, "refs": {}, "boundary": ["x"], "about": {}},
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(tmp_path: Path, manifest: object) -> None:
    forger = Forger()
    forger.entry(forger.empty)
    with pytest.raises(BundleError, match="the manifest of the bundle cannot be read"):
        read(tmp_path, forger.bundle(manifest=manifest))
