"""The line of each key in a TOML file, for messages."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given, reject
from hypothesis import strategies as st

from wink_workspace.project.toml_file import KeyPath, TomlFile

TRICKY = b"""# comment
title = "x # [not.a.table]"

[a.b]  # a comment ]
c.d = [
    1,  # ]
    [2, 3],

    "]",
]
text = '''
[fake]
key = 1
'''
more = \"\"\"
one \\
]
\"\"\"
"\\u0061 b" = { e = 1, f = { g = 2 } }

[[many]]
x = 1
[[many]]
y = 2
[last]
"""


def test_lines_are_those_at_which_a_statement_begins() -> None:
    assert dict(TomlFile.parse("x", TRICKY).lines) == {
        ("title",): 2,
        ("a",): 4,
        ("a", "b"): 4,
        ("a", "b", "c"): 5,
        ("a", "b", "c", "d"): 5,
        ("a", "b", "text"): 11,
        ("a", "b", "more"): 15,
        ("a", "b", "a b"): 19,
        ("a", "b", "a b", "e"): 19,
        ("a", "b", "a b", "f"): 19,
        ("a", "b", "a b", "f", "g"): 19,
        ("many",): 21,
        ("many", "x"): 22,
        ("many", "y"): 24,
        ("last",): 25,
    }


def test_line_of_a_key_without_one_is_that_of_its_table() -> None:
    toml = TomlFile.parse("x", b"\n[a]\nb = 1\n")
    assert (toml.line(("a", "b", "c")), toml.line(("a", "z")), toml.line(("z",))) == (3, 2, 1)


VALUES = st.sampled_from(
    ["1", '"a]"', "[]", "[\n1,\n]", "'''\n[x]\n\ny = 1\n'''", "{a = 1, b.c = 2}", "1979-05-27"]
)
STATEMENTS = st.one_of(
    st.builds("{} = {}".format, st.sampled_from(["a", "b.c", '"d e"', "f"]), VALUES),
    st.builds("[{}]".format, st.sampled_from(["g", "h.i", "j"])),
    st.sampled_from(["", "# [k]", "[[l]]"]),
)


@given(st.lists(STATEMENTS, max_size=12).map("\n".join))
def test_every_key_has_a_line_on_which_a_statement_with_it_begins(text: str) -> None:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        reject()
    lines = TomlFile.parse("x", text.encode()).lines
    all_lines = text.split("\n")
    for path in keys(table):
        assert path in lines
        assert all_lines[lines[path] - 1].strip()


def keys(table: dict[str, Any], above: KeyPath = ()) -> list[KeyPath]:
    found: list[KeyPath] = []
    for name, value in table.items():
        found.append((*above, name))
        if isinstance(value, dict):
            found += keys(value, (*above, name))
    return found
