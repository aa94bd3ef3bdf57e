"""Shared helpers: a small workspace in memory with the test's own tools, and calls by name."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from wink_workspace.adapters import ScriptedAdapter
from wink_workspace.filesystem import Filesystem, MemoryFilesystem
from wink_workspace.prompt import (
    MarkdownSection,
    Prompt,
    Section,
    Tool,
    ToolContext,
    ToolPolicy,
    ToolResult,
)
from wink_workspace.runtime import (
    CallOutcome,
    MemoryJournal,
    ToolCall,
    ToolExecutor,
    transactions_of,
)
from wink_workspace.session import Session, ToolInvoked


@dataclass(frozen=True, slots=True)
class Note:
    """A STATE slice for tests: one line of text."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """Tool parameters for tests: one line of text."""

    text: str = ""


def tool(handler: Callable[..., ToolResult[Any]], *, name: str = "act") -> Tool[Text, None]:
    """Return a tool that takes a ``Text`` and returns the result of *handler*.

    *handler* is wrapped in an annotated function, so it needs no annotations itself.
    """

    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        return handler(params, context=context)

    return Tool[Text, None](name=name, description=f"Test tool {name}", handler=handle)


@dataclass
class SmallWorkspace:
    """A prompt with its session, files and executor."""

    prompt: Prompt[Any]
    session: Session
    filesystem: MemoryFilesystem
    executor: ToolExecutor

    _ids = count(1)

    def call(
        self, name: str, arguments: Mapping[str, object] | str | None = None, /, **named: object
    ) -> CallOutcome:
        """Run a call by name; pass arguments as a mapping, as JSON text, or as keywords."""
        given = arguments if arguments is not None else named
        return self.executor.execute(ToolCall.of(name, given, id=f"call-{next(self._ids)}"))

    @property
    def records(self) -> tuple[ToolInvoked, ...]:
        """Every ``ToolInvoked`` so far."""
        return self.session[ToolInvoked].all()

    @property
    def journal(self) -> MemoryJournal:
        """The session's journal."""
        journal = transactions_of(self.session).journal
        assert isinstance(journal, MemoryJournal)
        return journal

    def state(self) -> tuple[str, dict[str, object]]:
        """Return session and files as comparable values: everything that a rollback restores."""
        return (self.session.dump_state(), contents(self.filesystem))


def executor_of(prompt: Prompt[Any], session: Session, **options: Any) -> ToolExecutor:
    """Return an executor without a model, for *prompt* as it renders now."""
    return ToolExecutor(
        prompt=prompt,
        rendered_prompt=prompt.render(session=session),
        adapter=ScriptedAdapter(()),
        session=session,
        **options,
    )


@contextmanager
def small_workspace(
    *tools: Tool[Any, Any],
    sections: Sequence[Section[Any]] = (),
    files: Mapping[str, bytes | str] | None = None,
    policies: Sequence[ToolPolicy] = (),
    resources: Mapping[type[Any], object] | None = None,
    session: Session | None = None,
    filesystem: MemoryFilesystem | None = None,
    **executor_options: Any,
) -> Iterator[SmallWorkspace]:
    """Open a workspace with one section of *tools*, and *sections*, for the block."""
    filesystem = filesystem if filesystem is not None else MemoryFilesystem(files or {})
    session = session or Session()
    own = MarkdownSection(title="Tools", template="Use them.", tools=tools, policies=policies)
    prompt = Prompt(ns="tests", key="rig", name="rig", sections=[own, *sections])
    prompt.bind(resources={Filesystem: filesystem, **(resources or {})})
    prompt.install(session)
    with prompt.resources:
        executor = executor_of(prompt, session, **executor_options)
        yield SmallWorkspace(prompt, session, filesystem, executor)


def contents(filesystem: Filesystem) -> dict[str, object]:
    """Return kind, content and executable bit of every path."""
    found: dict[str, object] = {}
    for stat in filesystem.walk("."):
        data = filesystem.read_bytes(stat.path) if stat.kind == "file" else stat.target
        found[str(stat.path)] = (stat.kind.value, data, stat.executable)
    return found


def call_ok(agent: SmallWorkspace, name: str, **arguments: object) -> str:
    """Return the answer to a call, which must succeed."""
    outcome = agent.call(name, **arguments)
    assert outcome.result.success, outcome.text
    return outcome.text


def call_refused(agent: SmallWorkspace, name: str, **arguments: object) -> str:
    """Return the answer to a call, which must fail and change nothing."""
    before = contents(agent.filesystem)
    outcome = agent.call(name, **arguments)
    assert not outcome.result.success, outcome.text
    assert contents(agent.filesystem) == before
    return outcome.text


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bytes]]:
    """Put standard output and error on a terminal; the function ends it and returns all output."""
    keyboard, screen = os.openpty()
    shown = bytearray()

    def read() -> None:
        with os.fdopen(keyboard, "rb", buffering=0) as source, suppress(OSError):  # EIO at the end
            while data := source.read(65_536):
                shown.extend(data)

    reader = threading.Thread(target=read)
    with os.fdopen(screen, "w", encoding="utf-8") as stream:
        reader.start()
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)

        def read_all() -> bytes:
            monkeypatch.undo()
            stream.close()
            reader.join()
            return bytes(shown)

        yield read_all
