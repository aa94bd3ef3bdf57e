"""``replace_text`` changes the given text and no other byte."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_cases import examples

from wink_workspace.errors import BinaryFileError, EditError
from wink_workspace.filesystem.edits import replace_text


def edited(data: bytes, old: str, new: str, *, replace_all: bool = False) -> bytes:
    return replace_text(data, old, new, replace_all=replace_all).data


@pytest.mark.behaviour(50)
@pytest.mark.parametrize(
    ("data", "old", "new", "expected"),
    [
        pytest.param(b"a\nb\n", "b", "c", b"a\nc\n", id="plain"),
        pytest.param(b"a\nb", "b", "c", b"a\nc", id="no final newline"),
        pytest.param(b"a\nb", "b\n", "c\n", b"a\nc", id="no final newline, the caller gives one"),
        pytest.param(b"a\nb", "b\n", "b\nc\n", b"a\nb\nc", id="a line after the last one"),
        pytest.param(b"a\nb", "b\n", "", b"a", id="the last line taken out"),
        pytest.param(b"a\nb", "b", "b\n", b"a\nb\n", id="a final newline asked for"),
        pytest.param(b"a\nb\n", "b\n", "b", b"a\nb", id="a final newline taken out"),
        pytest.param(b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n", id="CRLF"),
        pytest.param(b"a\r\nb\r\n", "a\n", "a\nx\n", b"a\r\nx\r\nb\r\n", id="CRLF, a line added"),
        pytest.param(b"a\r\nb\r\n", "b", "b\nx", b"a\r\nb\r\nx\r\n", id="CRLF, added in one line"),
        pytest.param(
            b"a\r\nb\r\n", "b\n", "b\nx\n", b"a\r\nb\r\nx\r\n", id="CRLF, added at the end"
        ),
        pytest.param(b"a\r\nb", "b\n", "b\nx\n", b"a\r\nb\r\nx", id="CRLF, no final line end"),
        pytest.param(
            b"a\r\nb\nc\r\n",
            "a\nb\nc\n",
            "A\nB\nC\nD\n",
            b"A\r\nB\nC\r\nD\r\n",
            id="mixed line ends",
        ),
        pytest.param(b"a\nb\r\nc\n", "c", "c\nd", b"a\nb\r\nc\nd\n", id="mixed, added near \\n"),
        pytest.param(b"a\rb\n", "b", "c", b"a\rc\n", id="a lone carriage return"),
        pytest.param(
            b"a\r\nb\r\n", "a\r\nb", "a\nb", b"a\nb\r\n", id="line ends changed on purpose"
        ),
        pytest.param(b"a\n", "a\n", "a\r\nb\r\n", b"a\r\nb\r\n", id="CRLF put in on purpose"),
        pytest.param(
            b"\x0c\x1c\xe2\x80\xa8 a\n", "a", "b", b"\x0c\x1c\xe2\x80\xa8 b\n", id="odd lines"
        ),
        pytest.param("é\n".encode(), "é", "ü", "ü\n".encode(), id="UTF-8"),
    ],
)
def test_an_edit_keeps_line_ends_and_the_final_newline_or_its_absence(
    data: bytes, old: str, new: str, expected: bytes
) -> None:
    assert edited(data, old, new) == expected


@pytest.mark.behaviour(50)
@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ],
)
def test_an_edit_keeps_byte_order_mark_and_encoding(mark: bytes, encoding: str) -> None:
    data = mark + "é one\r\ntwo".encode(encoding)
    result = edited(data, "é one\ntwo", "ü\none\ntwo")
    assert result == mark + "ü\r\none\r\ntwo".encode(encoding)


@pytest.mark.behaviour(50)
@given(
    lines=st.lists(
        st.tuples(st.sampled_from(["a", "b", "", "é\t"]), st.sampled_from(["\n", "\r\n"])),
        max_size=8,
    ),
    tail=st.sampled_from(["", "end"]),
    new=st.text("xy\n", max_size=4),
    data=st.data(),
)
@settings(max_examples=examples(60))
def test_an_edit_of_whole_lines_leaves_the_lines_around_it_byte_for_byte(
    lines: list[tuple[str, str]], tail: str, new: str, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(lines)))
    last = data.draw(st.integers(first, len(lines)))
    text = "".join(line + end for line, end in lines) + tail
    old = "".join(f"{line}\n" for line, _ in lines[first:last])
    plain = text.replace("\r\n", "\n")
    assume(old and old != new and plain.count(old) == 1 and (plain + "\n").count(old) == 1)
    assume(plain.find(old, plain.index(old) + 1) == -1)
    before, after = (
        "".join(line + end for line, end in part).encode() for part in (lines[:first], lines[last:])
    )
    result = edited(text.encode(), old, new)
    assert result.startswith(before)
    assert result.endswith(after + tail.encode())
    middle = result[len(before) : len(result) - len(after) - len(tail)]
    assert middle.decode().replace("\r\n", "\n") == new


@pytest.mark.behaviour(51)
def test_replace_all_replaces_and_counts_every_match() -> None:
    result = replace_text(b"x = 1\ny = 1\r\nz = 1", "1", "2", replace_all=True)
    assert result.data == b"x = 2\ny = 2\r\nz = 2"
    assert result.n_replaced == 3
    assert result.first_line == 1


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [("two", "2", 2), ("one\ntwo", "one\n2", 2), ("three\n", "three\nx\n", 4)],
)
def test_first_line_is_the_first_changed_line_and_not_the_first_matched(
    old: str, new: str, line: int
) -> None:
    assert replace_text(b"one\r\ntwo\r\nthree", old, new).first_line == line


@pytest.mark.behaviour(51)
@pytest.mark.parametrize(
    ("data", "old", "message"),
    [
        (b"x\ny\nx\n", "x", "2 times in notes.py, in lines 1, 3"),
        (b"aaa\n", "aa", "2 times in notes.py, in lines 1, 1"),
        (b"x\n" * 40, "x", "40 times in notes.py, in lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"),
    ],
)
def test_a_text_that_is_not_unique_is_refused_with_the_count_and_the_lines(
    data: bytes, old: str, message: str
) -> None:
    with pytest.raises(EditError, match="unique") as refused:
        replace_text(data, old, "new", path="notes.py")
    assert message in refused.value.message


SOURCE = b"""import os


