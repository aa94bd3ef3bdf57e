"""Bundles: branches of a history in one file, which plain git can read.

A bundle has the format of `git bundle` (gitformat-bundle, version 2): lines with refs, then a pack.
``git clone FILE`` and ``git bundle verify FILE`` read one. The ref ``refs/wink/bundle/1`` names a
commit with ``manifest.json``, which has what git's format does not: the same refs, where the
history begins, and whatever the caller adds. Its last part is the version of this format.

Rule 1: every byte is covered by a checksum. The pack ends with its own; the ids of objects are
hashes of their contents; the manifest, which a ref names by its id, repeats the refs.
Rule 2: a reader adds objects only. The caller makes refs to them, so a history becomes visible at
once or not at all.
Rule 3: a reader trusts nothing; see ``pack_reading`` and ``history_check``.

A bundle is *thin* if its receiver must have some commits, or a tree of files, already. Its pack has
no delta of an object that it lacks.
"""

from __future__ import annotations

import json
import re
import tempfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final, cast

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import BundleError, LedgerDamagedError, LedgerError
from wink_workspace.filesystem.model import FileKind
from wink_workspace.ledger.entries.commits import Commit, format_commit, parse_commit
from wink_workspace.ledger.entries.discards import DISCARDED_REFS
from wink_workspace.ledger.entries.history_check import HistoryCheck
from wink_workspace.ledger.store.compression import run_steps
from wink_workspace.ledger.store.git_tree import EMPTY_TREE_ID, GitTree, TreeEntry
from wink_workspace.ledger.store.large_files import LARGE_BYTES
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.ledger.store.pack_reading import PackReader, check_checksum
from wink_workspace.ledger.store.packs import (
    PACK_HEADER,
    PackedObject,
    PackStream,
    encode_object,
    entry_header,
)
from wink_workspace.ledger.store.repacking import MAX_DEPTH, copying
from wink_workspace.ledger.upkeep.collection import objects_of

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
    store.sync()  # what is copied is read from the disk
    commits, boundary, missing = _plan(store, refs, since, only_heads=only_heads)
    manifest = {
        "format": _FORMAT,
        "refs": dict(refs),
        "boundary": sorted(boundary),
        "about": about,
    }
    made = _manifest_objects(manifest, at)
    _write_header(file, refs, missing, made[-1].id)
    pack = PackStream(file)
    for each in made:
        pack.write(each)
    seen, n_bytes = set[str]() if files is None else {files}, sum(each.size_bytes for each in made)
    small: list[str] = []
    for commit_id, before in commits:
        for object_id in objects_of(store, commit_id, seen, before or EMPTY_TREE_ID):
            kind, size_bytes = store.repository.header(object_id)
            n_bytes += size_bytes
            if size_bytes >= LARGE_BYTES:
                _write_large(pack, object_id, size_bytes, store.chunks(object_id))
            else:
                store.read(object_id, kind)  # one that is damaged must not be copied
                small.append(object_id)
    run_steps(copying(store.repository, store.packs, pack, small))
    run_steps(pack.complete())
    return BundleSize(len(commits), len(pack.entries), n_bytes)


def _plan(
    store: ObjectStore, refs: Mapping[str, str], since: Collection[str], *, only_heads: bool
) -> tuple[list[tuple[str, str | None]], set[str], set[str]]:
    """The commits to write, each with the tree of its parent, if the receiver has that.

    Then those whose parents are not written, and the commits that the receiver must have.
    """
    commits, boundary, missing = list[tuple[str, str | None]](), set[str](), set(since)
    trees = {each: parse_commit(each, store.read(each, "commit")).tree for each in since}
    ends = store.repository.boundary()
    for head in refs.values():
        chain: list[tuple[str, str | None]] = []
        following: str | None = head
        while following is not None and following not in trees:
            commit = parse_commit(following, store.read(following, "commit"))
            chain.append((following, commit.parent))
            trees[following] = commit.tree
            if only_heads or following in ends:
                break
            following = commit.parent
        for commit_id, parent in reversed(chain):
            if parent is not None and parent not in trees:
                boundary.add(commit_id)
                missing.add(parent)
            commits.append((commit_id, trees.get(parent or "")))
    return commits, boundary, missing


def _manifest_objects(manifest: Mapping[str, object], at: datetime) -> list[PackedObject]:
    """The objects of the manifest, the commit last."""
    blob = encode_object("blob", json.dumps(manifest, indent=1).encode() + b"\n")
    rows = GitTree.of({_MANIFEST: TreeEntry(FileKind.FILE, blob.id)}).rows
    tree = encode_object("tree", b"".join(rows))
    commit = Commit(tree.id, None, at.astimezone(UTC), "bundle of a workspace", {})
    return [blob, tree, encode_object("commit", format_commit(commit))]


