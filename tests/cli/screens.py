"""A real terminal for the command: it runs in a pseudo-terminal, and pyte shows its screen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pyte
from model_server import Call, ModelServer, Turn

from wink_workspace.workspace import WorkspaceStorage

RUN = """
import json, subprocess, sys
sys.path.insert(0, {tests!r})
from screen_sandbox import registered
from wink_workspace.cli import main
with registered():
    for arguments in json.loads(sys.argv[1]):
        print({mark!r}, end="", flush=True)
        if arguments[0] == "sh":
            subprocess.run(arguments, check=True)
        elif code := main(arguments):
            sys.exit(code)
"""
"""Runs several commands, because a new process takes longer than any of them.

One that begins with ``sh`` is of the user and not of the toolkit.
"""
MARK = "\x1b]2;next\x07"  # sets the title of the terminal
TASK = "Say hello to the world, politely, in the greeting of the program, and test it"
_TESTS = Path(__file__).parent
_TIMEOUT_S = 120
_ROWS = 60


class Screen:
    """Commands, one after the other, in a terminal of *columns* columns."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        *,
        columns: int,
        environment: Mapping[str, str],
        cwd: Path | None = None,
    ) -> None:
        self._columns = columns
        self._screen = pyte.Screen(columns, _ROWS)
        self._stream = pyte.Stream(self._screen)
        self.received = ""
        self._child = pexpect.spawn(
            sys.executable,
            ["-c", RUN.format(tests=str(_TESTS), mark=MARK), json.dumps(commands)],
            env={**os.environ, **environment, "TERM": "xterm-256color", "COLUMNS": str(columns)},
            dimensions=(_ROWS, columns),
            cwd=cwd,
            encoding="utf-8",
            timeout=_TIMEOUT_S,
        )

    def wait_for(self, shown: Callable[[str], bool]) -> str:
        """Wait until the screen is as expected; returns it."""
        while not shown(self.text):
            self._feed()
        return self.text

    def type(self, line: str) -> None:
        self._child.sendline(line)

    def end(self) -> str:
        """Wait for the end of the command, which must succeed; returns the screen."""
        try:
            while True:
                self._feed()
        except pexpect.EOF:
            pass
        self._child.close()
        assert self._child.exitstatus == 0, self.text
        return self.text

    def end_each(self) -> list[str]:
        """Wait for the end of the commands; returns the screen of each, which begins empty."""
        self.end()
        shown: list[str] = []
        for part in self.received.split(MARK)[1:]:
            self._screen = pyte.Screen(self._columns, _ROWS)
            pyte.Stream(self._screen).feed(part)
            shown.append(self.text)
        return shown

    def close(self) -> None:
        self._child.close(force=True)

    def _feed(self) -> None:
        self._child.expect(r"(?s).+")
        received = self._child.after
        assert isinstance(received, str)
        self.received += received
        self._stream.feed(received)

    @property
    def text(self) -> str:
        """The lines of the screen without trailing blanks."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip() + "\n"


def normalised(text: str, names: Mapping[str, str]) -> str:
    """*text* with ids, times, sizes and paths replaced by others of the same length."""
    for name, replacement in names.items():
        text = text.replace(name, replacement[: len(name)].ljust(len(name), "_"))
    text = re.sub(r"\b\d{4}-\d\d-\d\d \d\d:\d\d", "2026-01-01 12:00", text)
    text = re.sub(r"\b\d\d-\d\d \d\d:\d\d:\d\d", "01-01 12:00:00", text)
    text = re.sub(r" +[\d,]+\.\d ms", lambda m: "1.0 ms".rjust(len(m[0])), text)
    text = re.sub(r"\b\d\d-\d\d \d\d:\d\d\b", "01-01 12:00", text)
    text = re.sub(r"\b\d+(\.\d?)?[s…] *$", "1s", text, flags=re.MULTILINE)
    text = re.sub(r"\b\d+(\.\d)?s +", lambda m: "1s".ljust(len(m[0])), text)
    text = re.sub(r"\b[0-9a-f]{40}\b", "0" * 40, text)
    text = re.sub(r"elapsed: [^,\n]*", "elapsed: 1s", text)
    return re.sub(r" +[\d,]+ [KMG]iB", lambda m: "9 MiB".rjust(len(m[0])), text)


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def both_wait(text: str) -> bool:
    """Whether the two running attempts made two calls, and took three turns."""
    rows = [line.split() for line in text.splitlines() if " running " in line]
    return [row[2:4] for row in rows] == [["2", "3,702"]] * 2


class Project:
    """A directory, a state directory, and a script of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "project"
        (self.source / "src").mkdir(parents=True)
        (self.source / "src/app.py").write_text("print('helo')\n")
        self.go_on = folder / "go-on"
        turns = [
            call("read_file", file_path="src/app.py"),
            call("edit_file", file_path="src/app.py", old_string="helo", new_string="hello"),
            call("edit_file", file_path="src/app.py", old_string="nothing", new_string="x"),
            call("shell_execute", command="wait for the test"),
            call("shell_execute", command="tests -q --with-a-long-option=" + "value" * 12),
            {"text": "The greeting is polite now."},
        ]
        self.script = folder / "turns.jsonl"
        self.script.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
        self.environment = {
            "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config"),
            "HOME": str(folder), "PAGER": "cat", "CI": "", "LC_ALL": "C.UTF-8",
            "WINK_WORKSPACE_PAGER": "cat", "NO_COLOR": "", "SCREEN_GO_ON": str(self.go_on),
        }  # fmt: skip

    @contextmanager
    def screen(self, *arguments: object, columns: int) -> Iterator[Screen]:
        command = list(map(str, arguments))
        screen = Screen([command], columns=columns, environment=self.environment)
        try:
            yield screen
        finally:
            screen.close()

    def screens(self, commands: Mapping[str, Sequence[str]], columns: int) -> dict[str, str]:
        """The screen after each of these commands, which ask nothing."""
        screen = Screen([*commands.values()], columns=columns, environment=self.environment)
        try:
            return dict(zip(commands, screen.end_each(), strict=True))
        finally:
            screen.close()

    def run(self, columns: int) -> tuple[str, str]:
        """The screen while a command runs, and that after the run."""
        arguments = ("run", TASK, "--repo", self.source, "--script", self.script)
        with self.screen(*arguments, "--sandbox", "screen", columns=columns) as screen:
            during = screen.wait_for(
                lambda text: "shell_execute: wait" in text and "1 failed" in text
            )
            screen.type("Thank you.")
            during = screen.wait_for(lambda text: "Thank you. (sent at the next turn)" in text)
            self.go_on.touch()
            screen.wait_for(lambda text: "[y,n,p,d,m,?]" in text)
            screen.type("d")
            screen.wait_for(lambda text: text.count("[y,n,p,d,m,?]") == 2)
            screen.type("n")
            after = screen.end()
            assert "\x1b[31m1 failed" not in screen.received
        return during, after

    def attempts(self, columns: int) -> tuple[str, str]:
        """The screen while two attempts wait in a command, and that after the run."""
        scripts = [self.folder / "right.jsonl", self.folder / "wrong.jsonl"]
        for script, word in zip(scripts, ("hello", "hullo"), strict=True):
            edit = call("edit_file", file_path="src/app.py", old_string="helo", new_string=word)
            wait = call("shell_execute", command="wait for the test")
            turns = [call("read_file", file_path="src/app.py"), edit, wait, {"text": "Done."}]
            usage = {"input_tokens": 1_200, "output_tokens": 34}
            script.write_text("".join(f"{json.dumps({**t, 'usage': usage})}\n" for t in turns))
        with self.screen(
            "attempts", TASK, "--repo", self.source, "-n", 5, "--sandbox", "screen",
            "--script", scripts[0], "--script", scripts[1], "--score", "check", columns=columns,
        ) as screen:  # fmt: skip
            during = screen.wait_for(both_wait)
            self.go_on.touch()
            screen.wait_for(lambda text: "[y,n,d,NUMBER,?]" in text)
            screen.type("n")
            return during, screen.end()

    def day(self, columns: int) -> dict[str, str]:
        """The screens of a day's work, from the first run to the last change of the project."""
        path = "src/app.py"
        subprocess.run(["git", "init", "-q", self.source], check=True, env=self.environment)
        read = Call("read_file", {"file_path": path})

        def edit(old: str, new: str) -> Call:
            return Call("edit_file", {"file_path": path, "old_string": old, "new_string": new})

        notes = Call("write_file", {"file_path": "NOTES.md", "content": "Fixed a typo.\n"})
        wait = Call("shell_execute", {"command": "wait for the test"})
        usage = {"input_tokens": 1_200, "output_tokens": 34}
        first = [
            Turn("I look at the greeting.", (read,), **usage),
            Turn("", (edit("helo", "hello"), wait), **usage),
            Turn("", (edit("hello", "hello, world"), notes), **usage),
            Turn("The greeting is spelled right, and greets the world.", **usage),
        ]
        second = [
            Turn("", (read,), **usage),
            Turn("", (edit("hello, world", "HELLO, WORLD"),), **usage),
            Turn("It shouts now.", **usage),
        ]
        model = ("--model", "anthropic:claude-sonnet-5")
        commands = {
            "run": ("run", "Fix the typo in the greeting.", *model),
            "log": ("log",),
            "undo": ("undo", "6"),
            "diff": ("diff",),
            "fork": ("fork", "loud"),
            "use": ("use", "loud"),
            "run-in-fork": ("run", "Shout.", *model),
            "list": ("list", "."),
            "compare": ("diff", "main"),
            "compare-fork": ("diff", "loud"),
            "apply": ("apply",),
            "edited": ("sh", "-c", "echo '# Greeting' > README.md"),
            "sync": ("sync",),
            "log-at-the-end": ("log",),
        }
        with ModelServer(*first, *second) as server:
            screen = Screen(
                [*commands.values()],
                columns=columns,
                environment={
                    **self.environment, **server.variables, "WINK_WORKSPACE_SANDBOX": "screen",
                },
                cwd=self.source,
            )  # fmt: skip
            try:
                screen.wait_for(lambda text: "wait for the test" in text and "1 failed" in text)
                screen.type("Greet the world, please.")
                screen.wait_for(lambda text: "(sent at the next turn)" in text)
                self.go_on.touch()
                for n_asked in (1, 2):
                    screen.wait_for(
                        lambda _, n=n_asked: screen.received.count("[y,n,p,d,m,?]") == n
                    )
                    screen.type("n")
                return dict(zip(commands, screen.end_each(), strict=True))
            finally:
                screen.close()

    @property
    def storage(self) -> WorkspaceStorage:
        return WorkspaceStorage(self.folder / "state/wink-workspace")

    @property
    def workspace(self) -> str:
        (info,) = self.storage.all()
        return info.id