def area(width, height):
    return width * height


def volume(width, height, depth):
    return area(width, height) * depth
"""


@pytest.mark.behaviour(51)
@pytest.mark.parametrize(
    ("old", "message"),
    [
        ("def area(width,height):", "     4 | def area(width, height):"),
        (
            "    return area(width, height) * deep",
            "     9 |     return area(width, height) * depth",
        ),
        ("import os\n\ndef area(w, h):", "     1 | import os\n     2 | \n     3 | "),
        ("def volume(width, height, depth):\n  pass", "     8 | def volume(width, height, depth):"),
    ],
)
def test_a_near_miss_shows_the_nearest_text_with_its_lines(old: str, message: str) -> None:
    with pytest.raises(EditError, match="white space") as refused:
        replace_text(SOURCE, old, "new", path="shapes.py")
    assert message in refused.value.message


def test_a_text_unlike_all_in_the_file_is_refused_without_a_suggestion() -> None:
    with pytest.raises(EditError, match=r"nothing in it is similar.* Read the file"):
        replace_text(SOURCE, "qqq zzz\n", "new")


def test_a_near_miss_in_a_huge_file_shows_a_few_lines_of_it() -> None:
    lines = [f"value_{n} = {n} * 'some text'" for n in range(100_000)]
    data = ("\n".join(lines) + "\n" + "x" * 100_000 + "\n" + "y\n" * 100).encode()
    old = "value_77777 = 77777 * 'same text'"
    with pytest.raises(EditError) as refused:
        replace_text(data, old, "new")
    assert "77778 | value_77777" in refused.value.message
    with pytest.raises(EditError) as refused:
        replace_text(data, "x" * 100_000 + "\n" + "y\n" * 99 + "z\n", "new")
    assert "89 more lines" in refused.value.message
    assert len(refused.value.message) < 1_000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "x", "empty"),
        ("import os", "import os", "the same"),
        ("import os", "\ud800", "lone surrogate"),
        ("import os\r\n", "x", "not in"),
    ],
)
def test_an_edit_that_makes_no_sense_is_refused_with_a_hint(
    old: str, new: str, message: str
) -> None:
    with pytest.raises(EditError, match=message) as refused:
        replace_text(SOURCE, old, new)
    assert refused.value.hint


@pytest.mark.parametrize(
    "data",
    [b"a\0b", b"\xff\xfea", b"caf\xe9\1\n", "a\0".encode("utf-16"), b"\xfe\xff\xd8\x00\x00\x41"],
)
def test_a_file_that_is_not_text_is_refused(data: bytes) -> None:
    with pytest.raises(BinaryFileError, match="not text"):
        replace_text(data, "a", "b")


def test_an_empty_file_has_nothing_to_replace() -> None:
    with pytest.raises(EditError, match="not in notes"):
        replace_text(b"", "a\n", "b\n", path="notes")


@pytest.mark.parametrize(
    ("data", "old", "message"),
    [
        pytest.param(
            "def f():\n\treturn 1\n",
            "def f():\n    return 1",
            "line 2, column 1: the file has a tab here, the text to replace has 4 spaces",
            id="tab",
        ),
        pytest.param(
            "def f():\n    return 1\n",
            "def f():\n\treturn 1",
            "line 2, column 1: the file has 4 spaces here, the text to replace has a tab",
            id="spaces",
        ),
        pytest.param(
            "x =\u00a01\ny = 2\n",
            "x = 1\ny = 2\n",
            "line 1, column 4: the file has U+00A0 (no-break space) here, the text to replace has a space",
            id="no-break space",
        ),
        pytest.param(
            "x = 1  \ny = 2\n",
            "x = 1\ny = 2\n",
            "line 1, column 6: the file has trailing white space (2 spaces) here, "
            "the text to replace has no trailing white space",
            id="trailing spaces",
        ),
        pytest.param(
            "x = 1\ny = 2\n",
            "x = 1 \ny = 2\n",
            "the file has no trailing white space here, the text to replace has trailing white "
            "space (a space)",
            id="trailing space sent",
        ),
        pytest.param(
            "x = 1\ny = 2\n",
            "x = 1\r\ny = 2\r\n",
            "line 1, column 6: the file has LF here, the text to replace has CRLF",
            id="CRLF sent",
        ),
        pytest.param(
            "x = 1\r\ny = 2\nz = 3\n",
            "x = 1\r\ny = 2\r\nz = 3",
            "line 2, column 6: the file has LF here, the text to replace has CRLF",
            id="CRLF in part",
        ),
        pytest.param(
            "say(\u2018hi\u2019)\n",
            "say('hi')",
            "line 1, column 5: the file has U+2018 (left single quotation mark) here, "
            "the text to replace has U+0027 (apostrophe)",
            id="quotes",
        ),
        pytest.param(
            "    total = price\u2009* count  # sum\n",
            "price * count",
            "line 1, column 18: the file has U+2009 (thin space) here, the text to replace has a space",
            id="in the middle of a line",
        ),
        pytest.param(
            "caf\u00e9 = 1\n",
            "cafe\u0301 = 1",
            "line 1, column 4: the file has U+00E9 (latin small letter e with acute) here",
            id="composed",
        ),
        pytest.param(
            "def area(width, height):\n",
            "def area(width, heigth):",
            "line 1, column 17: the file has 'height):' here, the text to replace has 'heigth):'",
            id="a visible one",
        ),
    ],
)
def test_a_near_miss_names_the_difference_even_if_it_is_invisible(
    data: str, old: str, message: str
) -> None:
    with pytest.raises(EditError) as refused:
        replace_text(data.encode(), old, "new", path="f")
    assert message in refused.value.message
