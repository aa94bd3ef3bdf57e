"""What ends a run: budgets, turns and repetition; and what a resumed run keeps of them."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from cli_user import ANTHROPIC, DONE, READ, SEARCH, SHORT_RUN, CliUser
from model_server import Call, Turn

from wink_workspace.adapters import prices
from wink_workspace.clock import TokenUsage
from wink_workspace.workspace import RecordedRun


@pytest.fixture
def _priced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixed prices: 3 US dollars for a million input tokens, 15 for output tokens."""

    def cost(usage: TokenUsage, model: str) -> Decimal:
        assert model == ANTHROPIC
        return (3 * Decimal(usage.input_tokens) + 15 * Decimal(usage.output_tokens)) / 1_000_000

    monkeypatch.setattr(prices, "cost_of", cost)


def resume(user: CliUser, *options: object, fails: int = 0) -> str:
    (which,) = user.workspaces
    return user("run", "--workspace", which, "--resume", *options, fails=fails)


@pytest.mark.behaviour(116)
@pytest.mark.usefixtures("_priced")
def test_a_money_budget_ends_the_run_between_two_calls_and_says_how_to_continue(
    user: CliUser,
) -> None:
    user.serve(
        Turn("", (READ,), input_tokens=100_000, output_tokens=10),
        Turn("", (SEARCH,), input_tokens=100_000, output_tokens=10),
        DONE,
    )
    user.run("--max-cost", "0.5", fails=1)
    assert len(user.server.requests) == 2
    (which,) = user.workspaces
    message = user.err[user.err.index("$0.60") :].replace("\n", " ")
    assert "$0.6003 used, $0.5 allowed" in message
    assert "200,000 input and 20 output tokens" in message
    assert f"wink-workspace run --workspace {which} --resume --max-cost 1.20" in message


@pytest.mark.behaviour(115)
@pytest.mark.usefixtures("_priced")
def test_a_resumed_run_keeps_the_limit_and_the_cost_of_the_first_part(user: CliUser) -> None:
    user.serve(
        Turn("", (READ,), input_tokens=100_000),
        Turn("", (SEARCH,), input_tokens=100_000),
        Turn("", (READ,), input_tokens=100_000),
        DONE,
    )
    user.run("--max-cost", "0.5", fails=1)
    resume(user, fails=1)
    assert len(user.server.requests) == 2, "the limit of the first part still applies"
    resume(user, "--max-cost", "0.7", fails=1)
    assert "$0.9002 used, $0.7 allowed" in user.err
    resume(user, "--max-cost", "1")
    assert len(user.server.requests) == 4


@pytest.mark.behaviour(115)
def test_a_resumed_run_keeps_the_turns_and_their_limit(user: CliUser) -> None:
    user.serve(*SHORT_RUN)
    user.run("--max-turns", 2, fails=1)
    assert "no final answer after 2 turns" in user.err
    assert "--resume --max-turns 4" in user.err.replace("\n", " ")
    resume(user, fails=1)
    assert len(user.server.requests) == 2
    resume(user, "--max-turns", 3)
    assert len(user.server.requests) == 3


@pytest.mark.behaviour(115)
def test_a_resumed_run_keeps_the_time_of_the_first_part(user: CliUser) -> None:
    user.serve(*SHORT_RUN)
    user.run("--max-turns", 1, "--deadline", "1h", fails=1)
    (which,) = user.workspaces
    record = RecordedRun.newest(user.storage.folder(which))
    assert record is not None
    record.keep_spent(1, 3_600.0, None)
    resume(user, "--max-turns", 9, fails=1)
    assert len(user.server.requests) == 1
    assert "the time of the run is over: 1h used, 1h allowed" in user.err
    assert "--resume --deadline 2h" in user.err.replace("\n", " ")
    resume(user, "--deadline", "2h")
    assert len(user.server.requests) == 3


@pytest.mark.behaviour(116)
def test_a_money_budget_for_a_model_without_a_price_is_refused_before_anything_is_copied(
    user: CliUser,
) -> None:
    user.serve(DONE)
    user(
        "run", "Do it.", "--repo", user.source, "--model", "anthropic:no-such-model",
        "--max-cost", 5, fails=2,
    )  # fmt: skip
    assert "price of anthropic:no-such-model is not known" in user.err.replace("\n", " ")
    assert (user.workspaces, user.server.requests) == ([], [])


@pytest.mark.behaviour(117)
def test_a_run_without_options_has_budgets(user: CliUser) -> None:
    user.serve(Turn("", (READ,), input_tokens=5_000_001), DONE)
    user.run(fails=1)
    assert "5,000,006 total tokens used, 5,000,000 allowed" in user.err
    (which,) = user.workspaces
    about = json.loads((user.storage.folder(which).path / "runs" / "1" / "about.json").read_text())
    assert (about["max_turns"], about["deadline_s"], about["max_cost_usd"]) == (200, 7200.0, None)


@pytest.mark.behaviour(112)
def test_a_model_that_repeats_itself_is_stopped_with_an_explanation_and_again_after_resume(
    user: CliUser,
) -> None:
    again = Call("ls", {"path": "."})
    user.serve(*[Turn("", (again,), input_tokens=9_000)] * 8)
    user.run("--model", ANTHROPIC, fails=1)
    assert len(user.server.requests) == 6
    assert 'the model repeats itself: ls {"path": "."} had the same result 6 times' in (
        user.err.replace("\n", " ")
    )
    sent = json.dumps(user.server.requests[-1]["messages"])
    assert "You have made this call 5 times with the same result" in sent
    resume(user, fails=1)
    assert len(user.server.requests) == 7


def test_settings_of_the_model_are_options_and_keys_and_a_resumed_run_keeps_them(
    user: CliUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINK_WORKSPACE_TEMPERATURE", "0.5")
    user.serve(*SHORT_RUN)
    options = ("--effort", "none", "--max-answer", 900, "--max-turns", 1)
    user("run", "Fix.", "--repo", user.source, "--model", "openai-chat:gpt-4o", *options, fails=1)
    monkeypatch.setenv("WINK_WORKSPACE_TEMPERATURE", "1.5")
    resume(user, "--max-turns", 3, "--max-answer", 800)
    sent = [(each["temperature"], each["max_completion_tokens"]) for each in user.server.requests]
    assert sent == [(0.5, 900), (0.5, 800), (0.5, 800)]
    user.run("--effort", "much", fails=2)
    assert "none, minimal, low" in user.err
