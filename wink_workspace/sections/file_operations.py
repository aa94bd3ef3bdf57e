"""The nine file tools, for the filesystem that is bound to the prompt.

Rule 1: a tool calls the filesystem and shows the result. The filesystem or a policy decides what is
allowed. Limits for a model are passed as arguments of the call.
Rule 2: an error that a model can cause becomes a failed result with the error's message and hint.
Any other exception is a bug and is left to the executor.
Rule 3: texts of results do not name tools, because a section may rename them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from wink_workspace.counts import counted
from wink_workspace.errors import (
    BinaryFileError,
    FileMissingError,
    FilesystemError,
    PathExistsError,
    UsageError,
    WinkError,
)
from wink_workspace.filesystem import (
    FileKind,
    Filesystem,
    LineRange,
    TextWindow,
    WorkspacePath,
    parse_path,
)
from wink_workspace.prompt import (
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolExample,
    ToolHandler,
    ToolImage,
    ToolResult,
)

from .file_params import (
    ApplyPatchParams,
    EditFileParams,
    GlobParams,
    GrepParams,
    ListParams,
    MoveParams,
    ReadFileParams,
    RemoveParams,
    WriteFileParams,
)
from .file_results import (
    AppliedPatch,
    ChangedPath,
    DeletedPath,
    DirectoryEntry,
    DirectoryListing,
    EditedFile,
    FileToolLimits,
    FileWindow,
    FoundLine,
    FoundLines,
    FoundPaths,
    MovedPath,
    WrittenFile,
    shown,
)

if TYPE_CHECKING:
    from .notebooks import Notebook


P = TypeVar("P")
R = TypeVar("R")

_MOST_IMAGE_BYTES: Final = 3_932_160  # 5 MiB as base64, the most that providers take
_HEAD_BYTES: Final = 16
_KINDS: Final = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
    "application/pdf": re.compile(rb"%PDF-"),
}
_MAX_NAMES_COMPARED: Final = 2_000
_MAX_NAMES_SUGGESTED: Final = 3
_MOST_FOUND_LINES: Final = 50_000
"""Lines that a search finds for the file with the whole result."""

_READS: Final = ToolAnnotations(
    read_only=True, destructive=False, idempotent=True, open_world=False
)
_REPLACES: Final = ToolAnnotations(
    read_only=False, destructive=True, idempotent=True, open_world=False
)
_CHANGES: Final = replace(_REPLACES, idempotent=False)
_MOVES: Final = replace(_CHANGES, destructive=False)  # it never overwrites


def file_tools(
    *, prefix: str = "", limits: FileToolLimits | None = None
) -> tuple[Tool[Any, Any], ...]:
    """The file tools of a section.

    Args:
        prefix: A prefix of every name, so that one prompt can contain two such sections.
        limits: Limits of each call.
    """
    do = _Operations(limits or FileToolLimits())
    return (
        Tool[ListParams, DirectoryListing](
            name=f"{prefix}ls",
            description="List one directory: sizes and names. Names of directories end with '/'.",
            handler=_on_files(do.ls),
            annotations=_READS,
            examples=(_LS,),
        ),
        Tool[ReadFileParams, FileWindow](
            name=f"{prefix}read_file",
            description="Read a text file, or some of its lines, with line numbers from 1.",
            handler=_on_files(do.read_file),
            annotations=_READS,
            examples=(_READ, _READ_ON),
        ),
        Tool[WriteFileParams, WrittenFile](
            name=f"{prefix}write_file",
            description="Create a file, or replace the whole content of an existing one. "
            "To change parts of a file, edit it instead.",
            handler=_on_files(do.write_file),
            annotations=_REPLACES,
            examples=(_WRITE,),
        ),
        Tool[EditFileParams, EditedFile](
            name=f"{prefix}edit_file",
            description="Replace a text in a file. The text must match exactly and occur once, "
            "unless replace_all is true. Shows a diff.",
            handler=_on_files(do.edit_file),
            annotations=_CHANGES,
            examples=(_EDIT,),
        ),
        Tool[ApplyPatchParams, AppliedPatch](
            name=f"{prefix}apply_patch",
            description="Change, add, delete or rename files with a patch. If any part does not "
            "apply, nothing is changed.",
            handler=_on_files(do.apply_patch),
            annotations=_CHANGES,
            examples=(_PATCH,),
        ),
        Tool[GlobParams, FoundPaths](
            name=f"{prefix}glob",
            description="Find files and directories by name with a pattern such as '**/*.py'.",
            handler=_on_files(do.glob),
            annotations=_READS,
            examples=(_GLOB,),
        ),
        Tool[GrepParams, FoundLines](
            name=f"{prefix}grep",
            description="Find the lines that match a regular expression, in one file or in all "
            "files below a directory.",
            handler=_on_files(do.grep),
            annotations=_READS,
            examples=(_GREP,),
        ),
        Tool[RemoveParams, DeletedPath](
            name=f"{prefix}rm",
            description="Delete a file or link, or a directory with everything in it.",
            handler=_on_files(do.rm),
            annotations=_REPLACES,
            examples=(_RM,),
        ),
        Tool[MoveParams, MovedPath](
            name=f"{prefix}mv",
            description="Move or rename a file, link or directory to a path that does not exist.",
            handler=_on_files(do.mv),
            annotations=_MOVES,
            examples=(_MV,),
        ),
    )


class _Operations:
    """The operation of each tool on a filesystem."""

    def __init__(self, limits: FileToolLimits) -> None:
        self._limits = limits

    def ls(self, params: ListParams, files: Filesystem) -> ToolResult[DirectoryListing]:
        path = shown(parse_path(params.path))
        entries = files.list(params.path)
        value = DirectoryListing.of(path, entries, self._limits)
        return ToolResult.ok(
            value,
            f"{path}, {counted(len(entries), 'entry', 'entries')}",
            whole=DirectoryListing.of(path, entries).render() if value.n_more else "",
        )

    def read_file(self, params: ReadFileParams, files: Filesystem) -> ToolResult[FileWindow]:
        limit = min(params.limit or files.limits.read_lines, files.limits.read_lines)
        try:
            window = self._cells(params, files, limit) or files.read_text(
                params.file_path, offset=params.offset - 1, limit=limit
            )
        except BinaryFileError:
            image = _image(params, files)
            if image is None:
                raise
            shown_image = FileWindow(shown(parse_path(params.file_path)), 1, (), image=image)
            return ToolResult.ok(shown_image, shown_image.summary())
        if not window.lines and params.offset > 1:
            raise UsageError(
                f"{shown(window.path)} has no line {params.offset}", hint="Use a smaller offset."
            )
        value = FileWindow.of(window, self._limits)
        return ToolResult.ok(value, value.summary())

    def _notebook(self, path: str, files: Filesystem) -> tuple[str, Notebook] | None:
        """The text of a notebook, and its cells; ``None`` for another or a larger file."""
        if not path.lower().endswith(".ipynb"):
            return None
        from .notebooks import Notebook  # on use: the tools are listed without it

        data = files.read_bytes(path, limit=self._limits.write_bytes + 1)
        with suppress(UnicodeDecodeError):
            text = data.decode() if len(data) <= self._limits.write_bytes else ""
            notebook = Notebook.parse(text)
            return notebook and (text, notebook)
        return None

    def _cells(self, params: ReadFileParams, files: Filesystem, limit: int) -> TextWindow | None:
        """The lines of a notebook's cells; ``None`` for another file."""
        found = self._notebook(params.file_path, files)
        if found is None:
            return None
        lines, begin = found[1].lines(), params.offset - 1
        window, most = lines[begin : begin + limit], files.limits.read_line_chars
        return TextWindow(
            parse_path(params.file_path),
            tuple(line[:most] for line in window),
            params.offset,
            len(lines) > begin + limit,
            sum(len(line) > most for line in window),
        )

    def write_file(self, params: WriteFileParams, files: Filesystem) -> ToolResult[WrittenFile]:
        _refuse_separator(params.file_path, files)
        path, text, most = params.file_path, params.content, self._limits.write_bytes
        result = files.write_text(path, text, most_bytes=most, encoding=params.encoding, keep=True)
        value = WrittenFile.of(result, params.content)
        return ToolResult.ok(value, f"{'Created' if value.created else 'Overwrote'} {value.path}")

    def edit_file(self, params: EditFileParams, files: Filesystem) -> ToolResult[EditedFile]:
        old, new, replace_all = params.old_string, params.new_string, params.replace_all
        found = self._notebook(params.file_path, files) if old else None
        n_in_cells = found[1].replace(old, new, replace_all=replace_all) if found else 0
        if found and n_in_cells:
            old, new = found[0], found[1].dump()
        result = files.edit(
            params.file_path,
            old,
            new,
            replace_all=replace_all,
            most_bytes=self._limits.write_bytes,
            encoding=params.encoding,
        )
        if n_in_cells:
            lines = zip(old.split("\n"), new.split("\n"), strict=False)
            first = next((n for n, (was, now) in enumerate(lines, 1) if was != now), 1)
            result = replace(result, n_replaced=n_in_cells, first_line=first)
        value = EditedFile.of(result, self._limits)
        replaced = counted(value.n_replaced, "occurrence")
        return ToolResult.ok(
            value,
            f"Replaced {replaced} in {value.path}, line {value.first_line:,}",
            whole=result.diff if value.n_more_diff_lines else "",
        )

    def apply_patch(self, params: ApplyPatchParams, files: Filesystem) -> ToolResult[AppliedPatch]:
        most_bytes = self._limits.write_bytes
        patched = files.apply_patch(params.patch, most_bytes=most_bytes, encoding=params.encoding)
        value = AppliedPatch.of(patched)
        return ToolResult.ok(value, f"Patched {counted(len(value.files), 'file')}")

    def glob(self, params: GlobParams, files: Filesystem) -> ToolResult[FoundPaths]:
        found = files.glob(params.pattern, params.path)
        asked = f"{params.path} {params.pattern}"
        value = FoundPaths.of(params.pattern, found, self._limits, asked=asked)
        first = "The first " if value.truncated else ""
        return ToolResult.ok(value, f"{first}{counted(len(value.paths), 'path')}")

    def grep(self, params: GrepParams, files: Filesystem) -> ToolResult[FoundLines]:
        pattern = f"(?i){params.pattern}" if params.ignore_case else params.pattern
        found = files.grep(pattern, params.path, glob=params.glob, limit=_MOST_FOUND_LINES)
        matches = found.matches[: files.limits.grep_matches]
        truncated = found.truncated or len(matches) < len(found.matches)
        first = replace(found, matches=matches, truncated=truncated)
        asked = f"{params.path} {params.glob}"
        value = FoundLines.of(params.pattern, first, self._limits, asked=asked)
        whole = ""
        if value.truncated:
            whole = FoundLines.of(params.pattern, found, asked=asked).render()
        summary = value.summary()
        if params.context:
            value = value.with_context(files, params.context, self._limits)
        return ToolResult.ok(value, summary, whole=whole)

    def rm(self, params: RemoveParams, files: Filesystem) -> ToolResult[DeletedPath]:
        there = files.stat(params.path, follow=False)
        is_directory = there.kind is FileKind.DIRECTORY
        n_entries = sum(1 for _ in files.walk(there.path)) if is_directory else 0
        files.delete(params.path, recursive=True)
        value = DeletedPath(shown(parse_path(params.path)), there.kind, n_entries)
        return ToolResult.ok(value, f"Deleted {value.path}")

    def mv(self, params: MoveParams, files: Filesystem) -> ToolResult[MovedPath]:
        source, destination = parse_path(params.source), parse_path(params.destination)
        kind = files.stat(source, follow=False).kind
        _refuse_separator(params.destination, files)
        _refuse_directory(destination, source.name, files)
        files.move(source, destination)
        value = MovedPath(shown(source), shown(destination), kind)
        return ToolResult.ok(value, f"Moved {value.source} to {value.destination}")


