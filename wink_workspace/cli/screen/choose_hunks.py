"""Choose what to apply, path by path and hunk by hunk, as ``git add -p`` does.

Nothing is applied here: the answers become a ``Selection``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from wink_workspace.errors import UsageError

from .command_context import CommandContext
from .console import ask_line
from .display import diff_line, printable
from .preview import change_line

if TYPE_CHECKING:
    from wink_workspace.workspace import ChangeSet, FileHunks, Hunk, Selection


class _Answer(StrEnum):
    """The answers, with what they mean."""

    YES = "y", "apply this hunk"
    NO = "n", "do not apply it now; it can be applied later"
    QUIT = "q", "choose nothing more: apply what was chosen so far"
    ALL = "a", "apply this hunk and all later ones of this file"
    DONE = "d", "apply neither this hunk nor any later one of this file"
    EDIT = "e", "edit the hunk, then apply it"
    HELP = "?", "print this help"

    meaning: str

    def __new__(cls, letter: str, meaning: str) -> _Answer:
        """The answer with its *letter* as its value."""
        answer = str.__new__(cls, letter)
        answer._value_ = letter
        answer.meaning = meaning
        return answer


_WHOLE: Final = tuple(each for each in _Answer if each is not _Answer.EDIT)
_NEXT_HELP: Final = """\
y - apply all changes
n - apply nothing now; `wink-workspace apply` applies them later
p - choose files and hunks
d - show the diff, in a pager
m - send the model a message; it continues with the same conversation and files
? - print this help"""
_EDIT_HELP: Final = (
    b"# Change the lines that begin with '+', or delete them.\n"
    b"# To keep an old line, turn its '-' into a space. Lines that begin with '#' are removed.\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """What the user wants after a run.

    Attributes:
        applies: Whether to apply the changes.
        selected: The chosen parts of them; ``None`` for all.
        message: A message for the model, which continues the run. Nothing is applied before.
    """

    applies: bool = False
    selected: Selection | None = None
    message: str = ""


def ask_next_step(
    console: Console,
    question: str,
    choose_parts: Callable[[], Selection],
    show_diff: Callable[[], object],
    *,
    takes_message: bool = True,
) -> NextStep:
    """Ask what to do with the changes of a run.

    Args:
        console: Where to explain the answers.
        question: Such as ``Apply to DIRECTORY?``.
        choose_parts: Lets the user choose files and hunks.
        show_diff: Shows the diff.
        takes_message: Whether a message can continue the run.

    Raises:
        typer.Abort: On Ctrl-C, and at the end of the input.
    """
    answers = "y,n,p,d,m,?" if takes_message else "y,n,p,d,?"
    while True:
        match ask_line(f"{question} [{answers}] ").strip().lower():
            case "y" | "yes":
                return NextStep(applies=True)
            case "n" | "no":
                return NextStep()
            case "p":
                selected = choose_parts()
                return NextStep(applies=bool(selected), selected=selected)
            case "d":
                show_diff()
            case "m" if takes_message:
                if message := ask_line("Message to the model: ").strip():
                    return NextStep(message=message)
            case _:
                lines = _NEXT_HELP.splitlines()
                known = [line for line in lines if line[0] in answers]
                console.print(Text("\n".join(known), style="dim"))


class _QuitError(Exception):
    """The user wants to choose nothing more."""


def choose_parts(context: CommandContext, changes: ChangeSet) -> Selection:
    """Let the user choose files and hunks of *changes*; raises as ``choose``."""
    from .user_programs import edit

    return choose(context.err, changes, edit=lambda text: edit(text, context.environment))


def choose(
    console: Console,
    changes: ChangeSet,
    *,
    edit: Callable[[bytes], bytes],
    ask: Callable[[str], str] | None = None,
) -> Selection:
    """Ask for each hunk of *changes* whether to apply it.

    Args:
        console: Where to show the hunks.
        changes: The result of ``Workspace.preview``.
        edit: Lets the user edit a hunk.
        ask: Asks a question; by default on standard error.

    Raises:
        typer.Abort: On Ctrl-C, and at the end of the input. Nothing is chosen then.
    """
    from wink_workspace.workspace import FileHunks, Selection

    described = {change.path: change for change in changes.changes()}
    chosen: list[tuple[FileHunks, dict[int, Hunk] | None]] = []
    choosing = _Choosing(console, edit, ask or ask_line)
    for file in FileHunks.of(changes):
        path = file.change.path
        console.print(change_line(described[path]))
        for risk in described[path].risks:
            console.print(Text(f"! {risk}", style="bold yellow"))
        is_last = False
        try:
            choosing.ask_about(file)
        except _QuitError:
            is_last = True
        chosen.append((file, None if choosing.is_whole else choosing.hunks))
        if is_last:
            break
    return Selection.of(chosen)


class _Choosing:
    """Asks about one file at a time.

    Attributes:
        hunks: The chosen hunks of the present file, by index.
        is_whole: Whether the present file, which has no hunks, is chosen.
    """

    def __init__(
        self, console: Console, edit: Callable[[bytes], bytes], ask: Callable[[str], str]
    ) -> None:
        self._console, self._edit, self._ask = console, edit, ask
        self.hunks: dict[int, Hunk] = {}
        self.is_whole = False

    def ask_about(self, file: FileHunks) -> None:
        """Ask about every hunk of *file*, or about the file if it has none.

        Raises:
            _QuitError: If the user wants to choose nothing more.
        """
        self.hunks, self.is_whole = {}, False
        name = printable(str(file.change.path))
        if not file.hunks:
            answer = self._answer(f"{name}: apply this change", _WHOLE)
            self.is_whole = answer in (_Answer.YES, _Answer.ALL)
            return
        is_decided: bool | None = None
        for n, hunk in enumerate(file.hunks):
            if is_decided is None:
                is_decided = self._ask_hunk(n, hunk, f"({n + 1}/{len(file.hunks)}) {name}: apply")
            elif is_decided:
                self.hunks[n] = hunk

    def _ask_hunk(self, n: int, hunk: Hunk, question: str) -> bool | None:
        """Decide on one hunk; returns the decision on all later ones of the file, if any."""
        self._show(hunk.text)
        while True:
            answer = self._answer(f"{question} this hunk", tuple(_Answer))
            if answer is _Answer.EDIT:
                try:
                    self.hunks[n] = hunk.edited(self._edited(hunk.text))
                except UsageError as error:
                    self._console.print(printable(str(error)), markup=False, style="red")
                    continue
                return None
            if answer in (_Answer.YES, _Answer.ALL):
                self.hunks[n] = hunk
            return {_Answer.ALL: True, _Answer.DONE: False}.get(answer)

    def _answer(self, question: str, allowed: tuple[_Answer, ...]) -> _Answer:
        letters = ",".join(allowed)
        while True:
            given = self._ask(f"{question} [{letters}]? ").strip().lower()[:1]
            found = next((each for each in allowed if each.value == given), _Answer.HELP)
            if found is _Answer.QUIT:
                raise _QuitError
            if found is not _Answer.HELP:
                return found
            for each in allowed:
                self._console.print(Text(f"{each.value} - {each.meaning}", style="dim"))

    def _show(self, text: bytes) -> None:
        for line in text.decode("utf-8", "replace").splitlines():
            self._console.print(diff_line(line))

    def _edited(self, text: bytes) -> bytes:
        edited = self._edit(text + _EDIT_HELP)
        lines = edited.splitlines(keepends=True)
        return b"".join(line for line in lines if not line.startswith(b"#"))
