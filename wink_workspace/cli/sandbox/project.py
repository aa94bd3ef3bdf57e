"""The commands ``init`` and ``trust``, and the settings of the project that a command works on.

Only a person at a terminal is asked to confirm what a project's file asks for. Everywhere else it
is left out, and one line on standard error names it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from wink_workspace.cli.screen.command_context import (
    CommandContext,
    JsonOption,
    print_json,
    split_name,
)
from wink_workspace.cli.screen.display import printable
from wink_workspace.counts import counted, sized
from wink_workspace.environment import leave_out_programs
from wink_workspace.errors import UsageError

if TYPE_CHECKING:
    from wink_workspace.project import ProjectFile, ProjectSettings, SandboxRequest, Settings
    from wink_workspace.sandbox import Finding


def for_place(
    context: CommandContext,
    workspace: str | None,
    source: Path | None,
    given: Settings,
    *,
    asks: bool = False,
) -> CommandContext:
    """*context* with the settings for a workspace, or for the directory *source*, here by default.

    See ``for_project``.
    """
    if workspace is not None:
        return for_workspace(context, workspace, given, asks=asks)
    return for_project(context, source or Path(), given, asks=asks)


def for_workspace(
    context: CommandContext, name: str, given: Settings, *, asks: bool = False
) -> CommandContext:
    """*context* with the settings for the source of the workspace *name*; see ``for_project``."""
    return for_project(context, source_of(context, name), given, asks=asks)


def source_of(context: CommandContext, name: str) -> Path:
    """The directory that is the source of the workspace *name*, or that has none yet."""
    if name.startswith("/"):
        return Path(name)
    workspace, _ = split_name(name)
    return Path(context.storage.folder(workspace).info().source)


def for_project(
    context: CommandContext,
    source: Path,
    given: Settings | None = None,
    *,
    asks: bool = False,
    needs_all: bool = False,
) -> CommandContext:
    """*context* with the settings for the project in *source*.

    One line on standard error says what of the project's own file applies.

    Args:
        context: The context so far.
        source: The project's directory.
        given: What flags set.
        asks: Whether a user at a terminal is asked to confirm what widens a setting.
        needs_all: Whether settings that stay unconfirmed are an error.

    Raises:
        UsageError: If a file of settings cannot be used.
    """
    from wink_workspace.project import load_settings

    context = outside(context, source)
    loaded = load_settings(source, context.environment, given)
    if asks and loaded.denied and context.can_ask and not context.environment.is_ci:
        assert loaded.file is not None  # noqa: S101 - it has the requests
        from wink_workspace.cli.screen.console import ask_yes_no

        _print_requests(context, loaded.file, loaded.denied)
        if ask_yes_no("Apply these settings, now and later?"):
            _confirm(context, loaded)
            loaded = load_settings(source, context.environment, given)
    if needs_all and loaded.denied:
        raise UsageError(
            f"the settings of {source} are not confirmed: {'; '.join(map(str, loaded.denied))}",
            hint=f"Confirm them with `wink-workspace trust {shlex.quote(str(source))}`, in a"
            " script with its option --yes.",
        )
    if summary := loaded.summary():
        context.err.print(printable(summary), markup=False)
    file = loaded.file
    confirmed = None if file is None or file.asked.recipe is None else file.digests
    return replace(context, settings=loaded.settings, source=source, confirmed=confirmed)


def outside(context: CommandContext, source: Path) -> CommandContext:
    """*context*, after which this process finds no program of the project in *source*."""
    leave_out_programs(source)
    return replace(context, environment=context.environment.outside(source))


def settings_findings(context: CommandContext, source: Path) -> Iterator[Finding]:
    """For ``doctor``: the network list of commands for *source*, then each other setting."""
    from wink_workspace.project import KEYS, load_settings
    from wink_workspace.sandbox import Finding

    try:
        loaded = load_settings(source, context.environment)
    except UsageError as error:
        yield Finding("project", "settings", "missing", error.message, error.hint)
        return
    yield _network_finding(loaded)
    for name, origin in loaded.origins.items():
        if name not in _OF_NETWORK:
            shown = _shown_value(getattr(loaded.settings, name))
            yield Finding("project", ".".join(KEYS[name].path), "good", f"{shown} ({origin})")
    if loaded.denied:
        listed = "; ".join(map(str, loaded.denied))
        command = f"wink-workspace trust {shlex.quote(str(source))}"
        yield Finding("project", "not confirmed", "limited", listed, f"To confirm: `{command}`.")


_OF_NETWORK: Final = ("network", "private", "secrets")


def _network_finding(loaded: ProjectSettings) -> Finding:
    """What commands can reach, and which settings say so."""
    from wink_workspace.sandbox import Finding

    private, secrets = loaded.settings.private or (), loaded.settings.secrets or {}
    parts = [*(loaded.settings.network or ())]
    parts += [f"{each.host} (with the secret {name})" for name, each in secrets.items()]
    if not parts:
        return Finding("project", "network", "good", "none")
    text = f"commands reach only {', '.join(parts)}"
    if private:
        text += f"; private addresses allowed for {', '.join(private)}"
    origins = dict.fromkeys(loaded.origins[name] for name in _OF_NETWORK if name in loaded.origins)
    return Finding("project", "network", "good", f"{text} ({', '.join(origins)})")


def _shown_value(value: object) -> str:
    """A setting on one line; of a table only the names."""
    if isinstance(value, Mapping):
        return ", ".join(map(str, cast("Mapping[str, object]", value)))
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[object, ...]", value))) or "none"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def init(
    context: CommandContext,
    directory: Annotated[Path, typer.Argument(help="The project; this directory by default.")] = (
        Path()
    ),
    json: JsonOption = False,
) -> None:
    """Write a wink-workspace.toml for a project, from the files that it has.

    An existing file is not changed. The new one counts as confirmed.
    """
    from wink_workspace.project import PROJECT_FILE, ProjectFile, detect, load_settings

    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory", hint="Name an existing directory.")
    detected = detect(directory)
    path, text = directory / PROJECT_FILE, detected.toml()
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(
            f"{path} exists already", hint="Edit it, or delete it and run init again."
        ) from error
    loaded = load_settings(directory, context.environment)
    written = None if loaded.file is None else loaded.file.files[0].content
    if written != text.encode() or not isinstance(loaded.file, ProjectFile):
        raise UsageError(
            f"another process has changed {path}", hint="Confirm it with wink-workspace trust."
        )
    _confirm(context, loaded)
    if json:
        print_json({"path": str(path), "found": detected.found, "content": text})
        return
    for each in detected.found:
        context.out.print(printable(each), markup=False)
    if not detected.found:
        context.out.print("nothing was found that needs a setting", markup=False)
    context.out.print(f"{printable(str(path))} written and confirmed:\n", markup=False)
    context.out.print(printable(text), markup=False, end="")


def trust(
    context: CommandContext,
    directory: Annotated[Path, typer.Argument(help="The project; this directory by default.")] = (
        Path()
    ),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Confirm without asking.")] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Withdraw the confirmation instead.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Show what a project's wink-workspace.toml asks for, and confirm it.

    A change of this file, or of a file that it names, needs a new confirmation. If the .git of the
    project leads to another directory, as that of a linked working tree does, this is confirmed,
    too. The exit code is 1 if something stays unconfirmed.
    """
    from wink_workspace.ledger import outside_repositories
    from wink_workspace.project import Confirmations, load_settings

    confirmations = Confirmations(context.environment.state_dir)
    if revoke:
        was_confirmed = confirmations.revoke(directory)
        context.out.print("withdrawn" if was_confirmed else "nothing was confirmed")
        return 0
    loaded = load_settings(directory, context.environment)
    outside = outside_repositories(directory)
    if loaded.file is None and not outside:
        raise UsageError(
            f"{directory} has no wink-workspace.toml", hint="Write one with wink-workspace init."
        )
    source = directory.resolve()
    is_new = bool(loaded.denied) or confirmations.git_links().get(source, ()) != outside
    is_confirmed = not is_new or yes
    if not json:
        if loaded.file is not None:
            _print_requests(context, loaded.file, [*loaded.granted, *loaded.denied])
        for each in outside:
            text = f"git of {source} uses {each}; commands would see its newest commits"
            context.err.print(printable(text), markup=False)
        if not is_confirmed and context.can_ask and not context.environment.is_ci:
            from wink_workspace.cli.screen.console import ask_yes_no

            is_confirmed = ask_yes_no("Confirm this?")
    if is_confirmed and loaded.denied:
        _confirm(context, loaded)
    if is_confirmed and outside:
        confirmations.confirm_git(source, outside)
    if json:
        requests = sorted((*loaded.granted, *loaded.denied), key=lambda each: each.line)
        listed = [{"line": each.line, "text": each.text} for each in requests]
        git = [str(each) for each in outside]
        print_json({"source": str(source), "asks": listed, "git": git, "confirmed": is_confirmed})
    elif is_confirmed:
        context.err.print("confirmed", markup=False)
    else:
        context.err.print("not confirmed; wink-workspace trust --yes confirms it", markup=False)
    return 0 if is_confirmed else 1


def _confirm(context: CommandContext, loaded: ProjectSettings) -> None:
    from wink_workspace.project import Confirmations

    assert loaded.file is not None  # noqa: S101 - it has the requests
    requests = [each.text for each in (*loaded.granted, *loaded.denied)]
    Confirmations(context.environment.state_dir).confirm(loaded.file, requests)


def _print_requests(
    context: CommandContext, file: ProjectFile, requests: Iterable[SandboxRequest]
) -> None:
    """Everything that is to be confirmed: each request in full, and each file that is named."""
    listed = sorted(requests, key=lambda each: each.line)
    what = counted(len(listed), "setting")
    context.err.print(
        printable(f"{file.toml.name} of {file.source} asks for {what} beyond yours:"), markup=False
    )
    for request in listed:
        context.err.print(f"  {request}", markup=False)
    for each in file.files[1:]:
        size = sized(len(each.content))
        context.err.print(printable(f"  {each.path}: {size}, SHA-256 {each.digest}"), markup=False)