def _image(params: ReadFileParams, files: Filesystem) -> ToolImage | None:
    """The image in a file that is not text; ``None`` for other content."""
    head = files.read_bytes(params.file_path, limit=_HEAD_BYTES)
    kind = next((kind for kind, starts in _KINDS.items() if starts.match(head)), "")
    path = shown(parse_path(params.file_path))
    if kind == "application/pdf":
        raise _PdfError(
            f"{path} is a PDF file, and only text and images are read",
            hint="Continue without it, and report that it was not read.",
        )
    if not kind:
        return None
    size = files.stat(params.file_path).size_bytes
    if size > _MOST_IMAGE_BYTES:
        raise BinaryFileError(
            f"{path} is an image of {size:,} bytes, and at most {_MOST_IMAGE_BYTES:,} are read",
            hint="Read a smaller copy of it.",
        )
    return ToolImage(kind, files.read_bytes(params.file_path))


def _refuse_separator(path: str, files: Filesystem) -> None:
    r"""Refuse a new file ``src\\app.py`` if there is a directory ``src``: use ``/`` instead."""
    if "\\" not in path or files.exists(path):
        return
    meant = parse_path(path.replace("\\", "/").lstrip("/"))
    if meant.parent.parts and files.exists(meant.parent):
        raise UsageError(
            f"{shown(path)} does not exist; a backslash is not a separator",
            hint=f"Separate names with '/', as in {str(meant)!r}.",
        )


