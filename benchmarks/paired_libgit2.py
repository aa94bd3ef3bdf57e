"""Our code for git objects and refs compared with libgit2, in turns in one run.

Run by ``make bench-libgit2``; name directories to choose filesystems (a tmpfs and the disk of the
temporary directory, if left out). The two sides take turns on the same repository, each with
content of its own, and the table gives medians. With ``durable`` both sides sync what they wrote
before they move the ref. benchmarks/results.md shows a run; nothing is asserted.
"""

from __future__ import annotations

import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pygit2
from pygit2.enums import FileMode, ObjectType

from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import WorkspacePath
from wink_workspace.ledger import Draft, EntryKind, Ledger, merge_base
from wink_workspace.ledger.entries.commits import Commit, format_commit, parse_commit
from wink_workspace.ledger.store import trees
from wink_workspace.ledger.store.disk import sync
from wink_workspace.ledger.store.git_tree import GitTree, TreeEntry
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.ledger.store.packs import Packs, PackWriter, encode_object
from wink_workspace.ledger.store.refs import RefMover
from wink_workspace.ledger.store.repository import GitRepository

NOW = datetime(2025, 1, 1, tzinfo=UTC)
TEXT = b"def function(argument):\n    return argument + 1\n\n"
CUT_SHORT = """
import pygit2, sys
pygit2.Repository(sys.argv[1]).odb.read(sys.argv[2])
"""
FULL = """
import pygit2, resource, secrets, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
git = pygit2.Repository(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
try:
    git.odb.write(pygit2.enums.ObjectType.BLOB, secrets.token_bytes(5_000))
except Exception as error:
    print(f"{error!r}, errno {getattr(error, 'errno', None)}")
"""

Side = Callable[[int], object]


@dataclass(frozen=True)
class Pair:
    """One part, done by both sides; each is called with the number of the round."""

    part: str
    ours: Side
    libgit2: Side
    rounds: int = 300


