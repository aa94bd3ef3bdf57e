"""Bundles: branches of a history in one file, which plain git can read.

A bundle has the format of `git bundle` (gitformat-bundle, version 2): lines with refs, then a pack.
``git clone FILE`` and ``git bundle verify FILE`` read one. The ref ``refs/wink/bundle/1`` names a
commit with ``manifest.json``, which has what git's format does not: the same refs, where the
history begins, and whatever the caller adds. Its last part is the version of this format.

Rule 1: every byte is covered by a checksum. The pack ends with its own; the ids of objects are
hashes of their contents; the manifest, which a ref names by its id, repeats the refs.
Rule 2: a reader adds objects only. The caller makes refs to them, so a history becomes visible at
once or not at all.
Rule 3: a reader trusts nothing; see ``pack_streams`` and ``history_check``.

A bundle is *thin* if its receiver must have some commits, or a tree of files, already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final, cast

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import BundleError, LedgerError
from wink_workspace.ledger.entries.commits import Commit, format_commit, parse_commit
from wink_workspace.ledger.entries.discards import DISCARDED_REFS
from wink_workspace.ledger.entries.history_check import HistoryCheck
from wink_workspace.ledger.store.compression import ObjectKind
from wink_workspace.ledger.store.git_tree import EMPTY_TREE, EMPTY_TREE_ID, GitEntry, GitTree
from wink_workspace.ledger.store.large_files import LARGE_BYTES
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.ledger.store.pack_streams import PackIngest, PackOutput, check_checksum
from wink_workspace.ledger.store.packs import encode_object

_FORMAT: Final = 1
_MANIFEST_REF: Final = "refs/wink/bundle/"
_MANIFEST: Final = b"manifest.json"
_HEAD: Final = "HEAD"
_MAIN: Final = "refs/heads/main"
_FIRST_LINE: Final = b"# v2 git bundle\n"
_MOST_LINE_BYTES: Final = 1_024
_MOST_REFS: Final = 100_000
_MOST_MANIFEST_BYTES: Final = 4 * 1_048_576
_REF_LINE = re.compile(rb"([0-9a-f]{40}) (HEAD|refs/[!-~]{1,900})\n")
_PREREQUISITE = re.compile(rb"-([0-9a-f]{40})( [ -~]*)?\n")
_ID = re.compile(r"[0-9a-f]{40}")
_FORK = re.compile(r"refs/wink/forks/[A-Za-z0-9](?:[._-]?[A-Za-z0-9]){0,63}(?<!\.lock)(?<!/main)")
_DISCARDED = re.compile(DISCARDED_REFS + r"[0-9]{8}T[0-9]{6}\.[0-9]{6}Z-[A-Za-z0-9%_-]{1,400}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """What a bundle may have; one with more is refused.

    Attributes:
        most_objects: The most objects: about nine for each call.
        most_bytes: The most bytes of all contents together, uncompressed.
        most_files: The most files of one entry.
        most_entry_bytes: The most bytes of the files of one entry.
    """

    most_objects: int = 10_000_000
    most_bytes: int = 64 * 2**30
    most_files: int = 500_000
    most_entry_bytes: int = 10 * 2**30


@dataclass(frozen=True, slots=True)
class BundleSize:
    """What a bundle has: how many commits and objects, and the bytes of their contents."""

    n_commits: int
    n_objects: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was read.

    Attributes:
        refs: The commit of each branch and discard, by the full name of its ref.
        boundary: The commits whose parents are not kept.
        about: The JSON object that the writer added.
    """

    refs: Mapping[str, str]
    boundary: frozenset[str]
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Header:
    """The lines before the pack. ``manifest`` is the id of the manifest's commit."""

    refs: Mapping[str, str]
    manifest: str


# Writing


def write_bundle(
    store: ObjectStore,
    file: BinaryIO,
    refs: Mapping[str, str],
    *,
    about: Mapping[str, object],
    at: datetime,
    since: Collection[str] = (),
    files: str | None = None,
    only_heads: bool = False,
) -> BundleSize:
    """Write the history of *refs* to *file*, in bounded memory.

    Args:
        store: The objects.
        file: An empty file that can be read, written and sought.
        refs: Full names of refs, each with the id of its commit.
        about: Added to the manifest; must have a JSON form.
        at: The time of the manifest.
        since: Commits that the receiver has; neither they nor what is before them is written.
        files: The tree of files that the receiver has.
        only_heads: Write only the newest commit of each ref, at which the history then begins.

    Raises:
        LedgerError: If an object cannot be read.
        OSError: If the file cannot be written.
    """
    plan = _plan(store, refs, since, only_heads=only_heads)
    manifest = {
        "format": _FORMAT,
        "refs": dict(refs),
        "boundary": sorted(plan.boundary),
        "about": about,
    }
    made = _manifest_objects(manifest, at)
    _write_header(file, refs, plan.missing, made[-1][0])
    output = PackOutput(file)
    for _, kind, content in made:
        output.add(kind, content)
    writing = _Writing(store, output, files)
    for commit_id, commit, parent in plan.commits:
        writing.add(commit_id, commit, parent)
    output.finish()
    return BundleSize(len(plan.commits), output.n_objects, output.n_bytes)


