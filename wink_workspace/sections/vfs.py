"""The section that gives a model files: the file tools, the words for them, and their guard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Unpack

from wink_workspace.filesystem import Filesystem, FilesystemLimits, MemoryFilesystem
from wink_workspace.prompt import (
    MarkdownSection,
    ReadBeforeWritePolicy,
    SectionOptions,
    ToolPolicy,
)
from wink_workspace.resources import Binding

from .file_results import FileToolLimits
from .file_tools import file_tools

__all__ = ["VfsToolsSection", "file_guidance"]

# One object, so that two sections without files of their own share the same ones.
_NEW_FILES: Final = Binding(Filesystem, lambda _: MemoryFilesystem())


class VfsToolsSection(MarkdownSection[None]):
    """Files below one root, with the tools to find, read, change, move and delete them.

    A prompt has one ``Filesystem``, to which all of its file sections belong; what
    ``Prompt.bind`` binds takes the place of the section's own.

    Args:
        filesystem: The files, or a binding that makes them when the prompt's resources are
            opened; new and empty files in memory when omitted.
        title: The heading.
        prefix: Put before the name of every tool (``vfs_`` gives ``vfs_read_file``) and before
            the default key, so that sections with equal tools can stand in one prompt.
        limits: How much of an answer the model sees at once.
        options: As for ``Section``. ``key`` is ``files`` when omitted, and ``policies`` a
            ``ReadBeforeWritePolicy``; give ``policies=()`` for none.
    """

    def __init__(
        self,
        filesystem: Filesystem | Binding[Filesystem] | None = None,
        *,
        title: str = "Files",
        prefix: str = "",
        limits: FileToolLimits | None = None,
        **options: Unpack[SectionOptions[None]],
    ) -> None:
        limits = limits or FileToolLimits()
        policies = options.get("policies")
        options["policies"] = (ReadBeforeWritePolicy(),) if policies is None else policies
        options["key"] = options.get("key") or f"{prefix}files"
        files = _NEW_FILES if filesystem is None else filesystem
        options["resources"] = {Filesystem: files, **(options.get("resources") or {})}
        super().__init__(
            title,
            file_guidance(
                prefix=prefix,
                limits=limits,
                filesystem_limits=files.limits if isinstance(files, Filesystem) else None,
                policies=options["policies"],
            ),
            tools=file_tools(prefix=prefix, limits=limits),
            **options,
        )


def file_guidance(
    *,
    prefix: str,
    limits: FileToolLimits,
    filesystem_limits: FilesystemLimits | None,
    policies: Sequence[ToolPolicy],
) -> str:
    """What a model needs to know to use ``file_tools`` well, as Markdown.

    Args:
        prefix: As given to ``file_tools``.
        limits: As given to ``file_tools``.
        filesystem_limits: Those of the files; the default ones when they are not known yet.
        policies: Those of the section; the text tells of the ones that it knows.
    """
    bounds = filesystem_limits or FilesystemLimits()
    must_read = any(isinstance(policy, ReadBeforeWritePolicy) for policy in policies)
    return _GUIDANCE.format(
        p=prefix,
        read_first=_READ_FIRST if must_read else "",
        result_chars=limits.result_chars,
        read_lines=bounds.read_lines,
        read_line_chars=bounds.read_line_chars,
        write_bytes=min(limits.write_bytes, bounds.write_bytes),
        glob_results=bounds.glob_results,
        grep_matches=bounds.grep_matches,
        search_timeout_s=bounds.search_timeout_s,
    )


_GUIDANCE: Final = """\
The files of the workspace lie below one root. Write paths relative to it, with `/`:
`src/main.py`. A leading `/` and `..` are refused, and `.` is the root itself.

1. Find the place: `{p}grep` for lines by regular expression, `{p}glob` for names
   (`*.py` in one directory, `**/*.py` at any depth), `{p}ls` for one directory.
2. Read it with `{p}read_file`. Each line comes after its number and a tab, neither of which
   is part of the file. A result that was cut says how to go on.
3. Change it: `{p}edit_file` for one place (take enough lines around it to be unique),
   `{p}apply_patch` for several places or files that must change together, `{p}write_file` for
   a new file or a whole one, `{p}mv` and `{p}rm` for paths. The diff shows what was changed.

{read_first}A call that fails has changed nothing, whatever it was doing: read what it says, correct
the call, and go on from the same state.

Limits: {result_chars:,} characters a result, {read_lines:,} lines a read, {read_line_chars:,} \
characters a line,
{write_bytes:,} bytes a write, {glob_results:,} paths a glob, {grep_matches:,} lines a grep, \
{search_timeout_s:g} seconds a search. Only text
(UTF-8) can be read.
"""

_READ_FIRST: Final = """\
An existing file must be read before it is edited, patched or overwritten, and read again when
it has changed since. New files, and files just written by you, need no reading.

"""