def _refuse_directory(destination: WorkspacePath, name: str, files: Filesystem) -> None:
    """Refuse a directory as destination; a model means a path inside it, as with ``mv``."""
    if files.exists(destination) and files.stat(destination).kind is FileKind.DIRECTORY:
        raise PathExistsError(
            f"{shown(destination)} is a directory",
            hint=f"Use the full new path, such as {str(destination / name)!r}.",
        )


def _on_files(
    operation: Callable[[P, Filesystem], ToolResult[R]],
) -> ToolHandler[P, R]:
    """A handler that runs *operation* on the prompt's filesystem and returns its errors."""

    def handle(params: P, /, *, context: ToolContext) -> ToolResult[R]:
        files = context.filesystem
        if files is None:
            return ToolResult.error(
                "No filesystem is bound to this prompt, so there are no files. "
                "Continue without file tools, and report that they do not work."
            )
        try:
            return operation(params, files)
        except _PdfError as error:
            return ToolResult.error(_with_command(error, context))
        except FileMissingError as error:
            return ToolResult.error(_with_close_names(error, params, files))
        except (FilesystemError, UsageError) as error:
            return ToolResult.error(str(error))

    return handle


class _PdfError(BinaryFileError):
    """A file is a PDF."""


def _with_command(error: _PdfError, context: ToolContext) -> str:
    """The error's text, with a command if a tool of the prompt runs commands."""
    from .command_results import CommandOutput  # on use: few prompts need it

    rendered = context.rendered_prompt
    tool = "" if rendered is None else rendered.tool_with_result(CommandOutput)
    return f"{error.message}. Convert it with `pdftotext`, using {tool}." if tool else str(error)


