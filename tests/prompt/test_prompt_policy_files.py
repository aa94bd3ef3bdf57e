"""Existing files may be changed only after their present content was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from wink_workspace.errors import FilesystemError, PromptValidationError
from wink_workspace.filesystem.memory import MemoryFilesystem
from wink_workspace.filesystem.paths import parse_path
from wink_workspace.filesystem.protocol import Filesystem
from wink_workspace.prompt import MarkdownSection, Prompt
from wink_workspace.prompt.policy import (
    FilesUsed,
    FileUse,
    KnownFiles,
    PolicyDecision,
    ReadBeforeWritePolicy,
)
from wink_workspace.prompt.tool import Tool
from wink_workspace.prompt.tool_context import ToolContext
from wink_workspace.prompt.tool_result import ToolResult
from wink_workspace.resources import Binding, ResourceRegistry
from wink_workspace.sections import VfsToolsSection
from wink_workspace.session import Session, WorkspaceRestored

POLICY = ReadBeforeWritePolicy()


@dataclass(frozen=True)
class Use:
    """Params that declare which files they use."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()

    def file_use(self) -> FileUse:
        return FileUse(
            reads=tuple(map(parse_path, self.reads)),
            writes=tuple(map(parse_path, self.writes)),
            deletes=tuple(map(parse_path, self.deletes)),
            moves=tuple((parse_path(a), parse_path(b)) for a, b in self.moves),
        )


@dataclass(frozen=True)
class Upload:
    """Params of a foreign tool, which do not declare files."""

    source: str | None = None
    targets: tuple[str, ...] = ()


USE = Tool[Use, None](name="use", description="Use files.")
UPLOAD = Tool[Upload, None](name="upload", description="Upload a file.")


class Agent:
    """Calls tools as the executor does: check, run, and notify the policy of a success."""

    def __init__(
        self, files: dict[str, str] | None = None, policy: ReadBeforeWritePolicy = POLICY
    ) -> None:
        self.files = MemoryFilesystem(files or {})
        self.session = Session()
        self.policy = policy
        policy.install(self.session)

    def call(
        self, params: object, work: Callable[[], object] = lambda: None, *, tool: Any = USE
    ) -> str:
        """The refusal's reason, or ``""`` when the call ran."""
        with self.context() as context:
            decision = self.policy.check(tool, params, context=context)
            if decision.allowed:
                work()
                self.policy.on_result(tool, params, ToolResult.ok(None), context=context)
        return decision.reason

    def read(self, path: str) -> str:
        return self.call(Use(reads=(path,)), lambda: self.files.read_bytes(path))

    def write(self, path: str, text: str = "by the agent") -> str:
        return self.call(Use(writes=(path,)), lambda: self.files.write_text(path, text))

    def delete(self, path: str) -> str:
        return self.call(Use(deletes=(path,)), lambda: self.files.delete(path, recursive=True))

    def move(self, source: str, destination: str) -> str:
        return self.call(
            Use(moves=((source, destination),)), lambda: self.files.move(source, destination)
        )

    @contextmanager
    def context(self, *, bound: bool = True) -> Iterator[ToolContext]:
        bindings = [Binding.instance(Filesystem, self.files)] if bound else []
        with ResourceRegistry.of(*bindings).open() as resources, resources.tool_scope() as view:
            yield ToolContext(
                prompt=Prompt(ns="test", key="test", sections=[]),
                rendered_prompt=None,
                adapter=cast("Any", None),
                session=self.session,
                resources=view,
            )


UNREAD = "was not read yet; read it first"
CHANGED = "changed since it was read; read it again"


# Reading before writing


@pytest.mark.behaviour(55)
def test_a_file_that_was_read_may_be_written_repeatedly() -> None:
    agent = Agent({"a.py": "old"})

    assert agent.read("a.py") == ""
    assert agent.write("a.py", "one") == ""
    assert agent.write("a.py", "two") == ""


@pytest.mark.behaviour(55)
def test_a_file_that_was_not_read_may_not_be_written() -> None:
    agent = Agent({"src/a.py": "old"})

    assert agent.write("src/a.py") == f"src/a.py {UNREAD}"
    assert agent.files.read_bytes("src/a.py") == b"old"


