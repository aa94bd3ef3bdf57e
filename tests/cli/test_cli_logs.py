"""Logs: warnings as text by default, or JSON lines, redacted, with the ids of the open span."""

from __future__ import annotations

import io
import json
import logging

import pytest

from wink_workspace.cli import main
from wink_workspace.cli.app import logged
from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError

_log = logging.getLogger("wink_workspace.tests")

SECRET = "a-secret-of-some-length"


def environment(level: str) -> Environment:
    return Environment(variables={"WINK_WORKSPACE_LOG": level, "SERVICE_TOKEN": SECRET})


def test_each_record_is_one_line_of_json_with_secrets_redacted() -> None:
    lines = io.StringIO()
    with logged("info", environment("info").redactor(), lines):
        _log.debug("below the level")
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


def test_record_inside_a_span_has_its_ids() -> None:
    from opentelemetry import context, trace
    from opentelemetry.trace import NonRecordingSpan, SpanContext

    lines = io.StringIO()
    around = trace.set_span_in_context(NonRecordingSpan(SpanContext(0xA, 0xB, is_remote=False)))
    token = context.attach(around)
    try:
        with logged("info", environment("info").redactor(), lines):
            _log.info("inside")
    finally:
        context.detach(token)
    line = json.loads(lines.getvalue())
    assert (line["trace_id"][-1], line["span_id"][-1]) == ("a", "b")


def test_logger_is_restored_afterwards() -> None:
    logger = logging.getLogger("wink_workspace")
    before = (logger.level, logger.propagate, list(logger.handlers))
    with logged("debug", str, io.StringIO()):
        assert logger.level == logging.DEBUG
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_by_default_only_warnings_are_shown_without_secrets_and_control_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = io.StringIO()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with logged("", environment("").redactor(), lines):
        _log.info("below the level")
        _log.warning("a file \x1b[2J\nand %s is lost", SECRET)
        try:
            raise ValueError(f"\x1b[2J{SECRET}")
        except ValueError:
            _log.exception("it failed")
    first, second, *_, last = lines.getvalue().splitlines()
    assert first == "a file \ufffd[2J\ufffdand [SERVICE_TOKEN] is lost"
    assert (second, last) == ("it failed", "ValueError: \ufffd[2J[SERVICE_TOKEN]")


def test_handlers_of_the_program_show_warnings_instead(caplog: pytest.LogCaptureFixture) -> None:
    lines = io.StringIO()
    with logged("", str, lines):
        _log.warning("to the default handlers")
    assert lines.getvalue() == ""
    assert "to the default handlers" in caplog.text


def test_unknown_level_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="'loud'"), logged("loud", str):
        pass
    monkeypatch.setenv("WINK_WORKSPACE_LOG", "loud")
    assert main(["list"]) == 2
    assert "'loud'" in capsys.readouterr().err
