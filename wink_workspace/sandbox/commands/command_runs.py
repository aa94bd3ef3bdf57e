"""Requests as a runner gets them, and the variables of every command."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from wink_workspace.errors import UsageError
from wink_workspace.filesystem import parse_path
from wink_workspace.sandbox.git_directory import WORKSPACE_PATH
from wink_workspace.sandbox.sandbox_protocol import ExecRequest, PythonRequest
from wink_workspace.sandbox.transport.container_frames import request_payload

CANCELLED: Final = "it was cancelled"

VARIABLES: Final = MappingProxyType(
    {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/tmp",  # noqa: S108 - inside the container
        "USER": "agent",
        "EMAIL": "wink_workspace@localhost",  # the default of commits
        "LOGNAME": "agent",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108 - inside the container
    }
)
"""The environment of every command; sandbox, configuration and request add to it, in this order."""


def payload_of(
    request: ExecRequest | PythonRequest,
    env: Mapping[str, str],
    size: tuple[int, int] | None = None,
) -> bytes:
    """A request as the runner gets it; *size* as for ``request_payload``.

    Raises:
        UsageError: If something in it is not valid Unicode, or its directory leaves the workspace.
    """
    return request_payload(
        cwd=_path_inside(request.cwd),
        env=env,
        stdin_bytes=len(request.stdin),
        merge_stderr=isinstance(request, ExecRequest) and request.merge_stderr,
        terminal=isinstance(request, ExecRequest) and request.terminal,
        size=size,
        arguments=arguments_of(request),
    )


def arguments_of(request: ExecRequest | PythonRequest) -> list[bytes]:
    """The program and its arguments, or the code."""
    if isinstance(request, PythonRequest):
        return [request.code.encode("utf-8", "surrogatepass")]
    return [encoded(argument) for argument in request.argv]


def encoded(text: str) -> bytes:
    """*text* in UTF-8; raises ``UsageError`` for lone surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{text[:80]!r} is not valid Unicode", hint="Remove lone surrogates."
        ) from error


def _path_inside(cwd: str) -> str:
    """A directory as an absolute path in the container; a relative one is in the workspace."""
    if not cwd.startswith("/"):
        return "/".join((WORKSPACE_PATH, *parse_path(cwd).parts))
    if "\0" in cwd:
        raise UsageError(f"the directory {cwd!r} contains a NUL", hint="Remove the '\\0'.")
    encoded(cwd)
    return cwd
