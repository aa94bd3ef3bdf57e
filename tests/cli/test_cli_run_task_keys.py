"""A provider's key is in the header of a request, and in nothing that a run leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from cli_user import ANTHROPIC, CHECK, FIX, READ, RUNNER, CliUser
from model_server import KEY, Call, HttpFailure, Turn


def everything_in(state: Path) -> dict[str, bytes]:
    """Every file of a state directory by path, and every git object by id, decompressed."""
    found = {str(path): path.read_bytes() for path in state.rglob("*") if path.is_file()}
    for history in state.rglob("ledger.git"):
        git = ["git", f"--git-dir={history}", "cat-file", "--batch-all-objects"]
        listed = subprocess.run(
            [*git, "--batch-check=%(objectname)"], capture_output=True, check=True
        )
        for name in listed.stdout.decode().split():
            shown = subprocess.run(
                [*git[:2], "cat-file", "--batch"],
                input=name.encode(),
                capture_output=True,
                check=True,
            )
            found[f"{history}:{name}"] = shown.stdout
    return found


def test_provider_key_is_in_no_object_file_log_or_output_of_a_run(user: CliUser) -> None:
    """Even if task, model and provider repeat it, and logs have their lowest level."""
    plan = Call("planning_setup_plan", {"objective": f"Use {KEY}", "initial_steps": [KEY, "Go"]})
    server = user.serve(
        HttpFailure(429, "rate_limit_error", f"{KEY} is too fast", {"retry-after": "0"}),
        Turn(f"I saw {KEY}.", (plan, READ)),
        Turn("", (Call(f"tool_{KEY}", {"a": KEY}), Call("read_file", f'{{"file_path": "{KEY}'))),
        Turn("", (FIX, CHECK, Call("grep", {"pattern": KEY}))),
        HttpFailure(401, "authentication_error", f"{KEY} is not welcome"),
    )
    done = subprocess.run(
        [
            sys.executable, "-c", RUNNER, "run", f"Fix. The key is {KEY}.", "--model", ANTHROPIC,
            "--repo", str(user.source), "--sandbox", "asteval",
        ],
        env={**os.environ, "WINK_WORKSPACE_LOG": "debug", "OTEL_TRACES_EXPORTER": "console"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert len(server.requests) == 5
    assert all(KEY in "".join(headers.values()) for headers in server.headers)
    for expected in ('"level": "info"', "is not welcome"):
        assert expected in done.stderr, expected
    for span in ("invoke_agent run", "chat claude-sonnet-5", "execute_tool edit_file"):
        assert f'"name": "{span}"' in done.stderr, "spans go to the exporter of the environment"
    assert '"name"' not in done.stdout
    assert KEY not in done.stdout + done.stderr
    left = everything_in(user.tmp_path / "state")
    assert any(b"lineno + 1" in content for content in left.values()), "the run left its changes"
    assert any(b"_API_KEY]" in content for content in left.values())
    assert [path for path, content in left.items() if KEY.encode() in content] == []
    assert [path for path in left if KEY in path] == []
    assert f"The key is {KEY}" not in json.dumps(server.requests[-1])
