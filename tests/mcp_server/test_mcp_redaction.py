"""Secrets of the environment are redacted for clients, records and spans; files keep them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_harness import Harness, run, text_of

from wink_workspace.environment import Environment
from wink_workspace.workspace import Workspace

SECRET = "correct-horse-battery"
REDACT = Environment(variables={"MY_API_KEY": SECRET}).redactor()


def test_secret_is_redacted_in_results_resources_errors_and_records_but_not_in_files(
    harness: Harness,
) -> None:
    (harness.source / "secret.txt").write_text(f"key = {SECRET}\n")
    (harness.source / "secret.bin").write_bytes(b"\xff" + SECRET.encode() + b"\x00")
    (harness.source / f"{SECRET}.txt").write_text("named\n")
    seen: list[str] = []

    async def call(client: Client, name: str, **arguments: Any) -> None:
        answer = await client.call_tool(name, arguments)
        seen.extend([text_of(answer), json.dumps(answer.structured_content)])

    async def read(client: Client, uri: str) -> str:
        content = (await client.read_resource(uri)).contents[0]
        text = getattr(content, "text", None)
        found = text if text is not None else base64.b64decode(content.blob).decode("latin-1")
        seen.append(found)
        return found

    async def test() -> None:
        async with harness.client(redact=REDACT, structured=True) as client:
            await call(client, "read_file", file_path="secret.txt")
            await call(client, "grep", pattern="ho.se")
            await call(client, "ls")
            await call(client, "read_file", file_path=f"{SECRET}/none")
            await call(client, SECRET, value=SECRET)
            await call(client, "write_file", file_path="new.txt", content=SECRET)
            await call(client, "workspace_diff")
            await call(client, "workspace_diff", entry=99, more=SECRET)
            await call(client, "workspace_log")
            for uri in ("workspace://diff", "workspace://history", "workspace://files/secret.txt"):
                assert "horse" not in await read(client, uri)
            for number in range(1, 6):
                await read(client, f"workspace://history/{number}")
            assert await read(client, "workspace://files/secret.bin") == "\xff[MY_API_KEY]\x00"
            listed = await client.list_resources()
            seen.extend(resource.name for resource in listed.resources)
            with pytest.raises(MCPError) as raised:
                await client.read_resource(f"workspace://files/none/{SECRET}")
            seen.append(str(raised.value.error))
            await call(client, "workspace_undo")

    run(test)
    assert SECRET not in "\n".join(seen)
    assert "\n".join(seen).count("[MY_API_KEY]") >= 10
    (which,) = harness.workspaces()
    with Workspace.open(which, storage=harness.storage) as workspace:
        assert SECRET in workspace.files.read_text("secret.txt").text
        records = [str(workspace.record(entry).data) for entry in workspace.log()]
        assert SECRET not in "".join(records)
        assert "[MY_API_KEY]" in "".join(records)