def _write_header(
    file: BinaryIO, refs: Mapping[str, str], missing: Collection[str], manifest: str
) -> None:
    lines = [f"-{each}" for each in sorted(missing)]
    if _MAIN in refs:
        lines.append(f"{refs[_MAIN]} {_HEAD}")
    named = {**refs, f"{_MANIFEST_REF}{_FORMAT}": manifest}
    lines += [f"{commit_id} {ref}" for ref, commit_id in sorted(named.items())]
    file.write(_FIRST_LINE + "".join(f"{line}\n" for line in lines).encode() + b"\n")


def _write_large(
    pack: PackStream, object_id: str, size_bytes: int, pieces: Iterable[bytes]
) -> None:
    pack.append(entry_header("blob", size_bytes))
    compressor = zlib.compressobj(1)
    for piece in pieces:
        pack.append(compressor.compress(piece))
    pack.append(compressor.flush())
    pack.end(object_id)


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
    refs, manifest = _read_header(file)
    try:
        end = check_checksum(file)
        with store.bulk():
            _add_objects(store, file, end, limits)
    except LedgerDamagedError as error:
        raise BundleError(f"the bundle is damaged: {error.message}") from error
    store.forget()  # libgit2 looks for the new pack
    passed(KillPoint.BUNDLE_OBJECTS_READ)
    found = _read_manifest(store, refs, manifest)
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


def _read_header(file: BinaryIO) -> tuple[dict[str, str], str]:
    """The refs in the lines before the pack, and the id of the commit of the manifest."""
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
    return refs, manifest


def _add_objects(store: ObjectStore, file: BinaryIO, end: int, limits: BundleLimits) -> None:
    """Add the objects of the pack in *file*, each with the bytes that it has there."""
    start = file.read(PACK_HEADER.size)
    if len(start) != PACK_HEADER.size or start[:8] != PACK_HEADER.pack(b"PACK", 2, 0)[:8]:
        raise LedgerDamagedError("it has no pack of version 2")
    n_objects = PACK_HEADER.unpack(start)[2]
    if n_objects > limits.most_objects:
        raise _over_limit(f"more than {limits.most_objects:,} objects")
    reader, at = PackReader(file, end, most_bytes=LARGE_BYTES - 1), file.tell()
    known, n_bytes = set[str](), 0
    for _ in range(n_objects):
        header = reader.header(at)
        if header.kind == "blob" and header.size_bytes >= LARGE_BYTES:
            if n_bytes + header.size_bytes <= limits.most_bytes:
                at = _add_large(store, reader, at)
            n_bytes += header.size_bytes
        elif header.distance:
            raise LedgerDamagedError("it has an object that a bundle cannot have")
        else:
            found = reader.object(at)
            if found.id in known:
                raise LedgerDamagedError("it has an object twice")
            if found.depth > MAX_DEPTH:
                raise LedgerDamagedError(f"it has a chain of more than {MAX_DEPTH} deltas")
            known.add(found.id)
            file.seek(at)
            entry = file.read(found.end - at)
            store.write_prepared(PackedObject(found.id, entry, len(found.content)))
            at, n_bytes = found.end, n_bytes + len(found.content)
        if n_bytes > limits.most_bytes:
            raise _over_limit(f"contents of more than {limits.most_bytes:,} bytes")
    if at != end:
        raise LedgerDamagedError("it has more than its objects")


def _add_large(store: ObjectStore, reader: PackReader, at: int) -> int:
    """Add a large content, which becomes a pack of its own; where its entry ends."""
    header, end = reader.header(at), at
    with tempfile.TemporaryFile(dir=store.repository.directory) as spooled:
        for piece, end in reader.pieces(at + header.length, header.size_bytes):  # noqa: B007 - last
            spooled.write(piece)
        spooled.seek(0)
        store.write_blob_from(spooled.fileno())
    return end


def _over_limit(what: str) -> BundleError:
    return BundleError(
        f"the bundle has {what}, which is over the limit",
        hint="Import it with a higher limit only if you trust where it comes from.",
    )


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


def _read_manifest(store: ObjectStore, refs: dict[str, str], manifest: str) -> Bundle:
    try:
        commit = parse_commit(manifest, store.read(manifest, "commit"))
        entry = store.tree(commit.tree).get(_MANIFEST)
        if entry is None or store.size_bytes(entry.id) > _MOST_MANIFEST_BYTES:
            raise ValueError("there is none")
        read = cast("dict[str, Any]", json.loads(store.read(entry.id)))
        boundary = frozenset(cast("list[str]", read["boundary"]))
        if read["format"] != _FORMAT or read["refs"] != refs:
            raise ValueError("it names other refs")
        if not all(_ID.fullmatch(each) for each in boundary):
            raise ValueError("its boundary is not a list of commits")
        about = read["about"]
        if not isinstance(about, dict):
            raise TypeError("it does not say what it is about")
        return Bundle(refs, boundary, cast("dict[str, Any]", about))
    except (LedgerError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise BundleError(f"the manifest of the bundle cannot be read: {error}") from error