class Bench:
    """One repository and the pairs that use it."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        self.durable = durable
        self.directory = directory / "ledger.git"
        GitRepository.create(self.directory)
        self.ours = GitRepository(self.directory, durable=durable)
        self.store = ObjectStore(self.ours)
        self.refs = RefMover(self.ours, durable=durable)
        pygit2.settings.enable_fsync_gitdir(durable)
        self.git = pygit2.Repository(str(self.directory))
        objects = str(self.directory / "objects")
        # Without packs: with them, a missing object makes libgit2 read the pack directory.
        self.odb_of_level = {level: loose_odb(objects, level, durable) for level in (0, 1)}

    def pairs(self) -> Iterator[Pair]:
        """Every pair, the parts of a call first."""
        yield from self.writing()
        if not self.durable:
            yield from self.reading()
            yield from self.directories()
            yield from self.commits()
            yield from self.merge_base()
        yield self.move_of_a_ref()
        yield self.whole_commit()
        yield self.pack()

    # Objects

    def writing(self) -> Iterator[Pair]:
        sizes = [(1 << 10, 300), (1 << 14, 300), (1 << 20, 20)]
        for n_bytes, rounds in sizes:
            yield self.write(f"write a text of {n_bytes:,} bytes", n_bytes, text, 1, rounds)
        for n_bytes, rounds in [(1 << 10, 300), (1 << 14, 300), (1 << 16, 100), (8 << 20, 5)]:
            name = f"write noise of {n_bytes:,} bytes"
            yield self.write(name, n_bytes, secrets.token_bytes, 1, rounds)
            yield self.write(f"{name}, level 0", n_bytes, secrets.token_bytes, 0, rounds)

    def write(
        self,
        part: str,
        n_bytes: int,
        content: Callable[[int], bytes],
        level: int,
        rounds: int,
    ) -> Pair:
        odb = self.odb_of_level[level]
        mine = [content(n_bytes) for _ in range(rounds)]
        theirs = [content(n_bytes) for _ in range(rounds)]

        def ours(n: int) -> None:
            self.store.write_blob(mine[n])
            self.store.sync()

        return Pair(part, ours, lambda n: odb.write(ObjectType.BLOB, theirs[n]), rounds)

    def reading(self) -> Iterator[Pair]:
        for n_bytes in (1 << 10, 1 << 14, 1 << 20):
            rounds = 300 if n_bytes < 1 << 20 else 20
            ids = [self.store.write_blob(text(n_bytes)) for _ in range(rounds)]
            others = [self.store.write_blob(text(n_bytes)) for _ in range(rounds)]
            yield Pair(
                f"read a loose text of {n_bytes:,} bytes",
                lambda n, ids=ids: self.ours.read(ids[n]),
                lambda n, ids=others: self.git.odb.read(ids[n]),
                rounds,
            )

    # Directories

    def directories(self) -> Iterator[Pair]:
        entry = TreeEntry(FileKind.FILE, self.store.write_blob(b"content"))
        for width in (20, 300, 1_000):
            names = [b"f%d" % n for n in range(width)]
            ids = [
                self.store.write_tree(GitTree.of({**dict.fromkeys(names, entry), name: entry}))
                for name in (b"only-%d" % n for n in range(200))
            ]
            yield Pair(
                f"read and parse a directory of {width:,}",
                lambda n, ids=ids: self.store.read_tree(ids[n]).get(b"f7"),
                lambda n, ids=ids: self.git[ids[n + 100]]["f7"].id,
                rounds=100,
            )
            yield Pair(
                f"find a name in a directory of {width:,} that is in memory",
                lambda _, ids=ids: self.store.tree(ids[100]).get(b"f7"),
                lambda _, ids=ids: self.git[ids[100]]["f7"].id,
            )
            yield self.changed_directory(width, self.store.tree(ids[100]), ids[100])
        yield self.tree_diff(entry)

    def changed_directory(self, width: int, tree: GitTree, tree_id: str) -> Pair:
        mine = [TreeEntry(FileKind.FILE, self.store.write_blob(text(64))) for _ in range(300)]
        theirs = [pygit2.Oid(hex=self.store.write_blob(text(64))) for _ in range(300)]
        before = self.git[tree_id]

        def libgit2(n: int) -> None:
            builder = self.git.TreeBuilder(before)
            builder.insert("f7", theirs[n], FileMode.BLOB)
            builder.write()

        return Pair(
            f"change one of {width:,} entries and write the directory",
            lambda n: self.store.write_tree(tree.changed({b"f7": mine[n]})),
            libgit2,
        )

    def tree_diff(self, entry: TreeEntry) -> Pair:
        blob = trees.TreeEntry(FileKind.FILE, entry.id)
        paths = [
            WorkspacePath((f"d{directory}", f"f{file}"))
            for directory in range(20)
            for file in range(20)
        ]
        before = trees.build(self.store, trees.EMPTY_TREE_ID, dict.fromkeys(paths, blob))
        other = trees.TreeEntry(FileKind.FILE, self.store.write_blob(b"other"))
        after = trees.build(self.store, before, {paths[n * 100]: other for n in range(4)})
        return Pair(
            "compare two trees of 400 files, 4 changed",
            lambda _: list(trees.diff(self.store, before, after)),
            lambda _: list(self.git.diff(self.git[before], self.git[after]).deltas),
        )

    # Commits and refs

    def commits(self) -> Iterator[Pair]:
        tree = trees.EMPTY_TREE_ID
        parent = self.store.write("commit", commit_content(tree, None, "parent"))
        who = pygit2.Signature("wink_workspace", "wink_workspace@localhost", 1, 0)
        yield Pair(
            "format and write a commit",
            lambda n: self.store.write("commit", commit_content(tree, parent, f"ours {n}")),
            lambda n: self.git.create_commit(None, who, who, message(f"{n}"), tree, [parent]),
        )
        content = self.store.read(parent, "commit")
        yield Pair(
            "parse a commit",
            lambda _: parse_commit(parent, content).tree,
            lambda _: parts_of(self.git[parent]),
        )

    def merge_base(self) -> Iterator[Pair]:
        """Of two entries with 200 between them; ours also follows merges that were not undone."""
        tree = trees.EMPTY_TREE_ID
        draft = Draft(kind=EntryKind.CALL, subject="x", files=tree, session=tree, record={}, at=NOW)
        with Ledger(self.directory) as ledger, ledger.write() as writer:
            entries = [writer.append(draft) for _ in range(201)]
            yield Pair(
                "merge base of two entries, 200 between them",
                lambda _: merge_base(ledger.store, entries[-1], entries[0]),
                lambda _: self.git.merge_base(entries[-1].id, entries[0].id),
                rounds=20,
            )

    def move_of_a_ref(self) -> Pair:
        tree = trees.EMPTY_TREE_ID
        ids = [self.store.write("commit", commit_content(tree, None, f"{n}")) for n in range(301)]
        self.store.sync()
        mine, theirs = "refs/heads/ours", "refs/heads/libgit2"
        spares = self.directory / "spares"
        self.refs.move(mine, expected=None, target=ids[0], spares=spares)
        self.git.references.create(theirs, ids[0])
        return Pair(
            "move a ref, compared with its old value",
            lambda n: self.refs.move(mine, expected=ids[n], target=ids[n + 1], spares=spares),
            lambda n: self.git.references[theirs].set_target(ids[n + 1]),
        )

    def whole_commit(self) -> Pair:
        """A file, two directories, three more objects, the commit and the move of the ref."""
        spares = self.directory / "spares-whole"
        blob = self.store.write_blob(b"content")
        entry = TreeEntry(FileKind.FILE, blob)
        wide = GitTree.of({b"f%d" % n: entry for n in range(100)})
        self.store.write_tree(wide)
        wide_id = self.store.write_tree(wide)
        mine: list[str | None] = [None]
        theirs: list[pygit2.Oid] = []
        who = pygit2.Signature("wink_workspace", "wink_workspace@localhost", 1, 0)
        odb = self.odb_of_level[1]

        def ours(n: int) -> None:
            changed = TreeEntry(FileKind.FILE, self.store.write_blob(text(1_000)))
            directory = self.store.write_tree(wide.changed({b"f7": changed}))
            root = self.store.write_tree(
                GitTree.of({b"src": TreeEntry(FileKind.DIRECTORY, directory)})
            )
            record = TreeEntry(FileKind.FILE, self.store.write_blob(text(600)))
            whole = {b"files": TreeEntry(FileKind.DIRECTORY, root), b"call.json": record}
            tree = self.store.write_tree(GitTree.of(whole))
            commit = self.store.write("commit", commit_content(tree, mine[-1], f"ours {n}"))
            self.store.sync()
            self.refs.move("refs/heads/a", expected=mine[-1], target=commit, spares=spares)
            mine.append(commit)

        def libgit2(n: int) -> None:
            directory = self.git.TreeBuilder(self.git[wide_id])
            directory.insert("f7", odb.write(ObjectType.BLOB, text(1_000)), FileMode.BLOB)
            root = self.git.TreeBuilder()
            root.insert("src", directory.write(), FileMode.TREE)
            whole = self.git.TreeBuilder()
            whole.insert("files", root.write(), FileMode.TREE)
            whole.insert("call.json", odb.write(ObjectType.BLOB, text(600)), FileMode.BLOB)
            parents = theirs[-1:]
            name = f"libgit2 {n}"
            commit = self.git.create_commit(None, who, who, message(name), whole.write(), parents)
            if parents:
                self.git.references["refs/heads/b"].set_target(commit)
            else:
                self.git.references.create("refs/heads/b", commit)
            theirs.append(commit)

        return Pair("all of a commit of one write", ours, libgit2)

    # Packs

    def pack(self) -> Pair:
        packs = Packs(self.directory / "objects", durable=self.durable)

        def ours(_: int) -> None:
            writer = PackWriter(packs)
            for _ in range(2_000):
                writer.write(encode_object("blob", text(1_000)))
            writer.finish()

        def libgit2(_: int) -> None:
            git = pygit2.Repository(str(self.directory))
            memory = InMemory()
            git.odb.add_backend(memory, 100)
            builder = pygit2.PackBuilder(git)
            for _ in range(2_000):
                content = text(1_000)
                name = pygit2.hash(content)
                memory.contents[name] = content
                builder.add(name)
            before = set(packs.directory.iterdir())
            builder.write()
            if self.durable:
                for path in [*set(packs.directory.iterdir()) - before, packs.directory]:
                    sync(path)

        return Pair("a pack of 2,000 new objects", ours, libgit2, rounds=3)


class InMemory(pygit2.OdbBackend):
    """Objects that libgit2 packs without a file of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: dict[pygit2.Oid, bytes] = {}

    def read_cb(self, oid: pygit2.Oid) -> tuple[int, bytes]:
        return ObjectType.BLOB, self.contents[pygit2.Oid(hex=str(oid))]

    def read_header_cb(self, oid: pygit2.Oid) -> tuple[int, int]:
        return ObjectType.BLOB, len(self.contents[pygit2.Oid(hex=str(oid))])

    def exists_cb(self, oid: pygit2.Oid) -> bool:
        return pygit2.Oid(hex=str(oid)) in self.contents