@pytest.mark.behaviour(55)
@pytest.mark.parametrize("spelling", ["./src/a.py", "src//a.py", "src/./a.py", "src/a.py/"])
def test_all_spellings_of_a_path_are_one_file(spelling: str) -> None:
    agent = Agent({"src/a.py": "old"})
    agent.read(spelling)

    assert agent.write("src/a.py") == ""
    assert [*agent.session[KnownFiles].latest().fingerprints] == ["src/a.py"]


@pytest.mark.behaviour(55)
def test_reading_through_a_link_counts_as_reading_the_file() -> None:
    agent = Agent({"real/a.py": "old"})
    agent.files.symlink("link", "real")
    agent.files.symlink("alias.py", "real/a.py")

    agent.read("alias.py")

    assert agent.write("real/a.py") == ""
    assert agent.write("link/a.py") == ""


def test_a_link_changed_to_another_file_gives_no_knowledge_of_that_file() -> None:
    agent = Agent({"a.py": "a", "b.py": "b"})
    agent.files.symlink("alias.py", "a.py")
    agent.read("alias.py")
    agent.files.delete("alias.py")
    agent.files.symlink("alias.py", "b.py")

    assert agent.write("alias.py") == f"alias.py {UNREAD}"


@pytest.mark.behaviour(56)
def test_a_new_file_may_be_written_and_then_changed() -> None:
    agent = Agent()

    assert agent.write("new/a.py", "one") == ""
    assert agent.write("new/a.py", "two") == ""


@pytest.mark.behaviour(57)
def test_a_failed_read_does_not_count() -> None:
    agent = Agent({"a.py": "old"})

    def fail() -> None:
        raise FilesystemError("no luck")

    with pytest.raises(FilesystemError):
        agent.call(Use(reads=("a.py",)), fail)

    assert agent.write("a.py") == f"a.py {UNREAD}"


@pytest.mark.parametrize("path", ["missing.py", "src", "dangling", "loop"])
def test_paths_that_are_not_files_are_left_to_the_handler(path: str) -> None:
    agent = Agent({"src/a.py": "old"})
    agent.files.symlink("dangling", "nowhere")
    agent.files.symlink("loop", "loop")

    with agent.context() as context:
        decision = POLICY.check(USE, Use(writes=(path,)), context=context)
        POLICY.on_result(USE, Use(reads=(path,)), ToolResult.ok(None), context=context)

    assert decision == PolicyDecision.allow()
    assert agent.session[KnownFiles].latest() is None


# Changes by other programs


@pytest.mark.behaviour(58)
def test_a_file_changed_since_it_was_read_must_be_read_again() -> None:
    agent = Agent({"a.py": "old"})
    agent.read("a.py")
    agent.files.write_text("a.py", "by a human")

    assert agent.write("a.py") == f"a.py {CHANGED}"
    agent.read("a.py")
    assert agent.write("a.py") == ""


def test_a_file_that_was_changed_and_changed_back_is_still_known() -> None:
    agent = Agent({"a.py": "old"})
    agent.read("a.py")
    agent.files.write_text("a.py", "by a human")
    agent.files.write_text("a.py", "old")

    assert agent.write("a.py") == ""


def test_a_file_deleted_by_another_program_may_be_created_again() -> None:
    agent = Agent({"a.py": "old"})
    agent.read("a.py")
    agent.files.delete("a.py")

    assert agent.write("a.py") == ""


@pytest.mark.behaviour(58)
def test_a_file_that_an_undo_restored_must_be_read_again() -> None:
    agent = Agent({"src/a.py": "old", "src/b.py": "old"})
    agent.read("src/a.py")
    agent.read("src/b.py")

    restored = WorkspaceRestored(reason="undo", paths=("src/a.py",), at=datetime.now(UTC))
    agent.session.dispatch(restored)
    agent.session.dispatch(restored)

    assert agent.write("src/a.py") == f"src/a.py {UNREAD}"
    assert agent.write("src/b.py") == ""


# Moving and deleting


@pytest.mark.behaviour(55)
@pytest.mark.parametrize(
    ("source", "destination", "path"),
    [
        ("src/a.py", "b.py", "b.py"),
        ("src", "lib/deep", "lib/deep/a.py"),
        ("link/a.py", "link/b.py", "src/b.py"),
    ],
)
def test_a_moved_file_stays_known(source: str, destination: str, path: str) -> None:
    agent = Agent({"src/a.py": "old", "srcs/a.py": "of a neighbour"})
    agent.files.symlink("link", "src")
    agent.read("src/a.py")
    agent.read("srcs/a.py")

    assert agent.move(source, destination) == ""

    assert agent.write(path) == ""
    assert agent.write("srcs/a.py") == ""


