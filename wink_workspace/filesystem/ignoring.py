r"""Which paths git ignores, by the rules of gitignore(5); runs no git, reads no configuration.

Rule 1: the answer is that of ``git ls-files --others --exclude-standard``, for the ignore files
that the caller names. A path below an ignored directory is ignored, whatever its own rule is.
Rule 2: names and patterns are bytes, as in git: ``?`` is one byte. Upper and lower case differ.
Rule 3: the time is bounded. Each pattern becomes an expression that cannot backtrack beyond its
own segment, and after ``_MOST_COMPARISONS`` comparisons no further path is ignored.

Git's wildcards: ``*`` and ``?`` match within a name, ``**/`` matches any directories, ``/**``
everything below, ``[a-z]`` and ``[[:alpha:]]`` one byte. ``!`` makes an exception. A leading or
inner ``/`` anchors a pattern at the directory of its file; a trailing one matches directories only.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

Parts: TypeAlias = tuple[str, ...]

RULES_NAME: Final = ".gitignore"
_MOST_COMPARISONS: Final = 20_000_000
_MANY_NAMES: Final = 16
_SPECIAL: Final = frozenset(b"*?[\\")
_CLASSES: Final = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, (*range(32), 127))),
    b"digit": string.digits,
    b"graph": "".join(map(chr, range(33, 127))),
    b"lower": string.ascii_lowercase,
    b"print": "".join(map(chr, range(32, 127))),
    b"punct": string.punctuation,
    b"space": string.whitespace,
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}


class _Rule(NamedTuple):
    """One pattern of an ignore file.

    ``text`` is compared as a whole, or as the end of a name (``is_suffix``). A pattern with
    wildcards has an ``expression``. It is matched against the last name if ``is_name``, else
    against the path from the directory of the ignore file.
    """

    is_exception: bool
    is_for_directories: bool
    is_name: bool
    text: bytes
    is_suffix: bool = False
    expression: re.Pattern[bytes] | None = None

    def matches(self, name: bytes, path: bytes, *, is_directory: bool) -> bool:
        """Whether it matches an entry; *path* is relative to the directory of the ignore file."""
        if self.is_for_directories and not is_directory:
            return False
        subject = name if self.is_name else path
        if self.expression is not None:
            return self.expression.fullmatch(subject) is not None
        return subject.endswith(self.text) if self.is_suffix else subject == self.text


def _parsed(content: bytes) -> tuple[_Rule, ...]:
    """The rules of a ``.gitignore`` or ``info/exclude``, in reverse: the last match counts."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    found = (_rule(line.removesuffix(b"\r")) for line in lines if line[:1] != b"#")
    return tuple(rule for rule in found if rule is not None)[::-1]


def _rule(line: bytes) -> _Rule | None:
    pattern = _without_trailing_spaces(line.partition(b"\0")[0])
    is_exception = pattern.startswith(b"!")
    pattern = pattern[is_exception:]
    is_for_directories = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    is_name = b"/" not in pattern
    pattern = pattern if is_name else pattern.removeprefix(b"/")
    if not pattern:
        return None
    about = (is_exception, is_for_directories, is_name)
    if not _SPECIAL.intersection(pattern):
        return _Rule(*about, pattern)
    if is_name and pattern[:1] == b"*" and not _SPECIAL.intersection(pattern[1:]):
        return _Rule(*about, pattern[1:], is_suffix=True)
    expression = _expression(pattern)
    return None if expression is None else _Rule(*about, pattern, expression=expression)


def _without_trailing_spaces(line: bytes) -> bytes:
    """*line* without the spaces at its end, but with one that a backslash escapes."""
    end = len(line)
    while end and line[end - 1 : end] == b" ":
        end -= 1
    n_backslashes = end - len(line[:end].rstrip(b"\\"))
    return line[: end + 1] if n_backslashes % 2 else line[:end]


# ------------------------------------------------------------------------------ wildcards


def _expression(pattern: bytes) -> re.Pattern[bytes] | None:
    r"""The pattern as an expression; ``None`` for one that never matches in git.

    The text after a wildcard is tried only at the first position where it matches (``(?>...)``).
    A later position cannot match better: between two ``*`` is text of fixed length inside one
    name, and between two ``**/`` a fixed number of names. This bounds the time.
    """
    literal = next(at for at, byte in enumerate(pattern) if byte in _SPECIAL)
    parts = [re.escape(pattern[:literal])]
    n_open_directories = n_open_stars = 0
    at = literal
    while at < len(pattern):
        match pattern[at : at + 1]:
            case b"*":
                stars = len(pattern) - at - len(pattern[at:].lstrip(b"*"))
                # Git removes the text before the first wildcard, and then looks for "/".
                is_free = stars > 1 and (at == literal or pattern[at - 1 : at] == b"/")
                at += stars
                parts.append(b")" * n_open_stars)
                n_open_stars = 0
                if is_free and at == len(pattern):
                    parts.append(rb"[\s\S]*")
                elif is_free and pattern[at : at + 1] == b"/":
                    at += 1
                    parts.append(b")" * n_open_directories + rb"(?>(?:[^/]*+/)*?")
                    n_open_directories = 1
                else:
                    parts.append(rb"(?>[^/]*?")
                    n_open_stars = 1
            case b"?":
                parts.append(b"[^/]")
                at += 1
            case b"[":
                found = _bracket(pattern, at + 1)
                if found is None:
                    return None
                accepted, at = found
                parts.append(_one_of(accepted - {ord("/")}))
            case b"\\":
                if at + 1 == len(pattern):
                    return None
                parts.append(re.escape(pattern[at + 1 : at + 2]))
                at += 2
            case other:
                parts.append(re.escape(other))
                at += 1
    return re.compile(b"".join(parts) + rb"\Z" + b")" * (n_open_stars + n_open_directories))


