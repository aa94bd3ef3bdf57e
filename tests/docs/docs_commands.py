"""Commands in the documentation: our commands and options, make targets, extras.

The existing commands and options are read from ``--help``.
"""

from __future__ import annotations

import io
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from functools import cache

import pytest
from docs_pages import ROOT, Page

from wink_workspace.cli import main

FOREIGN = {"--basetemp": "pytest's"}
"""Options of other programs that stand alone in backticks."""

_OPTION = re.compile(r"--[a-z][a-z-]*")
_END = re.compile(r"[|;&<>]+")


@cache
def _help(command: tuple[str, ...]) -> str:
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(io.StringIO()) as out:
        patched.setenv("COLUMNS", "240")
        patched.setenv("TERM", "dumb")
        assert main([*command, "--help"]) == 0
    return out.getvalue()


def _panels(command: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The first column of each row of the help, with its panel."""
    panel = ""
    for line in _help(command).splitlines():
        if found := re.match(r"╭─ (.+?) ─", line):
            panel = found[1]
        elif found := re.match(r"│ (?:\* )? *(\S.*)", line):
            yield panel, found[1]


@cache
def subcommands(command: tuple[str, ...] = ()) -> frozenset[str]:
    return frozenset(
        text.split()[0]
        for panel, text in _panels(command)
        if panel not in ("Options", "Arguments") and re.match(r"[a-z]+  ", text)
    )


@cache
def options(command: tuple[str, ...]) -> frozenset[str]:
    return frozenset(
        option
        for panel, text in _panels(command)
        if panel not in ("Arguments", "Commands") and text.startswith("--")
        for option in _OPTION.findall(re.split(r"\s{2,}[<A-Z]", text)[0])
    )


GROUPS = {"image": "", "attempts": "start"}
"""The commands that have commands below them, with the one that is run without a name."""


@cache
def commands() -> frozenset[tuple[str, ...]]:
    return frozenset(
        (name, *more)
        for name in subcommands()
        for more in ([(each,) for each in subcommands((name,))] if name in GROUPS else [()])
    )


@cache
def all_options() -> frozenset[str]:
    return frozenset(option for command in commands() for option in options(command)) | options(())


def invocations(page: Page) -> Iterator[tuple[int, list[str]]]:
    """The words after ``wink-workspace``, wherever it occurs in *page*."""
    for line, text in page.shell_lines():
        words: list[str] = []
        with suppress(ValueError):  # not a shell line, such as one with an unmatched quote
            words = list(_words(text))
        if "wink-workspace" in words:
            yield line, _until_the_end(words[words.index("wink-workspace") + 1 :])
        elif words and words[0] in subcommands() and any(map(_OPTION.fullmatch, words)):
            yield line, _until_the_end(words)


def _words(text: str) -> Iterator[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.wordchars += "[]:@{}…"
    return iter(lexer)


def _until_the_end(words: list[str]) -> list[str]:
    ends = [n for n, word in enumerate(words) if word == "--" or _END.fullmatch(word)]
    return words[: min(ends, default=len(words))]


def unknown_commands(page: Page) -> list[str]:
    problems: list[str] = []
    for line, words in invocations(page):
        named = tuple(words[:2]) if words and words[0] in GROUPS else tuple(words[:1])
        if len(named) == 2 and named not in commands() and GROUPS[named[0]]:
            named = (named[0], GROUPS[named[0]])
        if not named or named[0].startswith("-"):
            named = ()
        elif named not in commands() and named[0] not in GROUPS:
            problems.append(f"{page.name}:{line}: there is no command {' '.join(named)!r}")
            continue
        used = {
            word.partition("=")[0] for word in words if _OPTION.fullmatch(word.partition("=")[0])
        }
        problems += [
            f"{page.name}:{line}: {' '.join(named)} has no option {option}"
            for option in sorted(used - options(named))
        ]
    for line, span in page.spans:
        option = span.split()[0] if span.strip() else ""
        if _OPTION.fullmatch(option) and option not in all_options() | FOREIGN.keys():
            problems.append(f"{page.name}:{line}: no command has the option {option}")
    return problems


def unknown_targets_and_extras(page: Page) -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].keys()
    problems: list[str] = []
    for line, text in page.shell_lines():
        if (found := re.match(r"make ([\w-]+)", text)) and found[1] not in targets:
            problems.append(f"{page.name}:{line}: the Makefile has no target {found[1]}")
        for group in re.findall(r"pip install .*\[([\w,]+)\]", text):
            problems += [
                f"{page.name}:{line}: there is no extra {extra}"
                for extra in group.split(",")
                if extra not in extras
            ]
    return problems
