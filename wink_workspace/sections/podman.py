"""The Podman sandbox: its section, and its place in the registry of sandboxes."""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Unpack

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxError
from wink_workspace.prompt import ReadBeforeWritePolicy, SectionOptions
from wink_workspace.sandbox import Finding, Sandbox, SandboxBackend, SandboxImages, SandboxPlace
from wink_workspace.sandbox.podman import PodmanConfig

from .file_results import FileToolLimits
from .file_tools import file_tools
from .sandbox import CommandLimits, SandboxSection, command_tools
from .vfs import file_guidance

__all__ = ["PODMAN", "PodmanSandboxSection"]


class PodmanSandboxSection(SandboxSection):
    """Commands and Python in a container over the workspace's files.

    Bind a workspace's resources to the prompt: its ``Sandbox`` runs the commands. A prompt
    without one raises ``PromptRenderError`` when it is rendered.

    Args:
        config: The image and the limits; the default ones, or the workspace's, when omitted.
        title: The heading.
        files: Whether the section brings the file tools too; not if another one does.
        prefix: Put before the name of every tool and before the default key.
        rollback_on_nonzero_exit: Whether a command that ends otherwise than with 0 fails its
            call, so that what it did is undone.
        limits: How much of an answer of a file tool the model sees at once.
        options: As for ``Section``. ``key`` is ``sandbox`` when omitted, and ``policies``, if
            there are file tools, a ``ReadBeforeWritePolicy``; give ``policies=()`` for none.
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
            words = file_guidance(
                prefix=prefix,
                limits=limits,
                filesystem_limits=None,
                policies=policies,
            )
            guidance = f"{guidance}\n{words}"
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


_KEEPS: Final = (
    "A command that ends with another code than 0 is a result like any other: what it did stays."
)
_UNDOES: Final = (
    "A command that ends with another code than 0 has changed nothing: what it did is undone."
)

_GUIDANCE: Final = """\
Commands run in a container of their own, in the same files that the file tools see. The root
of the workspace is `/workspace`; the rest of the system can only be read.

- `{p}shell_execute` runs a line of shell, or several. Each call is a new shell: directories,
  variables and functions of one are gone in the next. Nobody can answer questions, so use
  options such as `--yes`.
- `{p}evaluate_python` runs a Python program in a new interpreter; print what you want to see.
  An error comes back as a traceback.

{network} You are an ordinary user without rights. What a command leaves running is
ended with it, and `/tmp` is emptied after each command: only the workspace lasts.
{nonzero}
One that is ended by a limit has changed nothing.

Limits: {timeout_s:g} seconds a command unless `timeout_s` says otherwise, {longest_timeout_s:g} \
at most; {output_kib:,} KiB
of each stream are shown, and a line says where the rest is; {memory_mib:,} MiB of memory, \
{cpus:g} processors,
{n_processes:,} processes, {tmp_mib:,} MiB in `/tmp`, {file_mib:,} MiB a file, {workspace_mib:,} \
MiB in all.
"""


def _create(
    place: SandboxPlace,
    *,
    config: PodmanConfig,
    environment: Environment | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Sandbox:
    from wink_workspace.sandbox.podman import PodmanSandbox

    return PodmanSandbox(place, config=config, environment=environment, clock=clock)


def _examine(environment: Environment) -> tuple[Finding, ...]:
    from wink_workspace.sandbox.podman.diagnosis import examine

    return examine(environment)


def _images(environment: Environment) -> SandboxImages:
    from wink_workspace.sandbox.podman.images import PodmanImages

    return PodmanImages(environment)


def _sweep(environment: Environment) -> tuple[str, ...]:
    """Remove the containers of dead processes; where there is no engine, there are none."""
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
"""The entry of the registry."""
