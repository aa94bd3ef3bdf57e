"""The state of a run as JSON documents: one for the run, one for each attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal

from wink_workspace.clock import Budget, TokenUsage
from wink_workspace.errors import LedgerDamagedError

from .budget import Spending
from .engine_protocol import AttemptOutcome, AttemptResult, Cost, Score

__all__ = ["AttemptState", "RunState"]

_VERSION: Final = 1

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

    def with_budget(self, budget: Budget) -> RunState:
        """The same run with other limits."""
        return replace(self, budget=budget)

    def with_origin(self, entry_id: str) -> RunState:
        """The same run, beginning at this entry."""
        return replace(self, origin=entry_id)

    def with_chosen(self, chosen: Sequence[tuple[int, int]]) -> RunState:
        """The same run, after the strategy chose."""
        return replace(self, chosen=tuple(chosen))

    def content(self) -> dict[str, Any]:
        """The document."""
        budget = asdict(self.budget)
        if self.budget.max_cost_usd is not None:
            budget["max_cost_usd"] = str(self.budget.max_cost_usd)
        return {
            "version": _VERSION,
            "n": self.n,
            "seed": self.seed,
            "begun_at": self.begun_at.isoformat(),
            "branch": self.branch,
            "origin": self.origin,
            "budget": budget,
            "about": dict(self.about),
            "chosen": [list(each) for each in self.chosen],
        }

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> RunState:
        """The state in a document; ``LedgerDamagedError`` if it is not one."""
        try:
            _check_version(content)
            budget = dict(content["budget"])
            if budget["max_cost_usd"] is not None:
                budget["max_cost_usd"] = Decimal(budget["max_cost_usd"])
            return cls(
                n=content["n"],
                seed=content["seed"],
                begun_at=datetime.fromisoformat(content["begun_at"]),
                branch=content["branch"],
                origin=content["origin"],
                budget=Budget(**budget),
                about=content["about"],
                chosen=tuple((number, round_) for number, round_ in content["chosen"]),
            )
        except (KeyError, TypeError, ValueError, InvalidOperation) as error:
            raise LedgerDamagedError(f"the state of a run cannot be read: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptState:
    """One attempt; ``result`` is that of its last round that ended, as JSON.

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
    result: Mapping[str, Any] | None = None

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

    def reserving(self, *, spent: Spending, reserved: Spending) -> AttemptState:
        """In a turn that reserved this."""
        return replace(self, spent=spent, reserved=reserved)

    def ended(self, result: AttemptResult, *, spent: Spending, n_calls: int) -> AttemptState:
        """With the accepted result of its present round."""
        before_s = 0.0 if self.result is None else float(self.result["duration_s"])
        content = {
            "outcome": str(result.outcome),
            "score": None if result.score is None else asdict(result.score),
            "round": result.round,
            "n_children": result.n_children,
            "error": result.error,
            "duration_s": before_s + result.cost.duration_s,
        }
        return replace(
            self,
            phase="ended",
            n_starts=0,
            n_calls=n_calls,
            spent=spent,
            reserved=Spending(),
            result=content,
        )

    def as_result(self, number: int) -> AttemptResult:
        """The result of an attempt that ended."""
        content = self.result or {}
        score = content["score"]
        return AttemptResult(
            number=number,
            outcome=AttemptOutcome(content["outcome"]),
            score=None if score is None else Score(**score),
            cost=Cost(self.spent.usage, self.spent.usd, content["duration_s"]),
            branch=self.branch,
            epoch=self.epoch,
            round=content["round"],
            parent=self.parent,
            n_children=content["n_children"],
            error=content["error"],
        )

    def content(self) -> dict[str, Any]:
        """The document."""
        return {
            "version": _VERSION,
            "phase": self.phase,
            "epoch": self.epoch,
            "round": self.round,
            "n_starts": self.n_starts,
            "branch": self.branch,
            "parent": self.parent,
            "begins_at": self.begins_at,
            "n_calls": self.n_calls,
            "spent": _spending_content(self.spent),
            "reserved": _spending_content(self.reserved),
            "result": None if self.result is None else dict(self.result),
        }

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> AttemptState:
        """The state in a document; ``LedgerDamagedError`` if it is not one."""
        try:
            _check_version(content)
            return cls(
                phase=content["phase"],
                epoch=content["epoch"],
                round=content["round"],
                n_starts=content["n_starts"],
                branch=content["branch"],
                parent=content["parent"],
                begins_at=content["begins_at"],
                n_calls=content["n_calls"],
                spent=_parse_spending(content["spent"]),
                reserved=_parse_spending(content["reserved"]),
                result=content["result"],
            )
        except (KeyError, TypeError, ValueError, InvalidOperation) as error:
            raise LedgerDamagedError(
                f"the state of an attempt cannot be read: {error!r}"
            ) from error


def _check_version(content: Mapping[str, Any]) -> None:
    if content["version"] != _VERSION:
        raise LedgerDamagedError(
            f"the state of a run has version {content['version']}, this program reads {_VERSION}",
            hint="Use the release that made it.",
        )


def _spending_content(spending: Spending) -> dict[str, Any]:
    return {"usage": asdict(spending.usage), "usd": str(spending.usd)}


def _parse_spending(content: Mapping[str, Any]) -> Spending:
    return Spending(TokenUsage(**content["usage"]), Decimal(content["usd"]))
