"""Logs as JSON lines: only when asked for, never with a secret, and beside their spans."""

from __future__ import annotations

import io
import json
import logging

import pytest

from wink_workspace.cli import main
from wink_workspace.cli.logs import logged
from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError

_log = logging.getLogger("wink_workspace.tests")

SECRET = "a-secret-of-some-length"


def environment(level: str) -> Environment:
    return Environment(variables={"WINK_WORKSPACE_LOG": level, "SERVICE_TOKEN": SECRET})


def test_each_record_is_one_line_of_json_without_secrets() -> None:
    lines = io.StringIO()
    with logged(environment("info"), lines):
        _log.debug("too small")
        _log.warning("two\nlines and %s", SECRET)
        try:
            raise ValueError(SECRET)
        except ValueError:
            _log.exception("it failed")
    first, second = map(json.loads, lines.getvalue().splitlines())
    assert (first["level"], first["logger"]) == ("warning", "wink_workspace.tests")
    assert first["message"] == "two\nlines and [SERVICE_TOKEN]"
    assert first["at"].endswith("+00:00")
    assert "ValueError: [SERVICE_TOKEN]" in second["error"]


def test_a_record_inside_a_span_names_it() -> None:
    from opentelemetry import context, trace
    from opentelemetry.trace import NonRecordingSpan, SpanContext

    lines = io.StringIO()
    around = trace.set_span_in_context(NonRecordingSpan(SpanContext(0xA, 0xB, is_remote=False)))
    token = context.attach(around)
    try:
        with logged(environment("info"), lines):
            _log.info("inside")
    finally:
        context.detach(token)
    line = json.loads(lines.getvalue())
    assert (line["trace_id"][-1], line["span_id"][-1]) == ("a", "b")


def test_logging_is_as_it_was_afterwards() -> None:
    logger = logging.getLogger("wink_workspace")
    before = (logger.level, logger.propagate, list(logger.handlers))
    with logged(environment("debug"), io.StringIO()):
        assert logger.level == logging.DEBUG
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_nothing_is_logged_unasked(caplog: pytest.LogCaptureFixture) -> None:
    lines = io.StringIO()
    with logged(Environment(), lines):
        _log.warning("to whoever listens")
    assert lines.getvalue() == ""
    assert "to whoever listens" in caplog.text


def test_a_level_that_there_is_none_of_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="'loud'"), logged(environment("loud")):
        pass
    monkeypatch.setenv("WINK_WORKSPACE_LOG", "loud")
    assert main(["list"]) == 2
    assert "'loud'" in capsys.readouterr().err
