"""The report of a sandbox's isolation: which layers are active, and which probes were stopped.

A *layer* is one mechanism, such as a seccomp filter or an empty network namespace. A *probe*
attempts, from inside the sandbox, something that the layers forbid. If a probe succeeds, the
sandbox refuses to run anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Layer:
    """One mechanism: whether it is active; if not, ``detail`` has the reason and a remedy."""

    name: str
    is_active: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """One attempt to break out. ``detail`` is what the attempt returned or which error it got."""

    name: str
    was_stopped: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """The layers of one sandbox, and the probes that were made."""

    layers: tuple[Layer, ...] = ()
    probes: tuple[Probe, ...] = ()

    @property
    def holes(self) -> tuple[Probe, ...]:
        """The probes that succeeded."""
        return tuple(probe for probe in self.probes if not probe.was_stopped)

    @property
    def missing(self) -> tuple[Layer, ...]:
        """The layers that are not active."""
        return tuple(layer for layer in self.layers if not layer.is_active)


# --------------------------------------------------------------------------------------- findings


State = Literal["good", "limited", "missing"]
"""``limited``: sandboxes work, but with fewer features. ``missing``: some do not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        part: The backend that needs it, such as ``podman``.
        name: What was checked.
        state: The result.
        detail: What the check found.
        fix: What the user can do; empty if the state is ``good``.
    """

    part: str
    name: str
    state: State
    detail: str
    fix: str = ""
