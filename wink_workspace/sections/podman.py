"""The Podman sandbox: its section, and its backend for the registry of sandboxes."""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Unpack

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxError
from wink_workspace.prompt import ReadBeforeWritePolicy, SectionOptions
from wink_workspace.sandbox import Finding, Sandbox, SandboxBackend, SandboxContext, SandboxImages
from wink_workspace.sandbox.podman import PodmanConfig

from .file_results import FileToolLimits
from .file_tools import file_tools
from .sandbox import CommandLimits, SandboxSection, command_tools
from .vfs import file_guidance

__all__ = ["PODMAN", "PodmanSandboxSection"]


class PodmanSandboxSection(SandboxSection):
    """Commands and Python in a container with the workspace's files.

    Bind a workspace's resources to the prompt: its ``Sandbox`` runs the commands. A prompt
    without one raises ``PromptRenderError`` when it is rendered.

    Args:
        config: The image and the limits; by default those of the workspace, or the defaults.
        title: The heading.
        files: Whether the section includes the file tools; pass ``False`` if another one does.
        prefix: A prefix of the name of every tool and of the default key.
        rollback_on_nonzero_exit: Whether a command with another exit code than 0 fails its call,
            so that its changes are undone.
        limits: Limits of each call of a file tool.
        options: As for ``Section``. ``key`` is ``sandbox`` by default. ``policies`` is, with file
            tools, a ``ReadBeforeWritePolicy``; use ``policies=()`` for none.
    """

    def __init__(
        self,
        config: PodmanConfig | None = None,
        *,
        title: str = "Sandbox",
        files: bool = True,
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
        known = config or PodmanConfig()
        guidance = _guidance(known, prefix, rolls_back=rollback_on_nonzero_exit)
        tools = command_tools(
            CommandLimits(
                timeout_s=known.timeout_s,
                longest_timeout_s=known.longest_timeout_s,
                output_bytes=known.output_bytes,
                stdin_bytes=known.stdin_bytes,
            ),
            prefix=prefix,
            open_world=known.network != "none",
            rollback_on_nonzero_exit=rollback_on_nonzero_exit,
        )
        if files:
            file_text = file_guidance(
                prefix=prefix,
                limits=limits,
                filesystem_limits=None,
                policies=policies,
            )
            guidance = f"{guidance}\n{file_text}"
            tools = (*file_tools(prefix=prefix, limits=limits), *tools)
        super().__init__(config, guidance, tools=tools, title=title, **options)


def _guidance(config: PodmanConfig, prefix: str, *, rolls_back: bool) -> str:
    return _GUIDANCE.format(
        p=prefix,
        network="There is no network." if config.network == "none" else "There is a network.",
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


_KEEPS: Final = "A command with another exit code than 0 is a normal result: its changes are kept."
_UNDOES: Final = "If a command ends with another exit code than 0, its changes are undone."

_GUIDANCE: Final = """\
Commands run in a separate container, with the same files as the file tools. The root of the
workspace is `/workspace`; the rest of the system is read-only.

- `{p}shell_execute` runs one or more lines of shell. Each call starts a new shell: working
  directory, variables and functions of earlier calls are lost. Commands cannot ask questions, so
  use options such as `--yes`.
- `{p}evaluate_python` runs a Python program in a new interpreter; print what you want to see.
  An error is returned as a traceback.

{network} Commands run as an ordinary user without privileges. All processes of a command are
killed when it ends, and `/tmp` is emptied: only the workspace is kept.
{nonzero}
If a limit ends a command, its changes are undone.

Limits: {timeout_s:g} seconds per command, or `timeout_s` up to {longest_timeout_s:g}; \
{output_kib:,} KiB of each
stream are shown, and a line says where the rest is; {memory_mib:,} MiB of memory, \
{cpus:g} processors,
{n_processes:,} processes, {tmp_mib:,} MiB in `/tmp`, {file_mib:,} MiB per file, \
{workspace_mib:,} MiB in the workspace.
"""


def _create(
    context: SandboxContext,
    *,
    config: PodmanConfig,
    environment: Environment | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Sandbox:
    from wink_workspace.sandbox.podman import PodmanSandbox

    return PodmanSandbox(context, config=config, environment=environment, clock=clock)


def _examine(environment: Environment) -> tuple[Finding, ...]:
    from wink_workspace.sandbox.podman.diagnosis import examine

    return examine(environment)


def _images(environment: Environment) -> SandboxImages:
    from wink_workspace.sandbox.podman.images import PodmanImages

    return PodmanImages(environment)


def _sweep(environment: Environment) -> tuple[str, ...]:
    """Remove the containers of dead processes; does nothing without an engine."""
    if shutil.which("podman", path=environment.variables.get("PATH")) is None:
        return ()
    from wink_workspace.sandbox.podman import PodmanService
    from wink_workspace.sandbox.podman.containers import sweep

    with suppress(SandboxError), closing(PodmanService(environment)) as service:
        return sweep(service)
    return ()


def _end_leftover(notes: Path) -> str:
    from wink_workspace.sandbox.podman.leftovers import end_leftover

    return end_leftover(notes, _remove)


def _remove(name: str) -> None:
    from wink_workspace.sandbox.podman.containers import remove
    from wink_workspace.sandbox.podman.service import shared_service

    remove(shared_service(Environment.from_os()), name)


PODMAN: Final = SandboxBackend(
    name="podman",
    config=PodmanConfig,
    section=lambda config: PodmanSandboxSection(config, files=False),
    create=_create,
    examine=_examine,
    images=_images,
    sweep=_sweep,
    end_leftover=_end_leftover,
)
"""The backend for the registry."""
