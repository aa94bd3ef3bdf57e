"""Who runs ``run TASK`` in the tests: a desk with a real package, a state directory, a provider; its turns."""

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
    """A user with a project, a state directory and a provider."""

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
        """Another server for the commands that follow."""
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
        code = main([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        self.err = captured.err
        assert code == fails, captured.err
        return captured.out

    def run(self, *arguments: object, fails: int = 0) -> str:
        """A run over the project with the first wire."""
        return self(
            "run", "Mend the line numbers.", "--repo", self.source, "--model", ANTHROPIC,
            *arguments, fails=fails,
        )  # fmt: skip

    @property
    def storage(self) -> WorkspaceStorage:
        return WorkspaceStorage(self.tmp_path / "state" / "wink-workspace")

    @property
    def workspaces(self) -> list[str]:
        return [info.id for info in self.storage.all()]

    def tree(self, which: str) -> str:
        """The id of the files of a workspace."""
        with Workspace.open(which, storage=self.storage) as place:
            return place.head.files

    def records(self, which: str) -> str:
        """Everything that a workspace's history says, as text."""
        with Workspace.open(which, storage=self.storage) as place:
            return "\n".join(json.dumps(place.record(entry).data) for entry in place.log())


FILE = "iniconfig/exceptions.py"
READ = Call("read_file", {"file_path": FILE})
CHECK = Call(
    "evaluate_python",
    {"code": f"assert 'lineno + 1' in open({FILE!r}).read(), 'off by one'", "reads": [FILE]},
)


def edit(old: str, new: str) -> Call:
    return Call("edit_file", {"file_path": FILE, "old_string": old, "new_string": new})


FIX = edit("{self.lineno}:", "{self.lineno + 1}:")
PLAN = Call("planning_setup_plan", {"objective": "Mend", "initial_steps": ["Find", "Mend"]})
SEARCH = Call("grep", {"pattern": "lineno", "glob": "**/*.py"})
DONE = Turn("The line numbers count from 1 now.")
SHORT_RUN = (Turn("Reading.", (READ,)), Turn("Mending.", (FIX,)), DONE)
