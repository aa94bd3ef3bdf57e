"""Text in any encoding is read, found and changed; bytes outside of a change stay as they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from random_cases import examples
from support import SmallWorkspace, call_ok, call_refused, small_workspace
from text_samples import SAMPLES, Sample

from wink_workspace.errors import BinaryFileError, EditError, UsageError
from wink_workspace.filesystem import MemoryFilesystem, replace_text
from wink_workspace.filesystem.text import TextContent
from wink_workspace.sections import VfsToolsSection

each_sample = pytest.mark.parametrize(
    "sample", SAMPLES, ids=lambda each: f"{each.codec}{' guessed' * each.is_guessed}"
)


@pytest.fixture
def agent() -> Iterator[SmallWorkspace]:
    with small_workspace(sections=[VfsToolsSection()]) as agent:
        yield agent


def given_file(agent: SmallWorkspace, data: bytes) -> str:
    agent.filesystem.write_bytes("a.txt", data)
    return call_ok(agent, "read_file", file_path="a.txt")


@pytest.mark.behaviour(50)
@each_sample
def test_a_file_of_any_encoding_is_read_and_its_encoding_is_named(
    agent: SmallWorkspace, sample: Sample
) -> None:
    answer = given_file(agent, sample.data())
    assert f"\tend {sample.letters}\n" in answer + "\n"
    name = "" if sample.codec == "utf-8" and not sample.mark else f"(encoding: {sample.codec}"
    assert name.replace("-", "_") in answer.replace("-", "_")
    assert ("guessed" in answer) == sample.is_guessed


@pytest.mark.behaviour(49)
@each_sample
def test_grep_finds_text_in_a_file_of_any_encoding(agent: SmallWorkspace, sample: Sample) -> None:
    agent.filesystem.write_bytes("a.txt", sample.data())
    expected = [] if sample.codec == "utf-16-le" and sample.is_guessed else ["value = 1"]
    assert [match.text for match in agent.filesystem.grep("value").matches] == expected
    found = agent.filesystem.grep(f"^end {sample.letters}$").matches
    assert [match.text for match in found] == [f"end {sample.letters}"] * (not sample.is_guessed)


@pytest.mark.behaviour(50)
@each_sample
def test_edit_patch_and_write_change_only_the_bytes_of_the_changed_text(
    agent: SmallWorkspace, sample: Sample
) -> None:
    given_file(agent, sample.data())
    edit = {"file_path": "a.txt", "old_string": "value = 1\n", "new_string": "value = 2\n"}
    call_ok(agent, "edit_file", **edit)
    assert agent.filesystem.read_bytes("a.txt") == sample.data("value = 2")
    patch = (
        f"--- a/a.txt\n+++ b/a.txt\n@@\n # {sample.letters}\n-value = 2\n+value = 3\n+more = 4\n"
    )
    call_ok(agent, "apply_patch", patch=patch)
    changed = sample.data("value = 3\r\nmore = 4")
    assert agent.filesystem.read_bytes("a.txt") == changed
    written = sample.text("value = 4").replace("\r\n", "\n")
    call_ok(agent, "write_file", file_path="a.txt", content=written)
    assert agent.filesystem.read_bytes("a.txt") == sample.data("value = 4")


@pytest.mark.behaviour(50)
@pytest.mark.parametrize("odd", [b"\x87\x90", b"\xa1\xfe", b"\xff"], ids=["cp932", "big5", "any"])
@each_sample
def test_edit_patch_and_write_keep_bytes_that_the_encoding_would_write_otherwise(
    agent: SmallWorkspace, sample: Sample, odd: bytes
) -> None:
    """The first two are characters with two codes each, of which an encoder writes the other."""
    odd += b" end\r\n"
    if sample.codec.startswith(("utf-16", "utf-32")):
        odd = "a lone half ".encode(sample.codec) + "\ud800\r\n".encode(
            sample.codec, "surrogatepass"
        )
        agent.filesystem.write_bytes("a.txt", sample.data() + odd)
        call_refused(agent, "read_file", file_path="a.txt")
        return
    given_file(agent, sample.data() + odd)
    edit = {"file_path": "a.txt", "old_string": "value = 1\n", "new_string": "value = 2\n"}
    call_ok(agent, "edit_file", **edit)
    assert agent.filesystem.read_bytes("a.txt") == sample.data("value = 2") + odd
    call_ok(agent, "apply_patch", patch="--- a/a.txt\n+++ b/a.txt\n@@\n-value = 2\n+value = 3\n")
    assert agent.filesystem.read_bytes("a.txt") == sample.data("value = 3") + odd
    shown = agent.filesystem.read_text("a.txt").text + "\n"
    call_ok(agent, "write_file", file_path="a.txt", content=shown.replace("value = 3", "value = 4"))
    assert agent.filesystem.read_bytes("a.txt") == sample.data("value = 4") + odd


@pytest.mark.behaviour(50)
@each_sample
def test_letters_are_inserted_in_the_encoding_of_the_file_which_is_named_if_it_is_a_guess(
    agent: SmallWorkspace, sample: Sample
) -> None:
    given_file(agent, sample.data())
    new = f"value = {sample.letters[::-1]}"
    edit = {"file_path": "a.txt", "old_string": "value = 1", "new_string": new}
    patch = {"patch": f"--- a/a.txt\n+++ b/a.txt\n@@ -2 +2 @@\n-value = 1\n+{new}\n"}
    if sample.declaration:
        patch["patch"] = patch["patch"].replace("@@ -2 +2 @@", "@@")
    written = {"file_path": "a.txt", "content": sample.text(new).replace("\r\n", "\n")}
    for tool, arguments in (("edit_file", edit), ("apply_patch", patch), ("write_file", written)):
        agent.filesystem.write_bytes("a.txt", sample.data())
        call_ok(agent, "read_file", file_path="a.txt")
        if sample.is_guessed:
            answer = call_refused(agent, tool, **arguments)
            assert "a guess" in answer
            assert sample.codec.replace("-", "_") in answer.replace("-", "_")
            arguments["encoding"] = sample.codec
        call_ok(agent, tool, **arguments)
        assert agent.filesystem.read_bytes("a.txt") == sample.data(new), tool


@pytest.mark.behaviour(50)
@pytest.mark.parametrize(
    ("data", "new", "problem"),
    [
        pytest.param(b"# coding: latin-1\nx = 1\n", "x = 1\ny = 5 \u20ac", "line 3, column 7: iso8859-1 has no character '€' (U+20AC)", id="not in the encoding"),
        pytest.param("x = 1 é\n".encode(), "x = caf\ufffd", "line 1, column 8: U+FFFD stands for a byte", id="U+FFFD"),
        pytest.param(b"x = 1 caf\xe9", "x = caf\ufffd", "line 1, column 8: U+FFFD stands for a byte", id="U+FFFD for a guess"),
        pytest.param(b"# coding: shift_jis\nx = 1\n", "x = \u00a5", "line 2, column 5: shift_jis has no character '¥'", id="as another character"),
        pytest.param(b"# coding: iso2022_jp\nx = 1\n", "x = 2", "is in iso2022_jp, which is only read", id="states"),
        pytest.param("x = 1 これ\n".encode("iso2022_jp"), "x = 2", "is in iso2022_jp, which is only read", id="states, not declared"),
    ],
)  # fmt: skip
def test_a_character_that_the_file_does_not_take_is_refused_with_its_place(
    agent: SmallWorkspace, data: bytes, new: str, problem: str
) -> None:
    given_file(agent, data)
    answer = call_refused(agent, "edit_file", file_path="a.txt", old_string="x = 1", new_string=new)
    assert problem in answer
    whole = data.decode("latin-1").replace("x = 1", new)
    assert problem in call_refused(agent, "write_file", file_path="a.txt", content=whole)
    patch = "--- a/a.txt\n+++ b/a.txt\n@@\n-x = 1\n+{}\n".format(new.replace("\n", "\n+"))
    if data.count(b"\n") < 3 and b"coding" in data:
        assert problem in call_refused(agent, "apply_patch", patch=patch)


@pytest.mark.parametrize("codec", ["iso2022_jp", "utf-7"])
def test_a_declared_encoding_with_states_is_read_and_found_but_not_changed(
    agent: SmallWorkspace, codec: str
) -> None:
    data = f"# coding: {codec}\nx = 1 # ".encode() + "これは日本語\n".encode(codec)
    assert "これは日本語" in given_file(agent, data)
    assert agent.filesystem.grep("x = ").matches[0].text == "x = 1 # これは日本語"
    if codec == "iso2022_jp":  # the first step of a search sees only ASCII in UTF-7
        assert agent.filesystem.grep("日本語").matches[0].line == 2
        assert agent.filesystem.grep("[日]本").matches[0].line == 2


@pytest.mark.behaviour(50)
def test_an_edit_by_a_wrong_guess_never_splits_a_character(agent: SmallWorkspace) -> None:
    """In Shift JIS, the second byte of a character may be an ASCII letter."""
    data = "x = '\u8868 \u80fd'\n".encode("cp932")
    shown = data.decode("cp1252", "replace")
    assert "\\" in shown
    agent.filesystem.write_bytes("a.txt", b"# " + data)
    content = TextContent(data, "a.txt", TextContent.of(b"caf\xe9", "b", None).encoding)
    at = content.text.index("\\")
    with pytest.raises(EditError, match="in cp932, this would change a part of a character"):
        content.spliced([(at, at + 1, "/")])
    assert content.spliced([(0, 1, "y")]) == b"y" + data[1:]


@pytest.mark.behaviour(50)
def test_bytes_that_no_encoding_explains_are_kept_where_u_fffd_stands_for_them(
    agent: SmallWorkspace,
) -> None:
    text = "żółć, gęślą i jaźń\n".encode()
    data = text + b"caf\xe9 = 1\nna\xefve = \xff\n"
    assert "caf\ufffd = 1\n     3\tna\ufffdve = \ufffd\n" in given_file(agent, data)
    edit = {"old_string": "caf\ufffd = 1", "new_string": "un caf\ufffd = 2"}
    call_refused(agent, "edit_file", file_path="a.txt", **{**edit, "new_string": "\ufffd\ufffd"})
    call_ok(agent, "edit_file", file_path="a.txt", **edit)
    assert agent.filesystem.read_bytes("a.txt") == data.replace(b"caf\xe9 = 1", b"un caf\xe9 = 2")
    patch = "--- a/a.txt\n+++ b/a.txt\n@@\n-na\ufffdve = \ufffd\n+na\ufffdve = \ufffd # 2\n"
    call_ok(agent, "apply_patch", patch=patch)
    expected = data.replace(b"caf\xe9 = 1", b"un caf\xe9 = 2").replace(b"\xff", b"\xff # 2")
    assert agent.filesystem.read_bytes("a.txt") == expected
    shown = agent.filesystem.read_text("a.txt").text.replace("caf\ufffd = 2", "caf\ufffd = 3")
    call_ok(agent, "write_file", file_path="a.txt", content=shown + "\n")
    assert agent.filesystem.read_bytes("a.txt") == expected.replace(b"= 2", b"= 3")


@pytest.mark.behaviour(50)
@pytest.mark.parametrize(
    ("before", "arguments", "after", "kept"),
    [
        (b"\xef\xbb\xbfa\r\nb\r\n", {"content": "c\nd\n"}, b"\xef\xbb\xbfc\r\nd\r\n", "utf-8 with a byte order mark, CRLF line ends"),
        ("é\n".encode("utf-16"), {"content": "\ufeffü\n"}, "ü\n".encode("utf-16"), "utf-16-le with a byte order mark"),
        (b"a\r\nb\r\n", {"content": "c\r\nd\n"}, b"c\r\nd\n", ""),
        (b"a\nb\r\nc\n", {"content": "c\nd\n"}, b"c\nd\n", ""),
        ("é\n".encode("utf-16"), {"content": "é\n", "encoding": "cp1252"}, b"\xe9\n", "cp1252, named"),
        (b"# coding: latin-1\n\xe9\n", {"content": "# é\nx\n"}, "# é\nx\n".encode(), ""),
        (b"# coding: latin-1\n\xe9\n", {"content": "# coding: cp1251\nЖ\n"}, b"# coding: cp1251\n\xc6\n", "cp1251, named"),
        (b"", {"content": "é\n", "encoding": "utf-8-sig"}, b"\xef\xbb\xbf\xc3\xa9\n", "utf-8 with a byte order mark"),
        (b"\0\1\2", {"content": "é\ufffd\n"}, "é\ufffd\n".encode(), ""),
    ],
)  # fmt: skip
def test_a_file_that_is_overwritten_keeps_mark_encoding_and_line_ends_unless_asked(
    agent: SmallWorkspace, before: bytes, arguments: dict[str, str], after: bytes, kept: str
) -> None:
    agent.filesystem.write_bytes("a.txt", before)
    if b"\0\1" in before:  # the tool asks for a read first, which is refused
        agent.filesystem.write_text("a.txt", arguments["content"], keep=True)
    else:
        call_ok(agent, "read_file", file_path="a.txt")
        answer = call_ok(agent, "write_file", file_path="a.txt", **arguments)
        assert answer.endswith(f"(encoding: {kept})" if kept else "lines")
    assert agent.filesystem.read_bytes("a.txt") == after


def test_a_program_that_writes_text_gets_exactly_its_characters_in_utf_8() -> None:
    files = MemoryFilesystem({"a": b"\xef\xbb\xbfa\r\n"})
    files.write_text("a", "é\n")
    assert files.read_bytes("a") == "é\n".encode()


@pytest.mark.parametrize("name", ["rot13", "unicode_escape", "idna", "no such", "a\0b", "punycode"])
def test_a_name_that_is_not_an_encoding_of_text_is_refused(name: str) -> None:
    files = MemoryFilesystem({"a": b"caf\xe9"})
    for call in (
        lambda: files.edit("a", "c", "d", encoding=name),
        lambda: files.write_text("b", "x", encoding=name),
        lambda: files.read_text("a", encoding=name),
    ):
        with pytest.raises(UsageError, match="not the name of an encoding"):
            call()


@pytest.mark.behaviour(47)
@pytest.mark.parametrize(
    "data",
    [b"\x89PNG\r\n\x1a\n text", b"text\0text!", b"\0\xff", b"\x01\0\x02\0", b"\xff\xfe\0\xd8a\0"],
)
def test_content_that_is_not_text_is_not_taken_for_text_of_a_rare_encoding(data: bytes) -> None:
    files = MemoryFilesystem({"a": data})
    for call in (lambda: files.read_text("a"), lambda: files.edit("a", "a", "b")):
        with pytest.raises(BinaryFileError, match="not text"):
            call()


@pytest.mark.behaviour(50)
@settings(max_examples=examples(150))
@given(
    text=st.text(alphabet="aé\n\r\u3042äЖ\U0001f600表", max_size=30),
    codec=st.sampled_from(
        ["utf-8", "utf-16", "utf-32-be", "cp932", "gb18030", "big5", "cp1251", "utf-8-sig"]
    ),
    new=st.text(alphabet="bé\u3042Ж", max_size=3),
    place=st.tuples(st.integers(0, 30), st.integers(0, 30)),
)
@example(text="表表a", codec="cp932", new="b", place=(1, 2))
def test_a_change_at_any_place_replaces_exactly_the_bytes_of_the_text(
    text: str, codec: str, new: str, place: tuple[int, int]
) -> None:
    encoding = TextContent.of(b"", "a", codec).encoding
    text, new = (
        each.encode(encoding.codec, "ignore").decode(encoding.codec) for each in (text, new)
    )
    start, end = sorted(min(at, len(text)) for at in place)
    before, after = (part.encode(encoding.codec) for part in (text[:start], text[end:]))
    data = encoding.mark + text.encode(encoding.codec)
    changed = TextContent(data, "a", encoding).spliced([(start, end, new)])
    assert changed == encoding.mark + before + new.encode(encoding.codec) + after


@settings(max_examples=examples(200))
@given(data=st.binary(max_size=60), start=st.integers(0, 59), length=st.integers(1, 4))
@example(data=b"caf\xe9 \xc3", start=0, length=3)
@example(data=b"caf\xe9 \xc3", start=3, length=3)
@example(data=b"a\r", start=0, length=1)
def test_an_edit_of_arbitrary_bytes_keeps_all_others_or_is_refused(
    data: bytes, start: int, length: int
) -> None:
    try:
        content = TextContent.of(data, "a", None)
        old = content.shown[start : start + length]
        edited = replace_text(data, old, "").data
    except (BinaryFileError, EditError):
        reject()
    n_removed = len(data) - len(edited)
    at = next((n for n in range(len(edited)) if data[n] != edited[n]), len(edited))
    assert data[:at] + data[at + n_removed :] == edited
    assert 0 < n_removed <= 4 * length