def _with_close_names(error: WinkError, params: object, files: Filesystem) -> str:
    """The error's text, with similar names that exist."""
    given = (getattr(params, name, None) for name in ("path", "file_path", "source"))
    missing = next((parse_path(path) for path in given if path is not None), None)
    if missing is not None:
        try:
            _refuse_separator(str(missing), files)
        except UsageError as separated:
            return str(separated)
    close = _close_paths(missing, files) if missing else ()
    return f"{error.message}. Did you mean {' or '.join(close)}?" if close else str(error)


def _close_paths(missing: WorkspacePath, files: Filesystem) -> tuple[str, ...]:
    """Existing paths that resemble *missing* up to its first name that does not exist."""
    for directory in reversed(tuple(missing.ancestors())):
        try:
            entries = files.list(directory)
        except FilesystemError:
            continue
        wanted = missing.parts[len(directory.parts)]
        names = [entry.path.name for entry in islice(entries, _MAX_NAMES_COMPARED)]
        # A broken link is listed with the same name that was not found.
        by_lower_case = {name.casefold(): name for name in names if name != wanted}
        close = difflib.get_close_matches(wanted.casefold(), by_lower_case, n=_MAX_NAMES_SUGGESTED)
        return tuple(shown(directory / by_lower_case[name]) for name in close)
    return ()


