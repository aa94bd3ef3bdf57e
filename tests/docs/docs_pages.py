"""The pages of the documentation, parsed for the checks.

A page is a Markdown file of the repository, or the docstring and comments of an example. Every
check takes a `Page`, so that a test can pass a faulty one.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"(?P<indent> *)(?P<ticks>```+)(?P<language>.*)")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(\s*([^)\s]+)\s*\)")
_REFERENCE = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.+?) -->\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block of code."""

    line: int
    language: str
    text: str
    reason_not_to_run: str = ""


@dataclass(frozen=True)
class Page:
    """One page and its parts."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def _parts(self) -> tuple[str, tuple[Block, ...]]:
        """The prose, with empty lines in place of the blocks, and the blocks."""
        prose: list[str] = []
        blocks: list[Block] = []
        opened: re.Match[str] | None = None
        inside: list[str] = []
        for number, line in enumerate(self.text.splitlines(), 1):
            fence = _FENCE.fullmatch(line)
            if opened is None and fence is None:
                prose.append(line)
                continue
            if opened is None:
                opened, inside = fence, []
                note = _NOT_RUN.search("\n".join(prose))
                reason = note["reason"] if note else ""
            elif fence and fence["ticks"] == opened["ticks"] and not fence["language"].strip():
                language = opened["language"].strip()
                begin = number - len(inside) - 1
                blocks.append(Block(begin, language, "\n".join(inside) + "\n", reason))
                opened = None
            else:
                inside.append(line.removeprefix(opened["indent"]))
            prose.append("")
        assert opened is None, f"{self.name}: the last block is not closed"
        return "\n".join(prose), tuple(blocks)

    @property
    def prose(self) -> str:
        return self._parts[0]

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self._parts[1]

    @cached_property
    def spans(self) -> tuple[tuple[int, str], ...]:
        """The text of each span in backticks, with its line; a line break counts as a space."""
        return tuple(
            (self.prose.count("\n", 0, found.start()) + 1, re.sub(r"\s*\n\s*", " ", found[2]))
            for found in _SPAN.finditer(self.prose)
        )

    @cached_property
    def links(self) -> tuple[str, ...]:
        prose = _SPAN.sub("", self.prose)
        return tuple(found[1] for rx in (_LINK, _REFERENCE) for found in rx.finditer(prose))

    @cached_property
    def anchors(self) -> frozenset[str]:
        """The anchors of the headings, as GitHub makes them."""
        found: dict[str, int] = {}
        anchors: set[str] = set()
        for heading in _HEADING.findall(self.prose):
            slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            n_before = found.get(slug, 0)
            found[slug] = n_before + 1
            anchors.add(f"{slug}-{n_before}" if n_before else slug)
        return frozenset(anchors)

    def shell_lines(self) -> Iterator[tuple[int, str]]:
        """The lines of shell blocks and the spans, with continuation lines joined."""
        for block in self.blocks:
            if block.language == "sh":
                joined = re.sub(r"\\\n\s*", " ", block.text)
                yield from ((block.line, line) for line in joined.splitlines() if line.strip())
        yield from self.spans


def _words_of_program(path: Path) -> str:
    """The docstring and the comments of a program, as prose."""
    source = path.read_text(encoding="utf-8")
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    words = [token.string.strip("\"'") for token in tokens if token.type == tokenize.STRING][:1]
    comments = [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join([*words, *comments])


def _is_ours(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return not any(part.startswith(".") or part == "node_modules" for part in parts)


def _read_pages() -> Iterator[Page]:
    for path in sorted(filter(_is_ours, ROOT.glob("*.md"))):
        yield Page(path, path.read_text(encoding="utf-8"))
    for folder in ("docs", "images", "benchmarks", "examples", "tests", "wink_workspace"):
        for path in sorted(filter(_is_ours, (ROOT / folder).rglob("*.md"))):
            yield Page(path, path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield Page(path, _words_of_program(path))


PAGES = tuple(_read_pages())


def sample(text: str) -> Page:
    """A page that does not exist on disk, in the folder of the README."""
    return Page(ROOT / "sample.md", text)
