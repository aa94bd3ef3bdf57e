"""The sections of the sandboxes that run commands."""

from __future__ import annotations

from typing import ClassVar, Final, Unpack

from wink_workspace.prompt import ReadBeforeWritePolicy, SectionOptions
from wink_workspace.sandbox.bubblewrap import BubblewrapConfig
from wink_workspace.sandbox.commands.command_config import CommandConfig
from wink_workspace.sandbox.network import INTERNAL_DOMAIN
from wink_workspace.sandbox.podman import PodmanConfig

from .file_operations import file_tools
from .file_results import FileToolLimits
from .sandbox_section import CommandLimits, SandboxSection, command_tools
from .service_section import service_tools
from .vfs import FILE_SUMMARY, file_guidance


class _CommandSection(SandboxSection):
    """Commands and Python in a sandbox with the workspace's files.

    Bind a workspace's resources to the prompt: its ``Sandbox`` runs the commands. A prompt
    without one raises ``PromptRenderError`` when it is rendered.

    Args:
        config: The image and the limits; by default those of the workspace, or the defaults.
        title: The heading.
        files: Whether the section includes the file tools; pass ``False`` if another one does.
        services: Whether the section includes the tools for services.
        prefix: A prefix of the name of every tool and of the default key.
        rollback_on_nonzero_exit: Whether a command with another exit code than 0 fails its call,
            so that its changes are undone.
        limits: Limits of each call of a file tool.
        options: As for ``Section``. ``key`` is ``sandbox`` by default. ``policies`` is, with file
            tools, a ``ReadBeforeWritePolicy``; use ``policies=()`` for none.
    """

    _config_class: ClassVar[type[CommandConfig]]
    _place: ClassVar[str]
    _where: ClassVar[str]

    def __init__(
        self,
        config: CommandConfig | None = None,
        *,
        title: str = "Sandbox",
        files: bool = True,
        services: bool = True,
        prefix: str = "",
        rollback_on_nonzero_exit: bool = False,
        limits: FileToolLimits | None = None,
        **options: Unpack[SectionOptions[None]],
    ) -> None:
        limits = limits or FileToolLimits()
        policies = options.get("policies")
        if policies is None:
            policies = (ReadBeforeWritePolicy(),) if files else ()
        options["policies"] = policies
        options["key"] = options.get("key") or f"{prefix}sandbox"
        known = config or self._config_class()
        guidance = _guidance(
            known, prefix, self._place, rolls_back=rollback_on_nonzero_exit, services=services
        )
        tools = command_tools(
            CommandLimits(
                timeout_s=known.timeout_s,
                longest_timeout_s=known.longest_timeout_s,
                output_bytes=known.output_bytes,
                stdin_bytes=known.stdin_bytes,
            ),
            prefix=prefix,
            with_services=services,
            open_world=bool(known.network),
            rollback_on_nonzero_exit=rollback_on_nonzero_exit,
        )
        if services:
            tools = (*tools, *service_tools(prefix=prefix))
        if files:
            file_text = file_guidance(
                prefix=prefix,
                limits=limits,
                filesystem_limits=None,
                policies=policies,
            )
            guidance = f"{guidance}\n{file_text}"
            tools = (*file_tools(prefix=prefix, limits=limits), *tools)
        summary = _SUMMARY.format(
            p=prefix,
            where=self._where,
            network=_network_guidance(known),
            nonzero=_UNDOES if rollback_on_nonzero_exit else _KEEPS,
        )
        if services:
            summary += f" `{prefix}start_service` starts what outlives its call."
        if files:
            summary += "\n\n" + FILE_SUMMARY.format(p=prefix)
        options["summary"] = options.get("summary") or summary
        # Without a configuration, a workspace runs commands in a container.
        bound = config if self._config_class is PodmanConfig else known
        super().__init__(bound, guidance, tools=tools, title=title, **options)


class PodmanSandboxSection(_CommandSection):
    """Commands and Python in a container with the workspace's files; see its base class."""

    _config_class = PodmanConfig
    _where = "in a container with the same files, at `/workspace`"
    _place = """\
Commands run in a separate container, with the same files as the file tools. The root of the
workspace is `/workspace`; the rest of the system is read-only."""