@dataclass(slots=True)
class _Plan:
    """The commits to write, each after its parent, with the tree of the parent."""

    commits: list[tuple[str, Commit, str | None]] = field(
        default_factory=list[tuple[str, Commit, str | None]]
    )
    boundary: set[str] = field(default_factory=set[str])
    missing: set[str] = field(default_factory=set[str])


def _plan(
    store: ObjectStore, refs: Mapping[str, str], since: Collection[str], *, only_heads: bool
) -> _Plan:
    plan = _Plan()
    trees = {each: parse_commit(each, store.read(each, "commit")).tree for each in since}
    plan.missing.update(since)
    ends = store.repository.boundary()
    for head in refs.values():
        chain: list[tuple[str, Commit]] = []
        following: str | None = head
        while following is not None and following not in trees:
            commit = parse_commit(following, store.read(following, "commit"))
            chain.append((following, commit))
            trees[following] = commit.tree
            if only_heads or following in ends:
                break
            following = commit.parent
        for commit_id, commit in reversed(chain):
            parent = commit.parent
            if parent is not None and parent not in trees:
                plan.boundary.add(commit_id)
                plan.missing.add(parent)
            plan.commits.append((commit_id, commit, trees.get(parent or "")))
    return plan


def _manifest_objects(
    manifest: Mapping[str, object], at: datetime
) -> list[tuple[str, ObjectKind, bytes]]:
    """The objects of the manifest, the commit last."""
    text = json.dumps(manifest, indent=1).encode() + b"\n"
    blob = encode_object("blob", text).id
    rows = b"".join(GitTree.of({_MANIFEST: GitEntry(b"100644", blob)}).rows)
    tree = encode_object("tree", rows).id
    commit = format_commit(Commit(tree, None, at.astimezone(UTC), "bundle of a workspace", {}))
    return [
        (blob, "blob", text),
        (tree, "tree", rows),
        (encode_object("commit", commit).id, "commit", commit),
    ]


def _write_header(
    file: BinaryIO, refs: Mapping[str, str], missing: Collection[str], manifest: str
) -> None:
    lines = [f"-{each}" for each in sorted(missing)]
    if _MAIN in refs:
        lines.append(f"{refs[_MAIN]} {_HEAD}")
    named = {**refs, f"{_MANIFEST_REF}{_FORMAT}": manifest}
    lines += [f"{commit_id} {ref}" for ref, commit_id in sorted(named.items())]
    file.write(_FIRST_LINE + "".join(f"{line}\n" for line in lines).encode() + b"\n")


class _Writing:
    """Writes commits, each without what the one before has in the same place."""

    def __init__(self, store: ObjectStore, output: PackOutput, files: str | None) -> None:
        self._store = store
        self._output = output
        self._files = files
        self._written = {EMPTY_TREE_ID} if files is None else {EMPTY_TREE_ID, files}
        output.add("tree", b"")

    def add(self, commit_id: str, commit: Commit, parent: str | None) -> None:
        """Write a commit; *parent* is the tree of the one before, if the receiver has it."""
        self._output.add("commit", self._store.read(commit_id, "commit"))
        before = self._before(commit, parent)
        root = self._store.tree(commit.tree)
        self._tree(commit.tree, root, None if parent is None else (parent, before))
        self._below(root, before)

    def _before(self, commit: Commit, parent: str | None) -> GitTree:
        if parent is not None:
            return self._store.tree(parent)
        base = commit.trailers.get("Base", "")
        if base in self._written:  # a discard
            at = GitEntry(b"40000", base)
            return GitTree.of({b"changed": at, b"files": at})
        if self._files is not None:
            return GitTree.of({b"files": GitEntry(b"40000", self._files)})
        return EMPTY_TREE

    def _below(self, root: GitTree, before: GitTree) -> None:
        """Write everything in *root* that *before* does not have in the same place."""
        pending = [(root, before)]
        while pending:
            tree, old = pending.pop()
            for name, entry in tree.rows_not_in(old):
                if entry.id in self._written:
                    continue
                there = old.get(name)
                like = there.id if there and there.is_tree == entry.is_tree else None
                if not entry.is_tree:
                    self._blob(entry.id, like)
                    continue
                found = self._store.read_tree(entry.id)
                known = None if like is None else (like, self._store.tree(like))
                self._tree(entry.id, found, known)
                pending.append((found, EMPTY_TREE if known is None else known[1]))

    def _tree(self, tree_id: str, tree: GitTree, like: tuple[str, GitTree] | None) -> None:
        if tree_id in self._written:
            return
        self._written.add(tree_id)
        content = b"".join(tree.rows)
        if like is None or like[0] == EMPTY_TREE_ID:
            self._output.add("tree", content)
        else:
            self._output.add_like(tree_id, "tree", content, (like[0], b"".join(like[1].rows)))

    def _blob(self, blob_id: str, like: str | None) -> None:
        self._written.add(blob_id)
        size_bytes = self._store.size_bytes(blob_id)
        if size_bytes >= LARGE_BYTES:
            self._output.add_large(size_bytes, self._store.chunks(blob_id))
            return
        content = self._store.read(blob_id)
        if like is None or self._store.size_bytes(like) >= LARGE_BYTES:
            self._output.add("blob", content)
        else:
            self._output.add_like(blob_id, "blob", content, (like, self._store.read(like)))


