"""Texts in many encodings, and how each encoding is known."""

# ruff: noqa: RUF001 - letters of other scripts

from __future__ import annotations

import codecs
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """A text, how it is encoded, and how that is known."""

    codec: str
    letters: str
    mark: bytes = b""
    declaration: str = ""

    def text(self, value: str = "value = 1") -> str:
        return f"{self.declaration}# {self.letters}\r\n{value}\r\nend {self.letters}\r\n"

    def data(self, value: str = "value = 1") -> bytes:
        return self.mark + self.text(value).encode(self.codec)

    @property
    def is_guessed(self) -> bool:
        return not (self.mark or self.declaration or self.codec == "utf-8")


FRENCH = "les élèves étudient à l'école où règne la naïveté"
RUSSIAN = "привет мир, это комментарий"
POLISH = "zażółć gęślą jaźń, proszę o źródło"
JAPANESE = "こんにちは世界。これは表示のテストです"
CHINESE = "你好世界，这是一个注释，中文句子"
SAMPLES = [
    Sample("utf-8", FRENCH),
    Sample("utf-8", RUSSIAN, codecs.BOM_UTF8),
    Sample("utf-16-le", JAPANESE, codecs.BOM_UTF16_LE),
    Sample("utf-16-be", "\U0001f600 und Grüße", codecs.BOM_UTF16_BE),
    Sample("utf-16-le", "Grüße und mehr"),
    Sample("utf-32-le", FRENCH, codecs.BOM_UTF32_LE),
    Sample("iso8859-1", FRENCH, declaration="# -*- coding: latin-1 -*-\r\n"),
    Sample("iso8859-15", FRENCH, declaration="#!/bin/sh\r\n# vim: set fileencoding=latin9 :\r\n"),
    Sample("iso8859-2", POLISH, declaration='<?xml version="1.0" encoding="ISO-8859-2"?>\r\n'),
    Sample("shift_jis", JAPANESE, declaration="<meta charset=Shift_JIS>\r\n"),
    Sample("koi8-r", RUSSIAN, declaration="; -*- coding: koi8-r-unix -*-\r\n"),
    Sample("cp1252", FRENCH),
    Sample("cp1250", POLISH),
    Sample("cp1251", RUSSIAN),
    Sample("koi8-r", RUSSIAN),
    Sample("cp866", RUSSIAN),
    Sample("cp932", JAPANESE),
    Sample("euc_jp", JAPANESE),
    Sample("gb18030", CHINESE),
    Sample("big5", "你好世界，這是註釋，中文句子"),
    Sample("cp949", "안녕하세요 세계, 이것은 주석입니다"),
    Sample("cp1253", "Γειά σου Κόσμε, αυτό είναι σχόλιο"),
    Sample("mac-roman", FRENCH),
]
