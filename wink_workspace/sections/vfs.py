"""The section that gives a model files: the file tools, their guidance, and their policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Unpack

from wink_workspace.filesystem import Filesystem, FilesystemLimits
from wink_workspace.prompt import (
    MarkdownSection,
    ReadBeforeWritePolicy,
    SectionOptions,
    ToolPolicy,
)
from wink_workspace.resources import Binding

from .file_operations import file_tools
from .file_results import FileToolLimits


def _new_files(_: object) -> Filesystem:
    from wink_workspace.filesystem import MemoryFilesystem  # most sections have other files

    return MemoryFilesystem()


# One object, so that two sections without files of their own share the same files.
_NEW_FILES: Final = Binding(Filesystem, _new_files)


FILE_SUMMARY: Final = """\
Paths are relative to one root: `src/main.py`. Find with `{p}grep`, `{p}glob` and `{p}ls`; read \
with `{p}read_file` (the line numbers are not part of the file); change with `{p}edit_file` (one \
place), `{p}apply_patch` (several), `{p}write_file` (new or whole files), `{p}mv` and `{p}rm`. \
Read an existing file before you change it, and again if it changed since. A call that fails \
changes nothing: read the error, correct the call, and continue."""


class VfsToolsSection(MarkdownSection[None]):
    """Files below one root, with the tools to find, read, change, move and delete them.

    A prompt has one ``Filesystem``, which all of its file sections use. One that is bound with
    ``Prompt.bind`` replaces the section's own.

    Args:
        filesystem: The files, or a binding that creates them when the prompt's resources are
            opened; by default a new, empty filesystem in memory.
        title: The heading.
        prefix: A prefix of the name of every tool (``vfs_`` makes ``vfs_read_file``) and of the
            default key, so that one prompt can contain several sections with the same tools.
        limits: Limits of each call.
        options: As for ``Section``. ``key`` is ``files`` by default, and ``policies`` a
            ``ReadBeforeWritePolicy``; use ``policies=()`` for none.
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
        options["summary"] = options.get("summary") or FILE_SUMMARY.format(p=prefix)
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
    """The guidance for a model that uses ``file_tools``, as Markdown.

    Args:
        prefix: As passed to ``file_tools``.
        limits: As passed to ``file_tools``.
        filesystem_limits: The limits of the filesystem; the defaults if they are not known yet.
        policies: The policies of the section; the text explains ``ReadBeforeWritePolicy``.
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
The files of the workspace are below one root. Use paths relative to it, with `/`:
`src/main.py`. A leading `/` and `..` are refused, and `.` is the root itself.

1. Find files and lines: `{p}grep` for lines by regular expression, `{p}glob` for names
   (`*.py` in one directory, `**/*.py` at any depth), `{p}ls` for one directory.
2. Read a file with `{p}read_file`. The number and the tab before each line are not part of
   the file. A result that was cut says how to continue.
3. Change files: `{p}edit_file` for one position (include enough lines around it to be unique),
   `{p}apply_patch` for several positions or files that must change together, `{p}write_file` for
   a new file or the whole content, `{p}mv` and `{p}rm` for paths. The diff shows the change.

{read_first}A call that fails changes nothing: read the error, correct the call, and continue from
the same state.

Limits: {result_chars:,} characters per result, {read_lines:,} lines per read, \
{read_line_chars:,} characters per line,
{write_bytes:,} bytes per write, {glob_results:,} paths per glob, {grep_matches:,} lines per grep, \
{search_timeout_s:g} seconds per search.
Only text (UTF-8) can be read.
"""

_READ_FIRST: Final = """\
Read an existing file before you edit, patch or overwrite it, and read it again if it has changed
since. New files, and files that you have just written, need no read.

"""
