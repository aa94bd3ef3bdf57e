r"""The text of files: how it is encoded, read piece by piece, and changed.

Rule 1: the encoding is that of the byte order mark; else UTF-8, if the file is valid and not only
ASCII; else what the caller names or the file declares, if that decodes it; else a guess. A search
does not guess.
Rule 2: a change replaces the bytes of the characters that differ. All other bytes are copied.
Rule 3: a wrong guess may show a wrong letter, but never changes one. Only ASCII is inserted into a
file whose encoding was guessed, and not inside a character of another encoding that it may have.
Rule 4: a byte that the encoding does not explain is a surrogate escape, and U+FFFD for readers. A
new U+FFFD is refused, unless the file has one or the encoding is named.
Rule 5: an encoding with states, such as ISO-2022, is only read.
Rule 6: text has no NUL characters and, if it is not Unicode, no control characters. Other content
is binary. Reading checks only the part that is read, and a search looks only for NUL characters.
Memory holds one piece and one unfinished line.
Rule 7: a line ends with ``\n``; a ``\r`` before it belongs to the line end. A byte order
mark at the start of the file is not part of a line.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import BinaryIO, Final, Literal, TypeAlias

from wink_workspace.errors import BinaryFileError, EditError, UsageError

from .model import TextWindow
from .paths import WorkspacePath

TextChange: TypeAlias = tuple[int, int, str]
"""The first character that is replaced, the one after the last, and the new text."""

MOST_EXAMINED_BYTES: Final = 8_388_608
"""How much of a file shows its encoding."""
_PIECE_BYTES: Final = 65_536
_HEAD_BYTES: Final = 1_024
_SAMPLE_LINES: Final = 500
# A window ends after this much text; only lines that are mostly cut off can reach it.
_MAX_WINDOW_CHARS: Final = 16_777_216
_ESCAPE: Final = re.compile("[\udc80-\udcff]")
_CONTROL: Final = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f](?!\Z)")  # DOS ends text with one
_MARKED: Final = ("utf-8", "utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")  # longest first
_MARKS: Final = tuple(("\ufeff".encode(codec), codec) for codec in _MARKED)
_MARK_STARTS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
_WITH_MARK: Final = {"utf-8-sig": _MARKS[0], "utf-16": _MARKS[3], "utf-32": _MARKS[1]}
_STATEFUL: Final = re.compile(r"iso2022_\w+|hz|utf-7")
_TEXT_CODEC: Final = re.compile(
    r"ascii|utf-(8|16|32)(-[lb]e|-sig)?|iso8859-\d+|cp\d+|koi8-\w|mac-\w+|shift_jis\w*|euc_\w+"
    r"|gb\w+|big5\w*|johab|kz1048|ptcp154|tis-620|hp-roman8|" + _STATEFUL.pattern
)
_DOUBLE_BYTE: Final = ("cp932", "euc_jp", "gb18030", "big5", "cp949")
_LIKELY: Final[list[str]] = [
    *("cp1252", "cp1251", "koi8_r", *_DOUBLE_BYTE, "cp1250", "iso8859_2", "cp1253", "cp1254"),
    *("cp1255", "cp1256", "cp866", "cp437", "cp850", "mac_roman", "iso8859_5", "iso8859_7"),
]
_PARTS: Final = re.compile(r"[^\0-\x7f]+|[\0-\x09\x0b-\x7f]*\n|[\0-\x09\x0b-\x7f]+")
_RARE: Final = re.compile("[\uff61-\uff9f]")  # as Shift JIS, much Russian is such katakana
_DECLARATION: Final = re.compile(
    rb"""(?: \A (?:[^\n]*\n)? [^\n]* (?:\#|-\*-) [^\n]*? coding[:=][ \t]*
    | \A<\?xml\s [^>]*? encoding\s*=\s*["'] | <meta\s [^>]*? charset\s*=\s*["']?
    | \A@charset\ " | content-type: [^\n]*? charset=
    ) ([-\w.]+?) (?:-unix|-dos|-mac)? (?![-\w.])""",
    re.VERBOSE,
)


# Encodings


@dataclass(frozen=True, slots=True)
class Encoding:
    """A codec of Python, the byte order mark before the text, and how they are known."""

    codec: str = "utf-8"
    mark: bytes = b""
    source: Literal["valid", "mark", "named", "declared", "guessed"] = "valid"

    def __str__(self) -> str:
        """What a reader is shown; empty for plain UTF-8."""
        if self.mark:
            return f"{self.codec} with a byte order mark"
        is_plain = self.codec == "utf-8" and self.source in ("valid", "named")
        return "" if is_plain else f"{self.codec}, {self.source}"


def _find_encoding(data: bytes, path: str, name: str | None) -> Encoding:
    """The encoding of the whole content *data*; *name* is used if it would be a guess.

    The names ``utf-8-sig``, ``utf-16`` and ``utf-32`` have a mark if there is no content yet.
    """
    found = _certain_encoding(data, is_whole=len(data) < MOST_EXAMINED_BYTES)
    if name:
        codec = _codec(name)
        if not codec:
            hint = "Use one such as 'utf-8', 'utf-16', 'cp1252' or 'shift_jis'."
            raise UsageError(f"{name[:40]!r} is not the name of an encoding of text", hint=hint)
        mark, codec = _WITH_MARK.get(codec, (b"", codec))
        if found is None:
            return Encoding(codec, b"" if data else mark, "named")
        return replace(found, source="named") if found.codec[:6] == codec[:6] else found
    if b"\0" in data and found is None:
        return Encoding(_utf_16_without_mark(data, path), source="guessed")
    found = found or _declared_encoding(data) or Encoding()
    if found.source == "mark" or _decodes(data, found.codec):
        has_states = b"\x1b$" in data and _decodes(data, "iso2022_jp")
        return Encoding("iso2022_jp", source="guessed") if has_states else found
    if _CONTROL.search(data.decode("latin-1")):
        raise BinaryFileError(f"{path} is not text: it is not UTF-8, and has control characters")
    return Encoding(_guessed_codec(data), source="guessed")


def _codec(name: str) -> str:
    with suppress(LookupError, ValueError):
        codec = codecs.lookup(name).name
        return codec if _TEXT_CODEC.fullmatch(codec) else ""
    return ""


def _certain_encoding(data: bytes, *, is_whole: bool) -> Encoding | None:
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return Encoding(codec, mark, "mark")
    with suppress(UnicodeDecodeError):
        codecs.getincrementaldecoder("utf-8")().decode(data, final=is_whole)
        return None if data.isascii() or b"\0" in data else Encoding()
    return None


def _declared_encoding(data: bytes) -> Encoding | None:
    """What a file declares in its first bytes, other than UTF-8; ``None`` if it is false."""
    head = data[:_HEAD_BYTES].lower()
    found = _DECLARATION.search(head) if b"coding" in head or b"charset" in head else None
    codec = _codec(found[1].decode("ascii")) if found else ""
    is_true = codec and codec[:5] != "utf-8" and b"#a\n".decode(codec, "replace") == "#a\n"
    return Encoding(codec, source="declared") if is_true else None


def _utf_16_without_mark(data: bytes, path: str) -> str:
    for codec in ("utf-16-le", "utf-16-be"):
        text = data.decode(codec, "replace")
        is_mostly_ascii = 2 * len(text.encode("ascii", "ignore")) >= len(text)
        if is_mostly_ascii and _decodes(data, codec) and "".join(text.split()).isprintable():
            return codec
    raise BinaryFileError(f"{path} is not text: it contains NUL characters")


def _guessed_codec(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    n_invalid = len(_ESCAPE.findall(text))
    if len(text) - len(text.encode("ascii", "ignore")) > 2 * n_invalid:
        return "utf-8"  # with some other bytes
    for codec in _candidates(data):
        if _decodes(data, codec) and data.decode(codec).encode(codec) == data:
            return codec
    return "utf-8"


def _candidates(data: bytes) -> list[str]:
    """The encodings that a file may have, the most likely first."""
    import charset_normalizer  # on use: few files need it

    lines = [line for line in data.split(b"\n") if not line.isascii()]
    sample = b"\n".join(lines[:_SAMPLE_LINES])
    found = charset_normalizer.from_bytes(sample, cp_isolation=_LIKELY, enable_fallback=False)
    ranked: list[tuple[float, str]] = []
    for each in found:
        score = each.chaos - each.coherence / 5 + len(_RARE.findall(str(each)))
        names = each.could_be_from_charset
        ranked += ((score + _LIKELY.index(name) / 500, name) for name in names)  # if almost equal
    return [name for _, name in sorted(ranked)]


def _decodes(data: bytes, codec: str) -> bool:
    with suppress(UnicodeError):
        data.decode(codec)
        return True
    return False


def _holds(codec: str, text: str) -> bool:
    """Whether the codec encodes *text*, and as other bytes than any other text."""
    with suppress(UnicodeError):
        return text.encode(codec).decode(codec) == text
    return False


# Changing


class TextContent:
    """The text of a file, and its bytes.

    Attributes:
        encoding: How it is encoded. Read only.
        text: Its characters, without the byte order mark. Read only.
        shown: The same, with U+FFFD for each surrogate escape. Read only.

    Args:
        data: The whole content.
        path: The file's name, for messages.
        encoding: The encoding of *data*.

    Raises:
        BinaryFileError: If *data* is not in this encoding, or has NUL characters.
    """

    def __init__(self, data: bytes, path: str, encoding: Encoding) -> None:
        self.encoding = encoding
        self._path = path
        self._body = data[len(encoding.mark) :]
        try:
            self.text = self._body.decode(encoding.codec, "surrogateescape")
        except UnicodeError as error:
            raise BinaryFileError(f"{path} is not text: it is not {encoding.codec}") from error
        if "\0" in self.text:
            raise BinaryFileError(f"{path} is not text: it contains NUL characters")
        self.shown = without_escapes(self.text)

    @classmethod
    def of(cls, data: bytes, path: str, name: str | None, *, quoted: str = "") -> TextContent:
        """The text of *data*, in the encoding *name* if it would be a guess.

        If *quoted*, a copy of a part, has a U+FFFD and the text has none, the text is that of a
        reader that shows bytes which are not UTF-8 as U+FFFD.

        Raises:
            BinaryFileError: If it is not text.
            UsageError: If no encoding has this name.
        """
        content = cls(data, path, _find_encoding(data, path, name))
        codec = content.encoding.codec
        if "\ufffd" in quoted and "\ufffd" not in content.text and codec[:4] != "utf-":
            return cls(data, path, Encoding(source="guessed"))
        return content

    @property
    def is_utf_8(self) -> bool:
        """Whether all of it is valid UTF-8."""
        return self.encoding.codec == "utf-8" and self.shown == self.text

    def rewritten(self, new: str) -> bytes:
        """The content with the text *new*; what is equal in both is copied.

        Raises:
            EditError: As ``spliced``.
        """
        if self.is_utf_8 and ("\ufffd" not in new or "\ufffd" in self.text):
            return self.encoding.mark + new.encode()
        return self.spliced(differing_parts(self.shown, without_escapes(new)))

    def spliced(self, changes: Sequence[TextChange]) -> bytes:
        """The content with all *changes*, which are in order and do not overlap.

        Raises:
            EditError: If the encoding is only read, does not hold a new character or was guessed,
                or a new U+FFFD stands for a byte; with line and column.
        """
        codec = self.encoding.codec
        if changes and _STATEFUL.fullmatch(codec):
            hint = "Convert it with a command such as `iconv`."
            raise EditError(f"{self._path} is in {codec}, which is only read", hint=hint)
        offsets = self._byte_offsets(at for start, end, _ in changes for at in (start, end))
        parts = [self._body[at:end] for at, end in pairwise([0, *offsets, len(self._body)])]
        for other in _DOUBLE_BYTE if self.encoding.source == "guessed" else ():
            if _decodes(self._body, other) and not all(_decodes(part, other) for part in parts):
                raise self._refused(f"in {other}, this would change a part of a character")
        n_lines_added = 0
        for n, (start, end, new) in enumerate(changes):
            self._check_insertion(start, new, n_lines_added)
            n_lines_added += new.count("\n") - self.text.count("\n", start, end)
            parts[2 * n + 1] = new.encode(codec)
        return self.encoding.mark + b"".join(parts)

    def _byte_offsets(self, indexes: Iterable[int]) -> Iterator[int]:
        """The offsets of characters in the bytes; *indexes* are in order."""
        codec, errors = self.encoding.codec, "surrogateescape"
        at = done = 0
        for index in indexes:
            text = self.text[done:index]
            end = at + len(text.encode(codec, errors))  # the length, whatever the bytes
            if self._body[at:end].decode(codec, errors) != text:
                raise self._refused(f"the bytes of {text[-1:]!r} stand for several characters")
            yield end
            at, done = end, index

    def _check_insertion(self, start: int, new: str, n_lines_added: int) -> None:
        codec, source = self.encoding.codec, self.encoding.source
        if new.isascii() or (source != "guessed" and "\ufffd" not in new and _holds(codec, new)):
            return
        for at, char in enumerate(new):
            if char == "\ufffd" and source != "named" and char not in self.text:
                problem = "U+FFFD stands for a byte that could not be shown, and would replace it"
            elif "\ud800" <= char <= "\udfff":
                problem = "the new text has a lone surrogate, which is not a character"
            elif not _holds(codec, char):
                problem = f"{codec} has no character {char!r} (U+{ord(char):04X})"
            elif source == "guessed" and not char.isascii():
                problem = f"{char!r} is not ASCII, and the encoding {codec} is a guess"
            else:
                continue
            line = 1 + self.text.count("\n", 0, start) + n_lines_added + new.count("\n", 0, at)
            before = self.text[self.text.rfind("\n", 0, start) + 1 : start] + new[:at]
            column = len(before) - before.rfind("\n")
            raise self._refused(f"line {line}, column {column}: {problem}")

    def _refused(self, problem: str) -> EditError:
        names = _candidates(self._body)[:4] if self.encoding.source == "guessed" else []
        hint = f"Use ASCII, or name the encoding if it is meant: {', '.join([*names, 'utf-8'])}."
        return EditError(f"{self._path}, {problem}", hint=hint)


def differing_parts(old: str, new: str) -> list[TextChange]:
    """The changes of *old* to *new*: of lines, or of what is between equal letters in them."""
    from .diff.lines import changed_lines  # on use: a search needs none

    old_parts, new_parts = _PARTS.findall(old), _PARTS.findall(new)
    numbers: dict[str, int] = {}
    before, after = (
        b"".join(b"%d\n" % numbers.setdefault(part, len(numbers)) for part in parts)
        for parts in (old_parts, new_parts)
    )
    starts = list(accumulate(map(len, old_parts), initial=0))
    changes: list[TextChange] = []
    for part, with_ in changed_lines(before, after):
        added = "".join(new_parts[with_.start : with_.stop])
        changes.append((starts[part.start], starts[part.stop], added))
    return changes


def encoded_text(text: str, path: str, name: str | None, before: bytes) -> tuple[bytes, str]:
    """The bytes of *text*, and a description of their encoding.

    Args:
        text: The whole text.
        path: The file's name, for messages.
        name: The encoding; by default that of *before*, or UTF-8.
        before: The content that is overwritten, or its start; empty if there is none. Its byte
            order mark, encoding and line ends are kept, if it is text; not an encoding that it
            declares and *text* does not.

    Raises:
        EditError: As ``TextContent.spliced``.
        UsageError: If no encoding has this *name*.
    """
    declared = (_declared_encoding(text.encode()) or Encoding()).codec if before else "utf-8"
    content, is_crlf = TextContent.of(b"", path, name or declared), False
    with suppress(BinaryFileError):
        there = TextContent.of(before, path, name) if before else content
        is_crlf = "\r" not in text and there.text.count("\r\n") * 2 > there.text.count("\n")
        known = there.encoding.codec if there.encoding.source == "declared" else declared
        is_kept = (not name and known == declared) or there.encoding.source == "named"
        content = there if is_kept else content
    text = text.removeprefix("\ufeff") if content.encoding.mark else text
    data = content.rewritten(text.replace("\n", "\r\n") if is_crlf else text)
    return data, ", ".join(filter(None, (str(content.encoding), "CRLF line ends" * is_crlf)))


# Reading


class TextPieces(Iterator[str]):
    """The text of *stream*, in pieces, in *encoding* or that of the first piece.

    Set ``budget_chars`` to end the iteration after about this many more characters;
    ``stopped`` is then set. A byte that is not UTF-8 becomes a surrogate escape.

    Raises:
        BinaryFileError: While iterating, if it is not text in this encoding.
    """

    def __init__(
        self, stream: BinaryIO, path: WorkspacePath, *, encoding: Encoding | None = None
    ) -> None:
        self.encoding = encoding
        self.budget_chars: int | None = None
        self.stopped = False
        self._stream = stream
        self._path = path
        self._decoder: codecs.IncrementalDecoder | None = None

    def __next__(self) -> str:
        if self.budget_chars is not None and self.budget_chars <= 0:
            self.stopped = True
            raise StopIteration
        data = self._stream.read(_PIECE_BYTES)
        is_last = not data
        if self._decoder is None:
            while len(data) < _HEAD_BYTES and (more := self._stream.read(_PIECE_BYTES)):
                data += more
            found = self.encoding or _declared_encoding(data)
            if self.encoding is None and (found or data.startswith(_MARK_STARTS)):
                found = _certain_encoding(data, is_whole=False) or found
            self.encoding = found = found or Encoding()
            self._decoder = codecs.getincrementaldecoder(found.codec)("surrogateescape")
            data = data[len(found.mark) :]
        try:
            piece = self._decoder.decode(data, final=is_last)
        except UnicodeDecodeError as error:
            raise BinaryFileError(f"{self._path} is not text: not {error.encoding}") from error
        if "\0" in piece:
            raise BinaryFileError(f"{self._path} is not text: it contains NUL characters")
        if is_last and not piece:
            raise StopIteration
        if self.budget_chars is not None:
            self.budget_chars -= len(piece)
        return piece


def without_escapes(text: str) -> str:
    """*text* with U+FFFD for each surrogate escape."""
    return text if text.isascii() else _ESCAPE.sub("\ufffd", text)


def line_blocks(pieces: Iterable[str], max_chars: int) -> Iterator[str]:
    r"""Blocks of whole lines, joined by ``\n``, without the last line end.

    A line that spans several pieces may be cut after *max_chars* + 2 characters.
    """
    partial = ""  # two characters beyond the limit: a "\r", and one that shows the line is longer
    for piece in pieces:
        whole, newline, rest = piece.rpartition("\n")
        if not newline:
            partial = _extended(partial, rest, max_chars + 2)
            continue
        first, newline, others = whole.partition("\n")
        yield _with_plain_ends(_extended(partial, first, max_chars + 2) + newline + others)
        partial = rest
    if partial:
        yield partial


def _extended(partial: str, more: str, max_chars: int) -> str:
    return partial + more[: max(0, max_chars - len(partial))] if partial else more


def _with_plain_ends(block: str) -> str:
    return block.replace("\r\n", "\n").removesuffix("\r") if "\r" in block else block


def read_window(
    stream: BinaryIO,
    path: WorkspacePath,
    *,
    offset: int,
    limit: int,
    line_chars: int,
    encoding: str | None = None,
) -> TextWindow:
    """*limit* lines of *stream* after the first *offset*, each cut to *line_chars*.

    If more than 16 Mi characters were read for it, the window ends early and ``more`` is set.
    *encoding* is used if it would be a guess. A byte that no encoding explains is shown as U+FFFD.

    Raises:
        BinaryFileError: If the part that was read is not text.
        UsageError: If no encoding has this name.
    """

    def window(found: Encoding | None) -> TextWindow:
        pieces = TextPieces(stream, path, encoding=found)
        return _window(pieces, path, offset=offset, limit=limit, line_chars=line_chars)

    if not encoding:
        with suppress(BinaryFileError):  # it may be UTF-16 without a mark
            shown = window(None)
            if not shown.n_not_utf_8:
                return shown
        stream.seek(0)
    found = _find_encoding(stream.read(MOST_EXAMINED_BYTES), str(path), encoding)
    stream.seek(0)
    return window(found)


def _window(
    pieces: TextPieces, path: WorkspacePath, *, offset: int, limit: int, line_chars: int
) -> TextWindow:
    blocks = line_blocks(pieces, line_chars)
    lines = _lines_after(blocks, offset)
    pieces.budget_chars = _MAX_WINDOW_CHARS
    while len(lines) <= limit and (block := next(blocks, None)) is not None:
        lines += block.split("\n")
    if pieces.stopped and len(lines[-1]) <= line_chars:
        lines.pop()  # it may be incomplete
    cut = [line[:line_chars] for line in lines[:limit]]
    shown = tuple(map(without_escapes, cut))
    return TextWindow(
        path=path,
        lines=shown,
        first_line=offset + 1,
        more=len(lines) > limit or pieces.stopped,
        n_cut_lines=sum(map(line_chars.__lt__, map(len, lines[:limit]))),
        n_not_utf_8=sum(len(_ESCAPE.findall(line)) for line in cut if not line.isascii()),
        encoding=str(pieces.encoding or ""),
    )


def _lines_after(blocks: Iterator[str], n_lines: int) -> list[str]:
    """The lines after the first *n_lines*, up to the end of their block; reads no further."""
    while n_lines > 0 and (block := next(blocks, None)) is not None:
        n_lines -= block.count("\n") + 1
        if n_lines < 0:
            return block.split("\n")[n_lines:]
    return []