# Examples, all in a workspace with two files: src/app.py of three lines and an empty README.md

_LS = ToolExample(
    description="List the root",
    input=ListParams(),
    output=DirectoryListing(
        ".",
        (
            DirectoryEntry("README.md", FileKind.FILE),
            DirectoryEntry("src", FileKind.DIRECTORY),
        ),
    ),
)
_READ = ToolExample(
    description="Read a whole file",
    input=ReadFileParams("src/app.py"),
    output=FileWindow("src/app.py", 1, ("def main():", "    print('hello')", "    return 0")),
)
_READ_ON = ToolExample(
    description="Read one line further down",
    input=ReadFileParams("src/app.py", offset=2, limit=1),
    output=FileWindow("src/app.py", 2, ("    print('hello')",), more=True),
)
_WRITE = ToolExample(
    description="Create a new file",
    input=WriteFileParams("docs/notes.md", "# Notes\n"),
    output=WrittenFile("docs/notes.md", created=True, size_bytes=8, n_lines=1),
)
_EDIT = ToolExample(
    description="Change one line of a file that was read",
    input=EditFileParams("src/app.py", "print('hello')", "print('goodbye')"),
    output=EditedFile(
        "src/app.py",
        1,
        2,
        "diff --git a/src/app.py b/src/app.py\n"
        "--- a/src/app.py\n+++ b/src/app.py\n@@ -1,3 +1,3 @@\n def main():\n"
        "-    print('hello')\n+    print('goodbye')\n     return 0",
    ),
)
_PATCH = ToolExample(
    description="Change one file and add another in one call",
    input=ApplyPatchParams(
        "--- a/src/app.py\n+++ b/src/app.py\n@@ -1,3 +1,3 @@\n def main():\n"
        "-    print('hello')\n+    print('goodbye')\n     return 0\n"
        "--- /dev/null\n+++ b/docs/notes.md\n@@ -0,0 +1 @@\n+# Notes\n"
    ),
    output=AppliedPatch(
        (
            ChangedPath("src/app.py", "modified", n_added=1, n_removed=1, lines=(LineRange(2, 1),)),
            ChangedPath("docs/notes.md", "created", n_added=1),
        )
    ),
)
_GLOB = ToolExample(
    description="Find all Python files",
    input=GlobParams("**/*.py"),
    output=FoundPaths("**/*.py", ("src/app.py",)),
)
_GREP = ToolExample(
    description="Find where functions are defined in Python files",
    input=GrepParams(r"^def \w+", glob="*.py"),
    output=FoundLines(r"^def \w+", (FoundLine("src/app.py", 1, "def main():"),), n_files=1),
)
_RM = ToolExample(
    description="Delete a directory",
    input=RemoveParams("src"),
    output=DeletedPath("src", FileKind.DIRECTORY, n_entries=1),
)
_MV = ToolExample(
    description="Rename a file",
    input=MoveParams("src/app.py", "src/main.py"),
    output=MovedPath("src/app.py", "src/main.py", FileKind.FILE),
)
