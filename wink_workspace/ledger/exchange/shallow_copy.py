"""A copy of the newest commits of the user's repository, for git inside of a sandbox.

Rule 1: the repository is only read, by libgit2, which runs no program: no hook, no filter, no
``fsmonitor``. The configuration of user and system is not read.
Rule 2: the copy has the last commit of HEAD, and what *depth* generations of it need: commits,
directories, files, and the tags of these commits. It has no other branch, remote, hook, stash,
reflog or configuration.
Rule 3: what the workspace does not record is *withheld*: the copy does not have its content. A
replacement (``refs/replace``) makes git show a placeholder in its place, so that no command fails.
Rule 4: the size is bounded. A generation that would exceed a limit, or that the repository does not
have completely, is left out with all older ones.

The copy is a directory ``objects`` and a directory ``template``, the git directory to copy for each
call: ``HEAD``, ``config``, ``index``, ``packed-refs``, ``shallow``.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace.clock import Clock
from wink_workspace.errors import UsageError
from wink_workspace.filesystem.git_binary import git_hash
from wink_workspace.ledger.store.compression import ObjectKind
from wink_workspace.ledger.store.packs import Packs, PackWriter, encode_object

from .git_links import open_user_repository

if TYPE_CHECKING:
    import pygit2


_KIND_OF_TYPE: Final[Mapping[int, ObjectKind]] = {1: "commit", 2: "tree", 3: "blob"}
_TAG_TYPE: Final = 4
_MOST_OBJECTS: Final = 300_000
_MOST_BYTES: Final = 1 << 30
_MOST_SECONDS: Final = 30.0
_MOST_FILE_BYTES: Final = 32 << 20
_MOST_TAGS: Final = 10_000
_DIRECTORY, _SUBMODULE = 0o040000, 0o160000
_PLACEHOLDER: Final = b"withheld: the workspace does not have the history of this file\n"
_EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_SKIP_WORKTREE: Final = 0x4000
_EXTENDED: Final = 0x4000
_MOST_NAME_LENGTH: Final = 0xFFF
_INDEX_ENTRY: Final = struct.Struct(">10I20sH")

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The status of a file whose content is known, as git compares it with its index."""

    changed_ns: int
    modified_ns: int
    inode: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CopyPaths:
    """Where a sandbox has the parts of a copy.

    Attributes:
        objects: The directory with the objects.
        user_id: The owner of these files.
        unlisted: A path, relative to the files, that git does not list as untracked.
    """

    objects: str
    user_id: int
    unlisted: str


@dataclass(frozen=True, slots=True)
class ShallowCopy:
    """What was copied: the number of generations and of commits."""

    depth: int
    n_commits: int