class BubblewrapSandboxSection(_CommandSection):
    """Commands and Python with the programs of this machine; see its base class."""

    _config_class = BubblewrapConfig
    _where = "with the programs of this machine and the same files, at the path of the project"
    _place = """\
Commands run in a sandbox, with the programs of this machine and the same files as the file tools.
The root of the workspace has the path of the project, and is also `/workspace`; the rest of the
system is read-only, and other files of the home are not there."""


def _guidance(
    config: CommandConfig, prefix: str, place: str, *, rolls_back: bool, services: bool
) -> str:
    declared = ", ".join(f"`{each.name}`" for each in config.services)
    about_services = _SERVICES.format(
        p=prefix,
        n_services=config.n_services,
        known=f"\nKnown services, which start by their name alone: {declared}." if declared else "",
    )
    return _GUIDANCE.format(
        p=prefix,
        place=place,
        services=about_services if services else "",
        network=_network_guidance(config),
        nonzero=_UNDOES if rolls_back else _KEEPS,
        timeout_s=config.timeout_s,
        longest_timeout_s=config.longest_timeout_s,
        output_kib=config.output_bytes // 1_024,
        memory_mib=config.memory_bytes // 1_048_576,
        cpus=config.cpus,
        n_processes=config.n_processes,
        tmp_mib=config.tmp_bytes // 1_048_576,
        file_mib=config.file_bytes // 1_048_576,
        workspace_mib=config.workspace_bytes // 1_048_576,
    )


def _network_guidance(config: CommandConfig) -> str:
    rules = config.network
    if not rules:
        return "There is no network."
    lines = ", ".join(f"`{line}`" for line in rules.lines())
    services = "".join(
        f" `http://{secret.name}.{INTERNAL_DOMAIN}` leads to {secret.target}, with its secret."
        for secret in rules.secrets
    )
    return (
        "The network is closed except for this list, which a proxy applies (the variables"
        f" `http_proxy` and `https_proxy` name it): {lines}.{services} Package clients are"
        " configured for it. Other hosts are refused; only the user can change the list."
    )


_KEEPS: Final = "A command with another exit code than 0 is a normal result: its changes are kept."
_UNDOES: Final = "If a command ends with another exit code than 0, its changes are undone."

_SERVICES: Final = """
A service outlives its call, such as a development server: `{p}start_service` starts one and waits
until it is ready, `{p}service_logs` shows its output, `{p}stop_service` ends it. Commands of later
calls reach its port on 127.0.0.1. A service sees the present files, but can change only the derived
directories that it declares. Starting and stopping is not undone when a call fails. At most
{n_services} services run at a time.{known}
"""

_SUMMARY: Final = """\
`{p}shell_execute` and `{p}evaluate_python` run {where}; each call is a new shell or interpreter, \
without questions. {network} Only the \
workspace is kept; processes end with their command. {nonzero}"""

_GUIDANCE: Final = """\
{place}

- `{p}shell_execute` runs one or more lines of shell. Each call starts a new shell: working
  directory, variables and functions of earlier calls are lost. Commands cannot ask questions, so
  use options such as `--yes`.
- `{p}evaluate_python` runs a Python program in a new interpreter; print what you want to see.
  An error is returned as a traceback.

{network} Commands run as an ordinary user without privileges. All processes of a command are
killed when it ends, and `/tmp` is emptied: only the workspace is kept. Where `.git` is a
file, git shows the newest commits of the project; what a command commits or stages ends with it.
{nonzero}
If a limit ends a command, its changes are undone.
{services}
Limits: {timeout_s:g} seconds per command, or `timeout_s` up to {longest_timeout_s:g}; \
{output_kib:,} KiB of each
stream are shown, and a line says where the rest is; {memory_mib:,} MiB of memory, \
{cpus:g} processors,
{n_processes:,} processes, {tmp_mib:,} MiB in `/tmp`, {file_mib:,} MiB per file, \
{workspace_mib:,} MiB in the workspace.
"""
