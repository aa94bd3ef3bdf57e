"""What confines foreign code, named layer by layer, with the proof that each one holds.

A *layer* is one mechanism (a seccomp filter, an empty network namespace). A *probe* tries from
inside what the layers forbid. A probe that succeeds is a hole: whoever opened the sandbox
refuses to run anything in it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["IsolationReport", "Layer", "Probe"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One mechanism: whether it is up, and if not, why and what would bring it up."""

    name: str
    is_up: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """One attempt to get out: ``was_stopped`` is what we want, ``detail`` how it was answered."""

    name: str
    was_stopped: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """All layers of one sandbox and all that was tried against them."""

    layers: tuple[Layer, ...] = ()
    probes: tuple[Probe, ...] = ()

    @property
    def holes(self) -> tuple[Probe, ...]:
        """The attempts that succeeded."""
        return tuple(probe for probe in self.probes if not probe.was_stopped)

    @property
    def missing(self) -> tuple[Layer, ...]:
        """The layers that are not up."""
        return tuple(layer for layer in self.layers if not layer.is_up)