def _one_of(accepted: frozenset[int]) -> bytes:
    if not accepted:
        return b"(?!)"
    return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(accepted)) + b"]"


def _bracket(pattern: bytes, at: int) -> tuple[frozenset[int], int] | None:
    """The bytes that a bracket matches, and the index after it; ``None`` if it has no end.

    *at* is the index after the ``[``. A ``]`` as the first byte is one of the bytes.
    """
    is_negated = pattern[at : at + 1] in (b"!", b"^")
    at += is_negated
    accepted: set[int] = set()
    previous = 0
    is_first = True
    while is_first or pattern[at : at + 1] != b"]":
        is_first = False
        if at >= len(pattern):
            return None
        if pattern[at : at + 2] == b"[:":
            end = pattern.find(b"]", at + 2)
            if end < 0:
                return None
            if pattern[end - 1 : end] == b":" and end > at + 2:
                named = _CLASSES.get(pattern[at + 2 : end - 1])
                if named is None:
                    return None
                accepted.update(named.encode())
                previous, at = 0, end + 1
                continue
        is_range = pattern[at : at + 1] == b"-" and previous and pattern[at + 1 : at + 2] != b"]"
        at += bool(is_range)
        at += pattern[at : at + 1] == b"\\"
        if at >= len(pattern):
            return None
        if is_range:
            accepted.update(range(previous, pattern[at] + 1))
        else:
            accepted.add(pattern[at])
        previous = 0 if is_range else pattern[at]
        at += 1
    found = frozenset(accepted)
    return (frozenset(range(256)) - found if is_negated else found), at + 1


# ---------------------------------------------------------------------------------- rules


class IgnoreRules:
    """The ignore rules of a directory and its subdirectories.

    Args:
        read: Returns the ``.gitignore`` of a directory, or ``None``. Called once for each.
        is_repository: Whether a directory is a repository of its own. Rules of the directories
            above it do not apply in it.
        exclude: Returns the ``info/exclude`` of the repository in a directory.
        above: The path of the directory in the repository that contains it, if any. The paths
            given to *read*, *is_repository* and *exclude* are then relative to that repository.
    """

    def __init__(
        self,
        read: Callable[[Parts], bytes | None],
        *,
        is_repository: Callable[[Parts], bool],
        exclude: Callable[[Parts], bytes | None],
        above: Parts = (),
    ) -> None:
        self._read = read
        self._is_repository = is_repository
        self._exclude = exclude
        self._above = above
        self._files: dict[Parts, tuple[_Rule, ...]] = {}
        self._tops: dict[Parts, int] = {}
        self._directories: dict[Parts, bool] = {}
        self._n_left = _MOST_COMPARISONS

    def ignores(self, parts: Parts, *, is_directory: bool = False) -> bool:
        """Whether git ignores this path, provided that it is not tracked."""
        whole = (*self._above, *parts)
        for n in range(max(len(self._above), self.top(whole[:-1])) + 1, len(whole)):
            if self._ignores_directory(whole[:n]):
                return True
        return self._ignores_directory(whole) if is_directory else self._matched(whole, False)

    def ignores_itself(self) -> bool:
        """Whether the repository that contains the directory ignores it or a parent of it."""
        above = self._above
        return any(self._ignores_directory(above[:n]) for n in range(1, len(above) + 1))

    def _ignores_directory(self, whole: Parts) -> bool:
        if whole not in self._directories:
            self._directories[whole] = self._matched(whole, True)
        return self._directories[whole]

    def top(self, directory: Parts) -> int:
        """The number of parts of the path of the innermost repository that contains *directory*."""
        if len(directory) <= len(self._above):
            return 0
        if directory not in self._tops:
            is_top = self._is_repository(directory)
            self._tops[directory] = len(directory) if is_top else self.top(directory[:-1])
        return self._tops[directory]

    def _matched(self, whole: Parts, is_directory: bool) -> bool:
        """Whether the last matching rule ignores the path; the innermost ignore file decides."""
        names = [name.encode("utf-8", "surrogateescape") for name in whole]
        top = self.top(whole[:-1])
        for n in range(len(whole) - 1, top - 1, -1):
            verdict = self._verdict(self._rules(whole[:n]), names[n:], is_directory)
            if verdict is not None:
                return verdict
        exclude = self._rules((*whole[:top], ""), lambda: self._exclude(whole[:top]))
        return self._verdict(exclude, names[top:], is_directory) or False

    def _verdict(
        self, rules: Sequence[_Rule], names: Sequence[bytes], is_directory: bool
    ) -> bool | None:
        self._n_left -= len(rules)
        if not rules or self._n_left < 0:
            return None
        path = b"/".join(names)
        for rule in rules:
            if rule.matches(names[-1], path, is_directory=is_directory):
                return not rule.is_exception
        return None

    def _rules(
        self, key: Parts, read: Callable[[], bytes | None] | None = None
    ) -> tuple[_Rule, ...]:
        if key not in self._files:
            content = self._read(key) if read is None else read()
            self._files[key] = () if content is None else _parsed(content)
        return self._files[key]


