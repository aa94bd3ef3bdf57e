"""Answers the requests of a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from wink_workspace.integrations.frameworks import importing
from wink_workspace.ledger import MAIN_BRANCH
from wink_workspace.workspace import Workspace

from .client_requests import AcpHost, directory_of, refused, text_of
from .client_session import AcpSession, chats_of

with importing("acp"):
    from acp import PROTOCOL_VERSION, Client, RequestError
    from acp.schema import (
        AgentCapabilities,
        CloseSessionResponse,
        ForkSessionResponse,
        Implementation,
        InitializeResponse,
        ListSessionsResponse,
        LoadSessionResponse,
        McpCapabilities,
        NewSessionResponse,
        PromptCapabilities,
        PromptResponse,
        ResumeSessionResponse,
        SessionCapabilities,
        SessionCloseCapabilities,
        SessionForkCapabilities,
        SessionInfo,
        SessionListCapabilities,
        SessionResumeCapabilities,
    )


_REWIND: Final = "wink/rewind"
_MOST_LISTED: Final = 200


class AcpAgent:
    """An agent of the protocol whose sessions are branches.

    The methods are those of the Agent Client Protocol, with its parameters: ``cwd`` is the absolute
    path of a directory, ``mcp_servers`` the servers of the editor, ``prompt`` the blocks of a
    message, and ``params`` the values of an extension by name.

    Args:
        host: What it works with.
    """

    def __init__(self, host: AcpHost) -> None:
        self._host = host
        self._sessions: dict[str, AcpSession] = {}
        self._client: Client | None = None

    def on_connect(self, conn: Client) -> None:
        """Note the client."""
        self._client = conn

    async def close(self) -> None:
        """Cancel what runs, and close every session."""
        for session in [*self._sessions.values()]:
            await session.close()
        self._sessions.clear()

    # Requests

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        """The version and the capabilities of this agent."""
        del protocol_version
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="wink-workspace", version="1"),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    fork=SessionForkCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
                field_meta={"wink": {"methods": [_REWIND]}},
            ),
        )

    async def new_session(
        self, cwd: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> NewSessionResponse:
        """A new workspace with a copy of the directory."""
        source = directory_of(cwd)

        def create() -> Workspace:
            return Workspace.create(source, storage=self._host.storage, config=self._host.config)

        session = await self._opened(create, mcp_servers)
        return NewSessionResponse(session_id=session.id)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> LoadSessionResponse:
        """Open a branch again, and show its chat."""
        session = await self._opened_again(cwd, session_id, mcp_servers)
        await session.replay()
        return LoadSessionResponse()

    async def resume_session(
        self, cwd: str, session_id: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> ResumeSessionResponse:
        """Open a branch again, for a client that has its chat."""
        await self._opened_again(cwd, session_id, mcp_servers)
        return ResumeSessionResponse()

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> ListSessionsResponse:
        """The sessions with a chat, of one directory or of all; the newest workspaces first."""
        del cursor  # all are in the first answer
        listed = await asyncio.to_thread(self._listed, cwd)
        return ListSessionsResponse(sessions=listed[:_MOST_LISTED])

    def _listed(self, cwd: str | None) -> list[SessionInfo]:
        storage = self._host.storage
        return [
            session
            for info in storage.all()
            if cwd is None or Path(cwd) == Path(info.source)
            for session in chats_of(storage.folder_of(info))
        ]

    async def _opened_again(
        self, cwd: str, session_id: str, mcp_servers: list[Any] | None
    ) -> AcpSession:
        source = directory_of(cwd)
        session = self._sessions.get(session_id)
        if session is None:
            session = await self._opened(partial(self._open, session_id), mcp_servers)
        if Path(session.workspace.info.source) != source:
            await self.close_session(session.id)
            raise refused(f"session {session_id} belongs to {session.workspace.info.source}")
        return session

    async def fork_session(
        self, session_id: str, cwd: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> ForkSessionResponse:
        """A fork of the branch, with the chat so far."""
        directory_of(cwd)
        parent = self._session(session_id)
        name = await parent.in_thread(parent.fork)
        workspace_id = parent.workspace.info.id
        session = await self._opened(partial(self._open, f"{workspace_id}/{name}"), mcp_servers)
        return ForkSessionResponse(session_id=session.id)

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        """Cancel what runs in a session, and close its workspace."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()
        return CloseSessionResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        """Run the agent on a message of the user."""
        session, text = self._session(session_id), text_of(prompt)
        return PromptResponse(stop_reason=await session.prompt(text))

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Cancel the run of a session; the call in progress is rolled back."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.cancellation.cancel()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """``wink/rewind`` goes back in chat and files, before the last ``prompts`` messages.

        Takes ``sessionId`` and ``prompts`` (1 by default); returns the number of the new ``entry``.
        """
        if method.removeprefix("_") != _REWIND:
            raise RequestError.method_not_found(method)
        session, n_prompts = self._session(str(params.get("sessionId"))), params.get("prompts", 1)
        if type(n_prompts) is not int or n_prompts < 1:
            raise refused("prompts is the number of messages to go back, at least 1")
        return {"entry": await session.in_thread(partial(session.rewind, n_prompts))}

    # Sessions

    def _session(self, session_id: str) -> AcpSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise refused(f"there is no open session {session_id}")
        return session

    def _open(self, session_id: str) -> Workspace:
        workspace_id, _, fork = session_id.partition("/")
        return Workspace.open(
            workspace_id,
            branch=fork or MAIN_BRANCH,
            storage=self._host.storage,
            config=self._host.config,
        )

    async def _opened(
        self, open_workspace: Callable[[], Workspace], servers: list[Any] | None
    ) -> AcpSession:
        assert self._client is not None  # noqa: S101 - it sent the request
        session = AcpSession(self._host, self._client)
        try:
            await session.in_thread(partial(session.open, open_workspace, servers or []))
        except BaseException:
            await session.close()
            raise
        self._sessions[session.id] = session
        return session
