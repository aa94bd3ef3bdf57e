"""Results that are too long for a model: it gets the head, the tail, and the path of the whole.

Rule 1: every text for a model passes here once, whatever tool it is from. Tools limit what they put
into their values, so that records stay small; none of them cuts its text for the model.
Rule 2: the whole is a file of the workspace, which the model's own tools can read in pieces. Its
lines are short enough for that: longer ones are wrapped.
Rule 3: a failed call leaves no file, so the text of its result has no path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from wink_workspace.errors import FilesystemError

if TYPE_CHECKING:
    from wink_workspace.filesystem import Filesystem


MOST_TEXT_CHARS: Final = 150_000
"""Characters of a result that a model gets."""

_PART_CHARS: Final = 50_000
_LINE_CHARS: Final = 1_000
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


def shortened(text: str, tool: str, files: Filesystem | None, *, whole: str = "") -> str:
    """What a model gets of a result that has more than *text*, or too many characters.

    Args:
        text: The result, as a model would get it; of more than ``MOST_TEXT_CHARS`` characters it
            gets the head and the tail.
        tool: The tool that it is from; the next long result of this tool replaces the file.
        files: Where the whole is stored, if they have a directory for that. ``None`` for nowhere.
        whole: The whole, if *text* has only a part of it.
    """
    path = None if files is None else _stored(whole or text, tool, files)
    where = "" if path is None else f"the whole is in {path}: read it in parts, or search it"
    if len(text) <= MOST_TEXT_CHARS:
        return f"{text}\n[{where}]" if where else text
    head, tail = _whole_lines(text)
    missing = f"{len(text) - len(head) - len(tail):,} characters left out"
    return f"{head}\n[… {'; '.join(filter(None, (missing, where)))} …]\n{tail}"


def _whole_lines(text: str) -> tuple[str, str]:
    """The beginning and the end of *text*, if possible without a part of a line."""
    head, tail = text[:_PART_CHARS], text[-_PART_CHARS:]
    return head[: head.rfind("\n") + 1] or head, tail[tail.find("\n") + 1 :] or tail


def _stored(text: str, tool: str, files: Filesystem) -> str | None:
    """The path of the stored text; ``None`` if these files have no place for it."""
    if files.output_folder is None:
        return None
    path = files.output_folder / f"{_NOT_IN_A_NAME.sub('-', tool)[:64]}.txt"
    try:
        if files.resolve(path) != path:
            return None  # a link leads to a file of the user
        files.write_text(path, "\n".join(_wrapped(text)))
    except FilesystemError:
        return None  # the directory is read-only, or a file has its name
    return str(path)


def _wrapped(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        for start in range(0, max(1, len(line)), _LINE_CHARS):
            yield line[start : start + _LINE_CHARS]
