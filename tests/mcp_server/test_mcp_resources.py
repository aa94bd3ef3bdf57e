"""Files and history as resources, and strategies as prompts."""

from __future__ import annotations

import base64
import json
import os

import pytest
from mcp import Client, MCPError
from mcp_harness import Harness, run

from wink_workspace.sections import PlanningStrategy


async def uris(client: Client) -> list[str]:
    """The addresses on each page of the resource list."""
    found: list[str] = []
    cursor = None
    while True:
        page = await client.list_resources(cursor=cursor)
        found += [resource.uri for resource in page.resources]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def read(client: Client, uri: str) -> str:
    return (await client.read_resource(uri)).contents[0].text


def test_files_are_listed_page_by_page_each_once(harness: Harness) -> None:
    names = [f"d{n % 7}/f {n}.txt" for n in range(1_203)] + ["a.b/c", "a/b", "a-b", "ü%20.txt"]
    for name in names:
        (harness.source / name).parent.mkdir(exist_ok=True)
        (harness.source / name).write_text(name)
    (harness.source / "link").symlink_to("app.py")

    async def test() -> None:
        async with harness.client() as client:
            found = await uris(client)
            assert found[:2] == ["workspace://history", "workspace://diff"]
            assert len(found) == len(set(found)) == 2 + len(names) + 1
            assert await read(client, "workspace://files/%C3%BC%2520.txt") == "ü%20.txt"
            for uri in found[2::100]:
                assert await read(client, uri)

    run(test)


def test_files_with_any_bytes_and_names_with_any_bytes_can_be_read(harness: Harness) -> None:
    (harness.source / "image.png").write_bytes(b"\x89PNG\xff\x00")
    (harness.source / os.fsdecode(b"odd-\xff")).write_bytes(b"odd")

    async def test() -> None:
        async with harness.client() as client:
            image = (await client.read_resource("workspace://files/image.png")).contents[0]
            assert (image.mime_type, base64.b64decode(image.blob)) == (
                "image/png",
                b"\x89PNG\xff\x00",
            )
            (odd,) = [uri for uri in await uris(client) if "odd" in uri]
            assert await read(client, odd) == "odd"

    run(test)


@pytest.mark.parametrize(
    "uri",
    ["workspace://files/none", "workspace://files/../app.py", "workspace://files//etc/passwd",
     "workspace://files/%2e%2e/app.py", "workspace://files/out", "workspace://files/.",
     "workspace://files/", "workspace://files/%00", "workspace://history/0",
     "workspace://history/99", "workspace://history/x", "workspace://history/", "file:///etc/passwd",
     "workspace://other", "x", "workspace://files/\u00fc/none", "workspace://files/large"],
)  # fmt: skip
def test_missing_resource_is_an_error_of_the_protocol(harness: Harness, uri: str) -> None:
    (harness.root / "outside").write_text("secret")
    (harness.source / "out").symlink_to("../outside")
    with (harness.source / "large").open("wb") as large:
        large.truncate(5_000_000)

    async def test() -> None:
        async with harness.client() as client:
            with pytest.raises(MCPError) as raised:
                await client.read_resource(uri)
            assert raised.value.code == -32002
            assert raised.value.error.data == {"uri": uri}

    run(test)


def test_foreign_cursor_is_refused(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            for cursor in ("../..", "ü/../.."):
                with pytest.raises(MCPError) as raised:
                    await client.list_resources(cursor=cursor)
                assert raised.value.code == -32602

    run(test)


def test_history_and_diff_can_be_read_without_leaving_a_record(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            await client.call_tool("write_file", {"file_path": "new", "content": "x\n"})
            listed = json.loads(await read(client, "workspace://history"))
            assert [entry["number"] for entry in listed] == [2, 1]
            call = json.loads(await read(client, listed[0]["uri"]))
            assert call["record"]["tool"] == "write_file"
            assert "+x" in call["diff"]
            assert json.loads(await read(client, listed[1]["uri"]))["diff"] == ""
            assert "+x" in await read(client, "workspace://diff")
            assert len(json.loads(await read(client, "workspace://history"))) == 2

    run(test)


def test_resource_templates_are_listed(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            templates = (await client.list_resource_templates()).resource_templates
            assert [template.uri_template for template in templates] == [
                "workspace://files/{+path}",
                "workspace://history/{number}",
            ]

    run(test)


def test_strategies_are_prompts_that_start_with_the_task(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            prompts = (await client.list_prompts()).prompts
            assert [prompt.name for prompt in prompts] == [s.value for s in PlanningStrategy]
            texts = set()
            for prompt in prompts:
                got = await client.get_prompt(prompt.name, {"task": "Mend the roof."})
                text = got.messages[0].content.text
                assert text.startswith("Mend the roof.\n\n")
                assert (await client.get_prompt(prompt.name)).messages[0].content.text in text
                texts.add(text)
            assert len(texts) == len(prompts)
            with pytest.raises(MCPError):
                await client.get_prompt("none")

    run(test)