def loose_odb(objects: str, level: int, durable: bool) -> pygit2.Odb:
    """A database of loose objects only, with the zlib level of our choice."""
    odb = pygit2.Odb()
    odb.add_backend(pygit2.OdbBackendLoose(objects, level, durable), 1)
    return odb


def text(n_bytes: int) -> bytes:
    """A text that compresses, different each time."""
    start = secrets.token_hex(16).encode() + b"\n"
    return (start + TEXT * (n_bytes // len(TEXT) + 1))[:n_bytes]


def message(name: str) -> str:
    return f"write_file {name}\n\nWink-Kind: call\nWink-Number: 17\n"


def commit_content(tree: str, parent: str | None, name: str) -> bytes:
    trailers = {"Kind": "call", "Number": "17"}
    return format_commit(Commit(tree, parent, NOW, f"write_file {name}", trailers))


def parts_of(commit: pygit2.Object) -> object:
    assert isinstance(commit, pygit2.Commit)
    return commit.tree_id, commit.parent_ids, commit.commit_time, commit.message


def measured(pair: Pair) -> tuple[float, float]:
    """The medians of both sides in microseconds; the first side alternates."""
    times: tuple[list[float], list[float]] = ([], [])
    for n in range(pair.rounds):
        for which in (0, 1) if n % 2 else (1, 0):
            side = pair.libgit2 if which else pair.ours
            start = time.perf_counter()
            side(n)
            times[which].append(time.perf_counter() - start)
    return statistics.median(times[0]) * 1e6, statistics.median(times[1]) * 1e6


def facts() -> list[str]:
    """What libgit2 does with a damaged object and on a full disk, each in a separate process."""
    with tempfile.TemporaryDirectory() as directory:
        git = pygit2.init_repository(directory, bare=True)
        name = str(git.create_blob(secrets.token_bytes(5_000)))
        path = Path(directory) / "objects" / name[:2] / name[2:]
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:2_000])
        return [
            f"Reading an object whose file is cut short: {outcome(CUT_SHORT, directory, name)}",
            f"Writing an object on a full disk: {outcome(FULL, directory)}",
        ]


def outcome(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    try:
        done = subprocess.run(command, timeout=5, check=False, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return "no answer within 5 s"
    return done.stdout.strip() or f"exit code {done.returncode}"


def main(directories: list[str]) -> None:
    """Print one table for each directory and durability."""
    print(f"pygit2 {pygit2.__version__}, libgit2 {pygit2.LIBGIT2_VERSION}")
    print("\n".join(facts()))
    for parent in directories:
        for durable in (False, True):
            print(f"\n{parent}{', durable' if durable else ''}\n")
            print("| Part | Ours (µs) | libgit2 (µs) | Difference (µs) |\n|---|---|---|---|")
            with tempfile.TemporaryDirectory(dir=parent) as directory:
                for pair in Bench(Path(directory), durable=durable).pairs():
                    ours, libgit2 = measured(pair)
                    row = f"{ours:,.0f} | {libgit2:,.0f} | {libgit2 - ours:+,.0f}"
                    print(f"| {pair.part} | {row} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["/dev/shm", tempfile.gettempdir()])