class UserHead:
    """The last commit of a repository of the user.

    Attributes:
        commit: Its id.
        ref: The branch that HEAD names; ``None`` if it names a commit.
        tags: The id of each tag, by the name of its ref.
    """

    def __init__(self, repository: pygit2.Repository) -> None:
        import pygit2

        self._odb = repository.odb
        self._sparse_top = _top_of_sparse(repository)
        self.commit = str(repository.head.peel(pygit2.Commit).id)
        self.ref = None if repository.head_is_detached else repository.head.name
        names = [name for name in repository.references if name.startswith("refs/tags/")]
        self.tags = {
            name: str(repository.references[name].target) for name in sorted(names)[:_MOST_TAGS]
        }

    @property
    def digest(self) -> str:
        """Changes with everything that a copy depends on."""
        about = repr((self.commit, self.ref, self.tags))
        return hashlib.sha256(about.encode("utf-8", "surrogateescape")).hexdigest()

    def copy(
        self,
        into: Path,
        paths: CopyPaths,
        *,
        depth: int,
        hides: Callable[[Parts, bool], bool],
        stamps: Callable[[Parts, str], FileStamp | None],
        clock: Clock,
    ) -> ShallowCopy:
        """Write the copy into the empty directory *into*.

        Args:
            into: Gets ``objects`` and ``template``.
            paths: Where the sandbox has them.
            depth: The most generations of commits.
            hides: Whether the workspace does not record a path, which may be that of a directory.
            stamps: The status of the file at a path, if it has the content with this id. Git then
                need not read it. ``None`` if that is not known.
            clock: Bounds the time.

        Raises:
            UsageError: If the last commit alone exceeds a limit, or is not complete.
            LedgerError: If something cannot be written.
        """
        until_s = clock.monotonic_s() + _MOST_SECONDS
        reading = _Reading(self._odb, hides, lambda: clock.monotonic_s() < until_s)
        reading.run(self.commit, depth)
        tags = dict(self._tags_of(reading.commits))
        objects, template = into / "objects", into / "template"
        for directory in (
            *(objects / "pack", objects / "info"),
            *(template / "objects/info", template / "objects/pack"),
            *(template / "refs/heads", template / "refs/tags", template / "info"),
        ):
            directory.mkdir(parents=True)
        _write_pack(objects, reading)
        for chain in tags.values():
            for tag in chain:
                _write_tag(objects, tag, bytes(self._odb.read(tag)[1]))
        for name, text in self._files(reading, tags, paths).items():
            (template / name).write_bytes(text.encode("utf-8", "surrogateescape"))
        reading.leave_out_of_sparse(self._sparse_top)
        (template / "index").write_bytes(_index(reading, stamps, paths.user_id))
        return ShallowCopy(reading.depth, len(reading.commits))

    def _files(
        self, reading: _Reading, tags: Mapping[str, list[str]], paths: CopyPaths
    ) -> dict[str, str]:
        """The text files of the git directory, by name."""
        refs = {name: self.tags[name] for name in tags}
        if self.ref is not None:
            refs[self.ref] = self.commit
        for withheld, replacement in reading.replacements():
            refs[f"refs/replace/{withheld}"] = replacement
        files = {
            "HEAD": f"ref: {self.ref}\n" if self.ref is not None else f"{self.commit}\n",
            "config": _config(has_submodules=reading.has_submodules),
            "packed-refs": "".join(f"{refs[name]} {name}\n" for name in sorted(refs)),
            "info/exclude": f"/{paths.unlisted}\n",
            "objects/info/alternates": f"{paths.objects}\n",
        }
        if reading.boundary:
            files["shallow"] = "".join(f"{commit}\n" for commit in sorted(reading.boundary))
        return files

    def _tags_of(self, commits: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
        """The tags of *commits*, each with the ids of its tag objects."""
        for name, target in self.tags.items():
            chain: list[str] = []
            found = target
            while found not in commits and len(chain) < 10:
                try:
                    kind, data = self._odb.read(found)
                except (KeyError, ValueError):
                    break
                if kind != _TAG_TYPE:
                    break
                chain.append(found)
                found = bytes(data[7:47]).decode("ascii")
            if found in commits:
                yield name, chain


def open_user_head(directory: Path, trusted: Collection[Path] = ()) -> UserHead | None:
    """The last commit of the repository whose working tree is *directory*.

    ``None`` if *directory* is not the top of a working tree, or there is no commit.

    Args:
        directory: The working tree.
        trusted: See ``open_user_repository``.

    Raises:
        UsageError: If libgit2 cannot read the repository, or it leads elsewhere.
    """
    import pygit2

    if not os.path.lexists(directory / ".git"):
        return None
    repository = open_user_repository(directory, trusted)
    try:
        if repository.is_bare or repository.head_is_unborn:
            return None
        return UserHead(repository)
    except (pygit2.GitError, KeyError, ValueError, OSError) as error:
        raise UsageError(
            f"the history of {directory} cannot be read: {error}",
            hint="The workspace works without it; git in its sandbox finds no repository.",
        ) from error


def _top_of_sparse(repository: pygit2.Repository) -> Path | None:
    """The top of its working tree if that is a sparse checkout."""
    settings = repository.config
    is_sparse = "core.sparseCheckout" in settings and settings.get_bool("core.sparseCheckout")
    return Path(repository.workdir) if is_sparse else None


class _LimitError(Exception):
    """A generation exceeds a limit, or is not complete."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """An entry of the index. The files of the workspace do not have it if it is hidden."""

    path: Parts
    mode: int
    id: str
    is_hidden: bool

    @property
    def name(self) -> bytes:
        """The path as git stores it."""
        return "/".join(self.path).encode("utf-8", "surrogateescape")


@dataclass(slots=True)
class _Part:
    """The objects of one generation that earlier ones do not have."""

    commits: dict[str, str] = field(default_factory=dict[str, str])
    trees: set[str] = field(default_factory=set[str])
    blobs: dict[str, int] = field(default_factory=dict[str, int])
    hidden: dict[str, bool] = field(default_factory=dict[str, bool])


class _Reading:
    """Finds the objects to copy, one generation after the other.

    Attributes:
        commits: The tree of each commit.
        trees: The directories.
        blobs: The size of each file.
        boundary: The commits whose parents are left out.
        head: The files of the first commit.
        depth: The number of generations.
        has_submodules: Whether the first commit has any.
    """

    def __init__(
        self, odb: pygit2.Odb, hides: Callable[[Parts, bool], bool], has_time: Callable[[], bool]
    ) -> None:
        self._odb = odb
        self._hides = hides
        self._has_time = has_time
        self._n_bytes = 0
        self._visited: set[tuple[str, Parts]] = set()
        self.commits: dict[str, str] = {}
        self.trees: set[str] = set()
        self.blobs: dict[str, int] = {}
        self._hidden: dict[str, bool] = {}
        self.boundary: set[str] = set()
        self.head: list[_Listed] = []
        self.depth = 0
        self.has_submodules = False

    def run(self, commit: str, depth: int) -> None:
        """Find them; raises ``UsageError`` if not even the first generation can be copied."""
        generation = {commit}
        while generation and self.depth < depth:
            try:
                parents = self._add(generation)
            except (_LimitError, KeyError, ValueError) as error:
                if not self.depth:
                    raise UsageError(
                        f"the commit {commit} cannot be copied: {error}",
                        hint="The workspace works without its history; git in its sandbox finds no"
                        " repository.",
                    ) from error
                return  # the boundary is that of the generation before
            self.depth += 1
            generation = {
                above for each in parents.values() for above in each if above not in self.commits
            }
            self.boundary = {each for each, above in parents.items() if generation & set(above)}

    def leave_out_of_sparse(self, top: Path | None) -> None:
        """Hide the files of the first commit that a sparse checkout in *top* does not have."""
        if top is not None:
            self.head = [
                each if os.path.lexists(top.joinpath(*each.path)) else replace(each, is_hidden=True)
                for each in self.head
            ]

    @property
    def withheld(self) -> dict[str, bool]:
        """The ids that only hidden paths have, each with whether it is a directory."""
        return {
            each: is_directory
            for each, is_directory in self._hidden.items()
            if each not in self.blobs and each not in self.trees
        }

    def replacements(self) -> Iterator[tuple[str, str]]:
        """What stands for each withheld object."""
        placeholder = encode_object("blob", _PLACEHOLDER).id
        for each, is_directory in self.withheld.items():
            yield each, _EMPTY_TREE if is_directory else placeholder

    def contents(self) -> Iterator[tuple[ObjectKind, bytes]]:
        """Every object to copy."""
        if self.withheld:
            yield "blob", _PLACEHOLDER
            yield "tree", b""
        for each in (*self.commits, *self.trees, *self.blobs):
            kind, data = self._odb.read(each)
            yield _KIND_OF_TYPE[kind], bytes(data)

    def _add(self, generation: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Add a generation, all of it or nothing; the parents of each of its commits."""
        part = _Part()
        parents: dict[str, tuple[str, ...]] = {}
        for commit in sorted(generation):
            kind, data = self._odb.read(commit)
            if _KIND_OF_TYPE.get(kind) != "commit":
                raise ValueError(f"{commit} is not a commit")
            tree, parents[commit] = _tree_and_parents(bytes(data))
            part.commits[commit] = tree
            self._walk(part, tree, ())
        n_bytes = self._n_bytes + sum(part.blobs.values())
        n_objects = sum(map(len, (self.blobs, self.trees, self.commits, part.blobs, part.trees)))
        if n_bytes > _MOST_BYTES or n_objects > _MOST_OBJECTS:
            raise _LimitError(f"it has {n_objects:,} objects with {n_bytes:,} bytes")
        self._n_bytes = n_bytes
        self.commits |= part.commits
        self.trees |= part.trees
        self.blobs |= part.blobs
        self._hidden |= part.hidden
        return parents

    def _walk(self, part: _Part, tree: str, directory: Parts) -> None:
        """Add a directory that is not hidden, with everything below it."""
        if (tree, directory) in self._visited:
            return
        if not self._has_time():
            raise _LimitError(f"it takes more than {_MOST_SECONDS:g} s")
        self._visited.add((tree, directory))
        part.trees.add(tree)
        kind, data = self._odb.read(tree)
        if _KIND_OF_TYPE.get(kind) != "tree":
            raise ValueError(f"{tree} is not a directory")
        for mode, raw_name, found in _entries(bytes(data)):
            path = (*directory, raw_name.decode("utf-8", "surrogateescape"))
            is_hidden = self._hides(path, mode in (_DIRECTORY, _SUBMODULE))
            if not self.depth and mode != _DIRECTORY:
                self.head.append(_Listed(path, mode, found, is_hidden))
                self.has_submodules |= mode == _SUBMODULE
            if mode == _SUBMODULE:
                continue
            if is_hidden:
                part.hidden[found] = mode == _DIRECTORY
            elif mode == _DIRECTORY:
                self._walk(part, found, path)
            elif found not in self.blobs and found not in part.blobs:
                self._add_file(part, found)

    def _add_file(self, part: _Part, blob: str) -> None:
        kind, n_bytes = self._odb.read_header(blob)
        if _KIND_OF_TYPE.get(kind) != "blob":
            raise ValueError(f"{blob} is not a file")
        if n_bytes > _MOST_FILE_BYTES:
            part.hidden[blob] = False
        else:
            part.blobs[blob] = n_bytes


# Reading and writing git's formats


def _tree_and_parents(commit: bytes) -> tuple[str, tuple[str, ...]]:
    """The tree and the parents of a commit [gitformat: its first lines]."""
    lines = commit.partition(b"\n\n")[0].decode("utf-8", "replace").split("\n")
    tree, *others = (line.split(" ")[1] for line in lines if line.startswith(("tree ", "parent ")))
    return tree, tuple(others)


def _entries(tree: bytes) -> Iterator[tuple[int, bytes, str]]:
    """The mode, name and id of each entry of a tree object."""
    at = 0
    while at < len(tree):
        space = tree.index(b" ", at)
        end = tree.index(b"\0", space)
        yield int(tree[at:space], 8), tree[space + 1 : end], tree[end + 1 : end + 21].hex()
        at = end + 21


def _write_pack(objects: Path, reading: _Reading) -> None:
    writer = PackWriter(Packs(objects))
    try:
        for kind, content in reading.contents():
            writer.write(encode_object(kind, content))
        writer.finish()
    finally:
        writer.abandon()
    for path in (objects / "pack").iterdir():
        path.chmod(0o444)


def _write_tag(objects: Path, tag: str, content: bytes) -> None:
    """Write a tag object as a file of its own: packs of this package have none."""
    path = objects / tag[:2] / tag[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(zlib.compress(b"tag %d\0" % len(content) + content, 1))


def _config(*, has_submodules: bool) -> str:
    lines = [
        "[core]",
        "\trepositoryformatversion = 0",
        "\tfilemode = true",
        "\tbare = false",
        "[gc]",
        "\tauto = 0",
        "[user]",
        "\tname = wink_workspace",
        "\temail = wink_workspace@localhost",
    ]
    if has_submodules:  # their own repositories are not in the sandbox
        lines += ["[diff]", "\tignoreSubmodules = all"]
    return "\n".join((*lines, ""))


def _index(
    reading: _Reading, stamps: Callable[[Parts, str], FileStamp | None], user_id: int
) -> bytes:
    """An index that equals the first commit [gitformat-index, version 3].

    An entry without a stamp makes git read the file when it refreshes the index.
    """
    content = bytearray(struct.pack(">4sII", b"DIRC", 3, len(reading.head)))
    for entry in sorted(reading.head, key=lambda each: each.name):
        stamp = None if entry.mode == _SUBMODULE else stamps(entry.path, entry.id)
        status = (0,) * 6 if stamp is None else _times_and_inode(stamp)
        ids = (0, 0, 0) if stamp is None else (user_id, user_id, stamp.size_bytes & 0xFFFF_FFFF)
        flags = min(len(entry.name), _MOST_NAME_LENGTH)
        start = len(content)
        content += _INDEX_ENTRY.pack(
            *(*status, entry.mode, *ids, bytes.fromhex(entry.id)),
            flags | (_EXTENDED if entry.is_hidden else 0),
        )
        if entry.is_hidden:
            content += _SKIP_WORKTREE.to_bytes(2)
        content += entry.name
        content += bytes(8 - (len(content) - start) % 8)
    return bytes(content) + git_hash(content).digest()


def _times_and_inode(stamp: FileStamp) -> tuple[int, ...]:
    """Change and modification time in seconds and nanoseconds, device and inode.

    Git does not compare the device.
    """
    changed, modified = (divmod(ns, 10**9) for ns in (stamp.changed_ns, stamp.modified_ns))
    return (*changed, *modified, 0, stamp.inode & 0xFFFF_FFFF)
