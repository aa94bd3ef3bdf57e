"""The start of a run of a model or a script, and of one that continues another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wink_workspace.cli.sandbox.sandbox_options import chosen_sandbox, configured
from wink_workspace.cli.screen.command_context import MODEL_VARIABLE, CommandContext
from wink_workspace.errors import UsageError
from wink_workspace.sandbox import NO_SANDBOX
from wink_workspace.workspace.runs.task_run import Run

from .run_limits import RunLimits, RunMeter, price_of
from .run_options import (
    NOTHING_TO_APPLY,
    SANDBOX_NEEDS_COPY,
    RunOptions,
    RunPlace,
    check_branch,
    open_place,
    refuse,
)

if TYPE_CHECKING:
    from wink_workspace.adapters import Message, ModelTurn, ProviderAdapter
    from wink_workspace.adapters.model import ModelEvent
    from wink_workspace.prompt import Section
    from wink_workspace.workspace import RecordedRun, RunAbout, Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun(RunPlace):
    """A run that can start."""

    run: Run
    record: RecordedRun
    conversation: tuple[Message, ...] = ()


def prepare(
    context: CommandContext,
    options: RunOptions,
    opened: ExitStack,
    on_event: Callable[[ModelEvent], None],
) -> tuple[PreparedRun, ProviderAdapter[None], RunMeter]:
    """The run, the adapter that takes its turns, and the meter of what it uses."""
    prepared: PreparedRun | None = None
    about: RunAbout | None = None
    if options.resume:
        prepared = _prepared(context, options, opened)
        about = prepared.record.about
        refuse(
            about.is_agent,
            f"the last run of {prepared.name} was one of an agent program",
            f"Continue it: --workspace {prepared.name} --agent NAME --resume.",
        )
    limits = RunLimits.of(options.given, context.settings_for(), about)
    name = _model_name(context, options, about)
    price = price_of(name, limits)
    model_settings = context.settings_for().of_model
    if about is not None:
        model_settings = model_settings | about.model_settings | options.given.of_model
    adapter = work_adapter(
        context,
        name or turns_of(options.script),
        limits,
        opened,
        model_settings=model_settings,
        on_event=on_event,
    )
    if prepared is None:
        prepared = _prepared(context, options, opened)
    else:
        prepared = _resumed(context, prepared, adapter, options.message)
    record = replace(prepared.record, about=limits.noted_in(prepared.record.about))
    record.keep_about()
    return replace(prepared, record=record), adapter, RunMeter(limits, price, record)


def _prepared(context: CommandContext, options: RunOptions, opened: ExitStack) -> PreparedRun:
    servers = _mcp_sections(context, opened)  # before anything is copied
    place = open_place(context, options, opened)
    workspace = place.workspace
    refuse(options.has_sandbox and place.is_in_place, *SANDBOX_NEEDS_COPY)
    refuse(options.apply and place.is_in_place, *NOTHING_TO_APPLY)
    check_branch(options, Path(workspace.info.source))
    record, conversation = _record(context, options, place)
    # In place, the changes of others before the run are not part of it.
    since = workspace.entry(record.about.after_entry) if place.is_in_place else None
    return PreparedRun(
        run=Run.in_workspace(
            workspace,
            task=record.about.task,
            sandbox=record.about.sandbox,
            config=configured(context, record.about.sandbox, image=options.image),
            changes=partial(
                workspace.changeset, since=since, include_ignored=options.include_ignored
            ),
            more_sections=servers,
        ),
        workspace=workspace,
        name=place.name,
        record=record,
        conversation=conversation,
    )


def _mcp_sections(context: CommandContext, opened: ExitStack) -> Sequence[Section[None]]:
    """The tools of the MCP servers in the settings, which end with *opened*."""
    from wink_workspace.project import mcp_sections

    return mcp_sections(context.settings_for(), context.environment.variables, opened)


def _record(
    context: CommandContext, options: RunOptions, place: RunPlace
) -> tuple[RecordedRun, tuple[Message, ...]]:
    """The record of the run, and its conversation so far."""
    from wink_workspace.workspace import RecordedRun, RunAbout

    if not options.resume:
        about = RunAbout(
            task=context.redact(options.task),
            model=_model_name(context, options) or "",
            sandbox=_sandbox(context, options, place),
            after_entry=place.workspace.head.number,
            model_settings=context.settings_for().of_model,
        )
        return RecordedRun.begin(place.folder, about), ()
    record = RecordedRun.newest(place.folder)
    if record is None:
        raise UsageError(f"{place.name} has no run to resume", hint="Start one with a task.")
    record.drop_half_turn()
    return record, () if options.message else record.conversation(place.workspace)


def _sandbox(context: CommandContext, options: RunOptions, place: RunPlace) -> str:
    """The name of the sandbox; one that only a file of settings names is for copies that stay."""
    if place.is_in_place or not place.name:
        return (options.sandbox or NO_SANDBOX) if options.has_sandbox else NO_SANDBOX
    return chosen_sandbox(context, context.settings_for().sandbox, image=options.image)


def recorded(
    options: RunOptions,
    prepared: PreparedRun,
    adapter: ProviderAdapter[None],
    meter: RunMeter,
    *,
    append: bool = False,
) -> ProviderAdapter[None]:
    """*adapter* with its turns recorded; with *append*, behind those in the file of --record."""
    from wink_workspace.adapters import ScriptRecorder

    record = prepared.record

    def keep(number: int, native: str | None) -> None:
        meter.keep(number - 1)  # this turn is not counted yet
        record.keep_native(number, native)

    adapter = ScriptRecorder(
        adapter, record.script, append=True, on_native=keep, on_summary=record.keep_summary
    )
    if options.record is not None:
        adapter = ScriptRecorder(adapter, options.record, append=append)
    return adapter


def turns_of(script: Path | None) -> tuple[ModelTurn, ...]:
    """The turns of the script that is played instead of a model."""
    from wink_workspace.adapters import load_script

    assert script is not None  # noqa: S101 - otherwise there is a model
    return load_script(script)


def work_adapter(
    context: CommandContext,
    model: str | Sequence[ModelTurn],
    limits: RunLimits,
    opened: ExitStack,
    *,
    model_settings: Mapping[str, object] | None = None,
    on_event: Callable[[ModelEvent], None] | None = None,
) -> ProviderAdapter[None]:
    """The adapter for the model of that name, or for the turns of a script."""
    settings: dict[str, Any] = {
        "limits": limits.of_loop(),
        "redact": context.redact,
        "traces_content": context.captures_content,
    }
    if not isinstance(model, str):
        from wink_workspace.adapters import ScriptedAdapter

        return ScriptedAdapter[None](model, **settings)
    from wink_workspace.adapters.model import ModelAdapter

    return opened.enter_context(
        ModelAdapter[None](
            model,
            environment=context.environment,
            settings=model_settings or context.settings_for().of_model,
            on_event=on_event,
            **settings,
        )
    )


def _model_name(
    context: CommandContext, options: RunOptions, about: RunAbout | None = None
) -> str | None:
    """The name of the model; ``None`` for a script."""
    if options.script is not None:
        return None
    return known_model(context, options.model or ("" if about is None else about.model))


def known_model(context: CommandContext, name: str | None) -> str:
    """The model *name*, or that of the settings; ``UsageError`` if there is none."""
    name = name or context.settings_for().model
    if not name:
        raise UsageError(
            "no model is named",
            hint=f"Give --model PROVIDER:NAME, such as anthropic:NAME, or set {MODEL_VARIABLE}.",
        )
    return name


def _resumed(
    context: CommandContext,
    prepared: PreparedRun,
    model: ProviderAdapter[None],
    message: str | None,
) -> PreparedRun:
    """The interrupted run, or the one that continues it, with its conversation."""
    record, conversation = prepared.record, prepared.conversation
    if message is not None:
        if record.is_finished:
            return continued(context, prepared, model, message)
        record.keep_message(context.redact(message))
        conversation = record.conversation(prepared.workspace)
    return replace(prepared, conversation=_in_format_of(model, record, conversation))


def _in_format_of(
    model: ProviderAdapter[None], record: RecordedRun, conversation: Sequence[Message]
) -> tuple[Message, ...]:
    """*conversation* with the turns that *model* made in the format of its provider."""
    if model.model_name != record.about.model:
        return tuple(conversation)
    return record.with_natives(conversation, model.load_native)


def continued(
    context: CommandContext, prepared: PreparedRun, model: ProviderAdapter[None], message: str
) -> PreparedRun:
    """The run that continues a finished one with a *message* of the user."""
    from wink_workspace.workspace import RecordedRun

    workspace = prepared.workspace
    about = about_next(context, prepared.record, workspace, message)
    following = RecordedRun.begin(prepared.folder, about)
    conversation = following.conversation(workspace)
    return replace(
        prepared,
        record=following,
        conversation=_in_format_of(model, following, conversation),
    )


def about_next(
    context: CommandContext, record: RecordedRun, workspace: Workspace, message: str
) -> RunAbout:
    """The start of a run that continues a finished one with a *message* of the user."""
    return replace(
        record.about,
        after_entry=workspace.head.number,
        follows=record.number,
        message=context.redact(message),
    )
