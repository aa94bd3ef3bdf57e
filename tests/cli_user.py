"""A user who runs ``run TASK``: a real package, a state directory, a provider and its turns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import iniconfig
import pytest
from model_server import Call, ModelServer, Step, Turn

from wink_workspace.cli import main
from wink_workspace.clock import SystemClock
from wink_workspace.workspace import Workspace, WorkspaceStorage

ANTHROPIC = "anthropic:claude-sonnet-5"
WIRES = [ANTHROPIC, "openai:gpt-5", "openai-chat:gpt-5"]

RUNNER = "import sys; from wink_workspace.cli import main; sys.exit(main(sys.argv[1:]))"


class CliUser:
    """Runs commands with a project, a state directory and a fake provider.

    The project is a copy of ``iniconfig`` with a fault: line numbers count from 0.
    """

    def __init__(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.tmp_path, self._capsys, self._monkeypatch = tmp_path, capsys, monkeypatch
        self.source = tmp_path / "source"
        shutil.copytree(
            Path(iniconfig.__file__).parent, self.source / "iniconfig",
            ignore=shutil.ignore_patterns("__pycache__"),
        )  # fmt: skip
        self.faulty_file = self.source / "iniconfig" / "exceptions.py"
        self.fixed_text = self.faulty_file.read_text()
        self.faulty_text = self.fixed_text.replace("self.lineno + 1", "self.lineno")
        assert self.faulty_text != self.fixed_text
        self.faulty_file.write_text(self.faulty_text)
        self.err = ""
        self.server: ModelServer
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setattr(SystemClock, "wait", lambda *_: None)
        for name in ("WINK_WORKSPACE_MODEL", "OTEL_TRACES_EXPORTER"):
            monkeypatch.delenv(name, raising=False)

    def serve(self, *steps: Step) -> ModelServer:
        """Start a new server for the following commands."""
        return self.serve_by(ModelServer(*steps))

    def serve_by(self, server: ModelServer) -> ModelServer:
        self.close()
        self.server = server.__enter__()
        for name, value in self.server.variables.items():
            self._monkeypatch.setenv(name, value)
        return self.server

    def close(self) -> None:
        if "server" in vars(self):
            self.server.__exit__()

    def __call__(self, *arguments: object, fails: int = 0) -> str:
        exit_code = main([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        self.err = captured.err
        assert exit_code == fails, captured.err
        return captured.out

    def run(self, *arguments: object, fails: int = 0) -> str:
        """Run a task on the project, with the API of Anthropic."""
        return self(
            "run", "Fix the line numbers.", "--repo", self.source, "--model", ANTHROPIC,
            *arguments, fails=fails,
        )  # fmt: skip

    @property
    def storage(self) -> WorkspaceStorage:
        return WorkspaceStorage(self.tmp_path / "state" / "wink-workspace")

    @property
    def workspaces(self) -> list[str]:
        return [info.id for info in self.storage.all()]

    def tree(self, workspace_id: str) -> str:
        """Return the id of the workspace's files."""
        with Workspace.open(workspace_id, storage=self.storage) as workspace:
            return workspace.head.files

    def records(self, workspace_id: str) -> str:
        """Return all records of the workspace's history as text."""
        with Workspace.open(workspace_id, storage=self.storage) as workspace:
            return "\n".join(json.dumps(workspace.record(entry).data) for entry in workspace.log())


FILE = "iniconfig/exceptions.py"
READ = Call("read_file", {"file_path": FILE})
CHECK = Call(
    "evaluate_python",
    {"code": f"assert 'lineno + 1' in open({FILE!r}).read(), 'off by one'", "reads": [FILE]},
)


def edit(old: str, new: str) -> Call:
    return Call("edit_file", {"file_path": FILE, "old_string": old, "new_string": new})


FIX = edit("{self.lineno}:", "{self.lineno + 1}:")
PLAN = Call("planning_setup_plan", {"objective": "Fix", "initial_steps": ["Find", "Fix"]})
SEARCH = Call("grep", {"pattern": "lineno", "glob": "**/*.py"})
DONE = Turn("The line numbers count from 1 now.")
SHORT_RUN = (Turn("Reading.", (READ,)), Turn("Fixing.", (FIX,)), DONE)
