"""The format of the ledger's commits: a subject line, then trailers.

::

    write_file src/app.py

    Wink-Kind: call
    Wink-Number: 17
    Wink-Tool: write_file
    Wink-Call: toolu_01
    Wink-Outcome: committed

Every value is one line without control characters, so a tool name or call id from a model cannot
forge a trailer. To compare a value with a stored one, pass it through ``one_line`` first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from wink_workspace.errors import LedgerDamagedError

_WHO: Final = "wink_workspace <wink_workspace@localhost>"
_MAX_VALUE_CHARS: Final = 200
_ID_CHARS: Final = 40
MAX_SUBJECT_CHARS: Final = 72
NO_SUBJECT: Final = "(no subject)"
_TRAILER = re.compile(r"Wink-([A-Z][a-z]+): (.*)")
_TREE = re.compile(r"tree ([0-9a-f]{40})\n")
_PARENT = re.compile(r"\nparent ([0-9a-f]{40})\n")
_COMMITTER = re.compile(r"\ncommitter .* (-?[0-9]+) [+-][0-9]{4}")


class Commit(NamedTuple):
    """A commit object; ``at`` has no fraction of a second, names in ``trailers`` no ``Wink-``.

    ``one_line`` makes the subject and each trailer from text that comes from outside.
    """

    tree: str
    parent: str | None
    at: datetime
    subject: str
    trailers: Mapping[str, str]


def is_number(name: str) -> bool:
    """Whether *name* can be the number of an entry or a discard: digits, no more than an id has."""
    return name.isdecimal() and len(name) <= _ID_CHARS


def one_line(text: str, limit_chars: int = _MAX_VALUE_CHARS) -> str:
    """*text* as one printable line, cut to *limit_chars*."""
    shown = text[: 4 * limit_chars]
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() else " " for char in shown)
    line = " ".join(shown.split())
    return line if len(line) <= limit_chars else line[: limit_chars - 1] + "…"


def format_commit(commit: Commit) -> bytes:
    """The content of the commit's object, without empty trailers."""
    who = f"{_WHO} {int(commit.at.timestamp())} +0000"
    parent = f"parent {commit.parent}\n" if commit.parent else ""
    text = f"tree {commit.tree}\n{parent}author {who}\ncommitter {who}\n\n{commit.subject}\n\n"
    for name, line in commit.trailers.items():
        if line:
            text += f"Wink-{name}: {line}\n"
    return text.encode()


def parse_commit(commit_id: str, content: bytes) -> Commit:
    """Parse the *content* of a commit object.

    Raises:
        LedgerDamagedError: If ``format_commit`` did not make it.
    """
    head, _, message = content.decode("utf-8", "replace").partition("\n\n")
    tree, parent, when = _TREE.match(head), _PARENT.search(head), _COMMITTER.search(head)
    if tree is None or when is None:
        raise LedgerDamagedError(f"object {commit_id} is not a commit of a ledger")
    subject, _, rest = message.partition("\n")
    return Commit(
        tree=tree[1],
        parent=None if parent is None else parent[1],
        at=datetime.fromtimestamp(int(when[1]), UTC),
        subject=subject,
        trailers={found[1]: found[2] for found in _TRAILER.finditer(rest)},
    )