def test_an_unread_file_stays_unread_after_a_move() -> None:
    agent = Agent({"a.py": "old"})

    assert agent.move("a.py", "b.py") == ""
    assert agent.write("b.py") == f"b.py {UNREAD}"


def test_the_old_path_of_a_moved_file_is_no_longer_known() -> None:
    agent = Agent({"a.py": "same"})
    agent.read("a.py")
    agent.move("a.py", "b.py")
    agent.files.write_text("a.py", "same")

    assert agent.write("a.py") == f"a.py {UNREAD}"


def test_two_files_may_be_swapped_in_one_call() -> None:
    agent = Agent({"a.py": "a", "b.py": "b"})
    agent.read("a.py")

    def swap() -> None:
        agent.files.move("a.py", "c.py")
        agent.files.move("b.py", "a.py")
        agent.files.move("c.py", "b.py")

    assert agent.call(Use(moves=(("a.py", "b.py"), ("b.py", "a.py"))), swap) == ""

    assert agent.write("b.py") == ""
    assert agent.write("a.py") == f"a.py {UNREAD}"


def test_a_file_moved_and_changed_in_one_call_must_be_known_at_its_old_path() -> None:
    agent = Agent({"a.py": "old"})
    rename = Use(moves=(("a.py", "b.py"),), writes=("b.py",))

    def work() -> None:
        agent.files.move("a.py", "b.py")
        agent.files.write_text("b.py", "new")

    assert agent.call(rename, work) == f"b.py {UNREAD}"
    agent.read("a.py")
    assert agent.call(rename, work) == ""
    assert agent.write("b.py") == ""


def test_an_unread_file_may_be_deleted_but_not_one_that_changed_since() -> None:
    agent = Agent({"a.py": "old", "b.py": "old"})
    agent.read("b.py")
    agent.files.write_text("b.py", "by a human")

    assert agent.delete("a.py") == ""
    assert agent.delete("b.py") == f"b.py {CHANGED}"
    agent.read("b.py")
    assert agent.delete("b.py") == ""


def test_a_directory_with_a_known_file_that_changed_is_not_deleted() -> None:
    agent = Agent({"src/a.py": "old", "src/b.py": "old", "src/c.py": "old"})
    for name in "abc":
        agent.read(f"src/{name}.py")
    agent.files.write_text("src/b.py", "by a human")
    agent.files.delete("src/c.py")

    assert agent.delete("src") == f"src/b.py {CHANGED}"
    assert agent.delete(".") == f"src/b.py {CHANGED}"


def test_a_deleted_file_is_forgotten() -> None:
    agent = Agent({"src/a.py": "same"})
    agent.read("src/a.py")
    agent.delete("src")
    agent.files.write_text("src/a.py", "same")

    assert agent.write("src/a.py") == f"src/a.py {UNREAD}"


def test_deleting_through_a_cyclic_link_is_left_to_the_handler() -> None:
    agent = Agent()
    agent.files.symlink("loop", "loop")

    assert agent.call(Use(deletes=("loop/a.py",))) == ""


def test_deleting_a_link_keeps_the_knowledge_of_its_target() -> None:
    agent = Agent({"a.py": "old"})
    agent.files.symlink("link.py", "a.py")
    agent.read("link.py")

    assert agent.delete("link.py") == ""
    assert agent.write("a.py") == ""


# The text of a refusal


def test_a_refusal_names_every_file_up_to_five() -> None:
    paths = tuple(f"{n}.py" for n in range(8))
    agent = Agent(dict.fromkeys(paths, "old"))

    assert agent.call(Use(writes=paths[:2])) == f"0.py {UNREAD}. 1.py {UNREAD}"
    assert agent.call(Use(writes=paths)).endswith(f"4.py {UNREAD}. The same goes for 3 more files")
    assert agent.call(Use(writes=paths[:6])).endswith("The same goes for 1 more file")


@pytest.mark.behaviour(27)
def test_a_refusal_changes_nothing() -> None:
    agent = Agent({"a.py": "old", "b.py": "old"})
    agent.read("b.py")
    session, files = agent.session.snapshot(), agent.files.snapshot()

    assert agent.call(Use(reads=("b.py",), writes=("a.py",), deletes=("b.py",)))

    assert agent.session.snapshot().state is session.state
    assert agent.files.snapshot() is files


