r"""Literals that a regular expression requires: texts of which each match contains at least one.

A file without any of them cannot match, which ``in`` finds out much faster than a search.

Rule 1: when in doubt, there are no literals, and every line is searched. Only literal characters,
escaped punctuation, ``.``, classes, groups without flags, look-arounds, anchors, quantifiers and
alternatives are understood. Flags, back references, conditions, verbs and the like are not.
Rule 2: a character that a quantifier may repeat zero times is not required; nor is the content of
a group. Only the top level of the expression has alternatives.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["required_literals"]

_MAX_ALTERNATIVES: Final = 20

_TOKEN: Final = re.compile(
    r"""
      (?P<plain> [^\\.\[\](){}*+?|^$] )
    | \\ (?P<escaped> [^\w\s] )
    | (?P<one> \. | \\[wWdDsSbB] | \[ \^? \]? (?: [^\]\[\\] | \\[^pPNLxuU0-9] )* \] )
    | (?P<anchor> [\^$] )
    | (?P<open> \( (?: \?: | \?= | \?! | \?<= | \?<! | (?! [?*] ) ) )
    | (?P<close> \) )
    | (?P<or> \| )
    | (?P<many> [*+?][?+]? | \{ [0-9]* ,? [0-9]* \} [?+]? )
    """,
    re.VERBOSE,
)


def required_literals(pattern: str) -> tuple[str, ...]:
    """The longest literal of each alternative of *pattern*; none if one has no literal."""
    alternatives: list[str] = []
    best = run = ""
    depth = at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            return ()
        at, kind = token.end(), token.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
            if depth < 0:
                return ()
        if depth == 0 and kind in ("plain", "escaped"):
            run += token[kind]
            continue
        if depth == 0 and kind == "many":
            run = run[:-1]  # it may be repeated zero times
        if len(run) > len(best):
            best = run
        run = ""
        if depth == 0 and kind == "or":
            alternatives.append(best)
            best = ""
    alternatives.append(max(best, run, key=len))
    if depth or not all(alternatives) or len(alternatives) > _MAX_ALTERNATIVES:
        return ()
    return tuple(dict.fromkeys(alternatives))