# Reading


def read_bundle(
    store: ObjectStore,
    file: BinaryIO,
    *,
    limits: BundleLimits,
    since: Collection[str] = (),
    files: str | None = None,
) -> Bundle:
    """Add the objects of a bundle to *store*, and check them; the caller makes the refs.

    Args:
        store: The objects.
        file: The bundle; can be sought.
        limits: What it may have.
        since: The commits that it was made to follow.
        files: The tree of files that it was made to follow.

    Raises:
        BundleError: If it is damaged, newer, or not allowed. What was added is not referred to.
        LedgerError: If the store cannot be written.
        OSError: If the file cannot be read.
    """
    header = _read_header(file)
    end = check_checksum(file)
    ingest = PackIngest(
        store, file, end, most_objects=limits.most_objects, most_bytes=limits.most_bytes
    )
    with store.bulk():
        ingest.run()
    store.forget()  # libgit2 looks for the new pack
    passed(KillPoint.BUNDLE_OBJECTS_READ)
    found = _read_manifest(store, header)
    check = HistoryCheck(
        store,
        boundary=found.boundary,
        known=since,
        known_files=files,
        most_files=limits.most_files,
        most_bytes=limits.most_entry_bytes,
    )
    for ref, commit_id in found.refs.items():
        (check.discard if ref.startswith(DISCARDED_REFS) else check.branch)(commit_id)
    return found


def _read_header(file: BinaryIO) -> _Header:
    if file.readline(len(_FIRST_LINE)) != _FIRST_LINE:
        raise BundleError(
            "the file is not a bundle of a workspace", hint="Give a file that `export` wrote."
        )
    refs: dict[str, str] = {}
    for line in _header_lines(file):
        named = _REF_LINE.fullmatch(line)
        if named is not None:
            refs[named[2].decode()] = named[1].decode()
        elif _PREREQUISITE.fullmatch(line) is None:
            raise BundleError("the bundle is damaged: its header has a line that is not a ref")
    manifests = [ref for ref in refs if ref.startswith(_MANIFEST_REF)]
    if f"{_MANIFEST_REF}{_FORMAT}" not in manifests:
        raise _unknown_format(manifests)
    manifest = [refs.pop(ref) for ref in manifests][manifests.index(f"{_MANIFEST_REF}{_FORMAT}")]
    if refs.pop(_HEAD, None) != refs.get(_MAIN):
        raise BundleError("the bundle is damaged: its HEAD is not its main branch")
    for ref in refs:
        if ref != _MAIN and not _FORK.fullmatch(ref) and not _DISCARDED.fullmatch(ref):
            raise BundleError(f"the bundle has a ref that no workspace has: {ref}")
    return _Header(refs, manifest)


def _unknown_format(manifests: list[str]) -> BundleError:
    if manifests:
        return BundleError(
            f"the bundle has format {manifests[0].removeprefix(_MANIFEST_REF)}, and this program "
            f"knows format {_FORMAT}",
            hint="Update wink-workspace, then import it again.",
        )
    return BundleError(
        "the file is a git bundle, but not one of a workspace",
        hint="Clone it with git, then create a workspace of the clone.",
    )


def _header_lines(file: BinaryIO) -> Iterator[bytes]:
    for _ in range(_MOST_REFS):
        line = file.readline(_MOST_LINE_BYTES)
        if line == b"\n":
            return
        yield line
    raise BundleError(f"the bundle has more than {_MOST_REFS:,} refs")


def _read_manifest(store: ObjectStore, header: _Header) -> Bundle:
    try:
        commit = parse_commit(header.manifest, store.read(header.manifest, "commit"))
        entry = store.tree(commit.tree).get(_MANIFEST)
        if entry is None or store.size_bytes(entry.id) > _MOST_MANIFEST_BYTES:
            raise ValueError("there is none")
        read = cast("dict[str, Any]", json.loads(store.read(entry.id)))
        boundary = frozenset(cast("list[str]", read["boundary"]))
        if read["format"] != _FORMAT or read["refs"] != dict(header.refs):
            raise ValueError("it names other refs")
        if not all(_ID.fullmatch(each) for each in boundary):
            raise ValueError("its boundary is not a list of commits")
        about = read["about"]
        if not isinstance(about, dict):
            raise TypeError("it does not say what it is about")
        return Bundle(header.refs, boundary, cast("dict[str, Any]", about))
    except (LedgerError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise BundleError(f"the manifest of the bundle cannot be read: {error}") from error