class PathPatterns:
    """A fixed list of patterns, without exceptions.

    Args:
        patterns: In the syntax of one line of a ``.gitignore``: ``*.pem`` matches at any depth,
            ``/dist`` and ``docs/build`` are relative to the root, ``out/`` is for directories.

    Raises:
        ValueError: If a pattern is empty, is an exception or a comment, or can match nothing.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        names: set[str] = set()
        suffixes: set[str] = set()
        prefixes: set[str] = set()
        paths: dict[Parts, set[str]] = {}
        name_expressions: list[bytes] = []
        path_expressions: list[bytes] = []
        for_directories: list[str] = []
        for pattern in patterns:
            rule = None if pattern[:1] in ("", "!", "#") else _rule(_encoded(pattern))
            if rule is None:
                raise ValueError(pattern)
            if rule.is_for_directories:
                for_directories.append(pattern.partition("\0")[0].rstrip(" ").removesuffix("/"))
                continue
            beginning = rule.text[:-1]
            if rule.is_name and rule.text[-1:] == b"*" and not _SPECIAL.intersection(beginning):
                prefixes.add(beginning.decode("utf-8", "surrogateescape"))
                continue
            if rule.expression is not None:
                found = name_expressions if rule.is_name else path_expressions
                found.append(rule.expression.pattern)
                continue
            text = rule.text.decode("utf-8", "surrogateescape")
            if not rule.is_name:
                *directory, name = text.split("/")
                paths.setdefault(tuple(directory), set()).add(name)
            elif rule.is_suffix:
                suffixes.add(text)
            else:
                names.add(text)
        self._names, self._paths = frozenset(names), paths
        self._prefixes, self._suffixes = tuple(prefixes), tuple(suffixes)
        self._ends = (*(f"\0{text}" for text in prefixes), *(f"{text}\0" for text in suffixes))
        self._in_names = _any_of(name_expressions)
        self._in_paths = _any_of(path_expressions)
        self._for_directories = PathPatterns(for_directories) if for_directories else None

    def match(self, parts: Parts, *, is_directory: bool = False) -> bool:
        """Whether a pattern matches this path itself; a pattern for a parent does not count."""
        return bool(self.matching(parts[:-1], parts[-1:], parts[-1:] if is_directory else ()))

    def matching(
        self, directory: Parts, names: Sequence[str], directories: Sequence[str] = ()
    ) -> set[str]:
        """Those of the *names* in *directory* that match; fast for many names.

        *directories* are those of them that are directories.
        """
        found = self._names.intersection(names)
        if len(names) < _MANY_NAMES or self._may_match_an_end(names):
            found = found.union(
                name
                for name in names
                if name.endswith(self._suffixes) or name.startswith(self._prefixes)
            )
        if directory in self._paths:
            found |= self._paths[directory].intersection(names)
        if self._in_names is not None:
            found |= {name for name in names if self._in_names.fullmatch(_encoded(name))}
        if self._in_paths is not None:
            above = "".join(f"{part}/" for part in directory)
            found |= {name for name in names if self._in_paths.fullmatch(_encoded(above + name))}
        if self._for_directories is not None and directories:
            found |= self._for_directories.matching(directory, directories)
        return set(found)

    def _may_match_an_end(self, names: Sequence[str]) -> bool:
        """Whether one of many names may have such a suffix or prefix; no name has a NUL."""
        joined = "\0".join(("", *names, ""))
        return any(text in joined for text in self._ends)


@lru_cache(maxsize=64)
def path_patterns(patterns: tuple[str, ...]) -> PathPatterns:
    """The ``PathPatterns`` of a list, made once: each opening of a workspace needs several."""
    return PathPatterns(patterns)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _any_of(expressions: Sequence[bytes]) -> re.Pattern[bytes] | None:
    return re.compile(b"(?:" + b")|(?:".join(expressions) + b")") if expressions else None
