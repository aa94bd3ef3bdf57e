"""A run in progress: shown here, and published for others who watch it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.cli.screen.display import printable
from wink_workspace.workspace.runs.live_runs import MessageReceived, PublishedRun

from .run_display import RunFeed
from .run_options import RunOptions

if TYPE_CHECKING:
    from wink_workspace.filesystem import Diff
    from wink_workspace.workspace import RecordedRun, Workspace

__all__ = ["diff_of", "print_place", "published"]


def diff_of(
    context: CommandContext, options: RunOptions, workspace: Workspace
) -> Callable[[int], Diff] | None:
    """The diff of an entry, if each call is shown with its diff.

    A pipe gets the whole diff at the end, so the diffs of calls would be a repetition.
    """
    if context.out.is_terminal or options.json or options.patch is not None:
        return lambda number: workspace.review_of(workspace.entry(number))
    return None


def print_place(context: CommandContext, name: str, workspace: Workspace) -> None:
    """Print which workspace the run works in."""
    mode, source = workspace.info.mode.replace("_", " "), printable(workspace.info.source)
    context.err.print(f"workspace {name}: {mode} of {source}", markup=False)


@contextmanager
def published(
    workspace: Workspace, record: RecordedRun, feed: RunFeed, redact: Callable[[str], str]
) -> Generator[Callable[[], Sequence[str]]]:
    """Show the run in the block, and let others watch it; yields how it gets their messages."""
    run = PublishedRun(record)

    def messages() -> list[str]:
        texts = [redact(text) for text in run.messages()]
        for text in texts:
            record.keep_message(text)
            feed.publish(MessageReceived(text=text))
        return texts

    try:
        with feed.of(workspace.session, run.publish, lambda: workspace.head.number):
            yield messages
    except BaseException as error:
        run.end("interrupted" if isinstance(error, KeyboardInterrupt) else str(error))
        raise
    run.end()
