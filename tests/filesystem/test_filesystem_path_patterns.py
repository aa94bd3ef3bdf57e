"""``PathPatterns`` matches what a line of a ``.gitignore`` matches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wink_workspace.filesystem.ignoring import IgnoreRules, PathPatterns

PATTERNS = st.lists(
    st.sampled_from(["a", "b", "*", "?", "/", "**", ".", "[ab]", "\\*", "é", "a*", "*b", "/a"]),
    min_size=1,
    max_size=5,
).map("".join)
NAMES = st.sampled_from(["a", "b", "ab", "a.b", "*", "é", ".a", "ba", "B", "\udcff"])


def matches(pattern: str, parts: tuple[str, ...], is_directory: bool) -> bool:
    patterns = PathPatterns([pattern])
    return any(
        patterns.match(parts[:n], is_directory=is_directory or n < len(parts))
        for n in range(1, len(parts) + 1)
    )


def ignores(pattern: str, parts: tuple[str, ...], is_directory: bool) -> bool:
    rules = IgnoreRules(
        lambda directory: pattern.encode() if not directory else None,
        is_repository=lambda _: False,
        exclude=lambda _: None,
    )
    return rules.ignores(parts, is_directory=is_directory)


@given(PATTERNS, st.lists(NAMES, min_size=1, max_size=4).map(tuple), st.booleans())
def test_pattern_matches_the_paths_that_the_same_ignore_rule_ignores(
    pattern: str, parts: tuple[str, ...], is_directory: bool
) -> None:
    try:
        found = matches(pattern, parts, is_directory)
    except ValueError:
        assert not ignores(pattern, parts, is_directory)
    else:
        assert found == ignores(pattern, parts, is_directory)


@pytest.mark.parametrize("pattern", ["", "!a", "#a", "/", "[a", "a\\"])
def test_pattern_that_can_match_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError):
        PathPatterns([pattern])


def test_many_patterns_match_as_each_of_them_alone() -> None:
    patterns = ["node_modules", "*.pem", ".env.*", "/dist", "docs/*/out", "x[0-9]y"]
    together = PathPatterns(patterns)
    paths = ["node_modules", "a/node_modules", "k.pem", "a/k.pem", ".env.x", ".env", "dist", "a/dist",
             "docs/1/out", "a/docs/1/out", "x5y", "xay"]  # fmt: skip
    for path in paths:
        parts = tuple(path.split("/"))
        assert together.match(parts) == any(PathPatterns([each]).match(parts) for each in patterns)
