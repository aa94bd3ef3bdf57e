"""The state of a run as JSON documents: one for the run, one for each attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeVar, cast

from wink_workspace import serde
from wink_workspace.clock import Budget
from wink_workspace.errors import LedgerDamagedError, ParseError

from .budget import Spending
from .engine_protocol import AttemptResult, Cost

_VERSION: Final = 1

_T = TypeVar("_T")

Phase = Literal["waiting", "running", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What belongs to the whole run; ``chosen`` has numbers, each with the round to run.

    ``about`` is JSON that belongs to the program that began the run.
    """

    n: int
    seed: int
    begun_at: datetime
    branch: str
    origin: str
    budget: Budget
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])
    chosen: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptState:
    """One attempt; ``result`` is that of its last round that ended, with the time of all rounds.

    ``n_starts`` counts the workers of the present round. ``reserved`` counts as spent if the
    coordinator dies. ``begins_at`` is the number of the entry at which its first start began, and
    ``n_calls`` counts the calls after it, once it has ended.
    """

    phase: Phase = "waiting"
    epoch: int = 0
    round: int = 0
    n_starts: int = 0
    branch: str = ""
    parent: int = 0
    begins_at: int = 0
    n_calls: int = 0
    spent: Spending = Spending()  # noqa: RUF009 - frozen, so it may be shared
    reserved: Spending = Spending()  # noqa: RUF009 - likewise
    result: AttemptResult | None = None

    def waiting(
        self,
        *,
        round_: int | None = None,
        spent: Spending | None = None,
        n_starts: int | None = None,
    ) -> AttemptState:
        """To be started again, or for another round."""
        return replace(
            self,
            phase="waiting",
            round=self.round if round_ is None else round_,
            n_starts=self.n_starts if n_starts is None else n_starts,
            spent=self.spent if spent is None else spent,
            reserved=Spending(),
        )

    def running(self, *, epoch: int, branch: str, parent: int, begins_at: int) -> AttemptState:
        """Given to a worker."""
        return replace(
            self,
            phase="running",
            epoch=epoch,
            branch=branch,
            parent=parent,
            begins_at=begins_at,
            n_starts=self.n_starts + 1,
        )

    def ended(self, result: AttemptResult, *, spent: Spending, n_calls: int) -> AttemptState:
        """With the accepted result of its present round."""
        before_s = 0.0 if self.result is None else self.result.cost.duration_s
        duration_s = before_s + result.cost.duration_s
        return replace(
            self,
            phase="ended",
            n_starts=0,
            n_calls=n_calls,
            spent=spent,
            reserved=Spending(),
            result=replace(result, cost=replace(result.cost, duration_s=duration_s)),
        )

    def as_result(self) -> AttemptResult | None:
        """The result of its last round that ended, with the present branch and all it spent."""
        if self.result is None:
            return None
        return replace(
            self.result,
            cost=Cost(self.spent.usage, self.spent.usd, self.result.cost.duration_s),
            branch=self.branch,
            epoch=self.epoch,
            parent=self.parent,
        )


def state_content(state: RunState | AttemptState) -> dict[str, Any]:
    """The document of *state*."""
    dumped = serde.map_strings(serde.dump(state), serde.well_formed)  # errors name files
    return {"version": _VERSION, **cast("dict[str, Any]", dumped)}


def parse_state(kind: type[_T], content: Mapping[str, Any]) -> _T:
    """The state in a document; ``LedgerDamagedError`` if it is not one."""
    fields = dict(content)
    version = fields.pop("version", None)
    if version != _VERSION:
        raise LedgerDamagedError(
            f"the state of a run has version {version}, this program reads {_VERSION}",
            hint="Use the release that made it.",
        )
    try:
        return serde.parse(kind, fields)
    except ParseError as error:
        raise LedgerDamagedError(f"the state of a run cannot be read: {error}") from error