@pytest.mark.behaviour(21)
def test_without_a_filesystem_calls_with_files_are_refused() -> None:
    agent = Agent({"a.py": "old"})

    with agent.context(bound=False) as context:
        refused = POLICY.check(USE, Use(reads=("a.py",)), context=context)
        free = POLICY.check(USE, Use(), context=context)
        POLICY.on_result(USE, Use(reads=("a.py",)), ToolResult.ok(None), context=context)

    assert not refused.allowed
    assert "no filesystem is bound" in refused.reason
    assert free.allowed
    assert agent.session[KnownFiles].latest() is None


def test_an_invalid_path_is_refused_with_its_hint() -> None:
    assert "leads outside the workspace. Use a path relative" in Agent().write("../etc/passwd")


# State


@pytest.mark.behaviour(57)
def test_known_files_are_rolled_back_with_the_session() -> None:
    agent = Agent({"a.py": "old", "b.py": "old"})
    agent.read("a.py")
    before = agent.session.snapshot()
    agent.read("b.py")

    agent.session.restore(before)

    assert agent.write("a.py") == ""
    assert agent.write("b.py") == f"b.py {UNREAD}"


@pytest.mark.behaviour(57)
def test_known_files_survive_dumping_and_loading() -> None:
    agent, later = Agent({"a.py": "old", "b.py": "old"}), Agent({"a.py": "old", "b.py": "old"})
    agent.read("a.py")

    later.session.load_state(agent.session.dump_state())

    assert later.write("a.py") == ""
    assert later.write("b.py") == f"b.py {UNREAD}"


def test_policies_of_one_session_share_the_known_files() -> None:
    agent = Agent({"a.py": "old"})
    agent.read("a.py")
    agent.policy = ReadBeforeWritePolicy()
    agent.policy.install(agent.session)

    assert agent.write("a.py") == ""


def test_a_call_without_new_knowledge_does_not_change_the_state() -> None:
    agent = Agent({"a.py": "old"})
    agent.read("a.py")
    before = agent.session.snapshot()
    agent.read("a.py")

    assert agent.session.snapshot().state is before.state


def test_a_tool_without_files_is_allowed() -> None:
    agent = Agent()
    seen: list[FilesUsed] = []
    agent.session.dispatcher.subscribe(FilesUsed, seen.append)

    assert agent.call(Upload(), tool=UPLOAD) == ""
    assert seen == []


# Foreign tools


@pytest.mark.parametrize(
    ("policy", "tools", "reason"),
    [
        (POLICY, (UPLOAD,), "covers no tool here"),
        (ReadBeforeWritePolicy(write_tools={"uplaod": "targets"}), (UPLOAD,), "uplaod"),
        (ReadBeforeWritePolicy(read_tools={"upload": "source"}), (), "upload"),
    ],
)
def test_a_policy_that_could_never_refuse_is_refused_when_the_prompt_is_built(
    policy: ReadBeforeWritePolicy, tools: tuple[Tool[Any, Any], ...], reason: str
) -> None:
    section = MarkdownSection(title="A", template="", tools=tools, policies=(policy,))
    with pytest.raises(PromptValidationError, match=reason) as caught:
        Prompt(name="p", sections=[section, VfsToolsSection(MemoryFilesystem())])
    assert caught.value.section_path == ("a",)


def test_a_policy_above_a_section_of_file_tools_is_accepted() -> None:
    below = VfsToolsSection(MemoryFilesystem(), policies=())
    above = MarkdownSection(title="A", template="", children=[below], policies=(POLICY,))
    assert Prompt(name="p", sections=[above]).render().tools


def test_files_of_foreign_tools_are_found_in_their_path_parameters() -> None:
    policy = ReadBeforeWritePolicy(
        read_tools={"upload": "source"}, write_tools={"upload": "targets"}
    )
    agent = Agent({"a.py": "old", "b.py": "old"}, policy)

    assert agent.call(Upload("./a.py", ("b.py",)), tool=UPLOAD) == f"b.py {UNREAD}"
    assert agent.call(Upload("a.py"), tool=UPLOAD) == ""
    assert agent.call(Upload(None, ("a.py",)), tool=UPLOAD) == ""


def test_a_path_parameter_that_does_not_exist_is_refused() -> None:
    agent = Agent(policy=ReadBeforeWritePolicy(write_tools={"upload": "path"}))

    assert "no field 'path'" in agent.call(Upload("a.py"), tool=UPLOAD)
