"""An agent program for the tests: it asks a provider, edits, runs commands and reports its calls.

It runs in the container, with the standard library only. Its tools are ``edit`` and ``shell``. A call
with ``"silent": true`` is not reported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

CALLS = Path("/workspace/.wink-agent/calls")


def ask(messages):
    """The text and the calls of one turn, from the provider's events."""
    url = f"{os.environ['PROVIDER_URL']}/v1/messages"
    body = json.dumps({"messages": messages, "tools": [{"name": "edit"}]}).encode()
    headers = {"content-type": "application/json", "x-api-key": "not-known-here"}
    text, calls = "", []
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            event = json.loads(line[6:])
            block, delta = event.get("content_block", {}), event.get("delta", {})
            if block.get("type") == "tool_use":
                calls.append([block["name"], ""])
            text += delta.get("text", "")
            if "partial_json" in delta:
                calls[-1][1] += delta["partial_json"]
    return text, [(name, json.loads(arguments)) for name, arguments in calls]


def work(name, arguments):
    if name == "shell":
        done = subprocess.run(
            arguments["command"], shell=True, capture_output=True, text=True, check=False
        )
        return {"exit_code": done.returncode, "output": done.stdout + done.stderr}
    path = Path(arguments["file_path"])
    text = path.read_text()
    assert arguments["old"] in text
    path.write_text(text.replace(arguments["old"], arguments["new"]))
    return "edited"


def report(name, arguments, response):
    """Wait until the call is an entry."""
    file = CALLS / f"{time.time_ns()}-{os.getpid()}"
    call = {"tool_name": name, "tool_input": arguments, "tool_response": response}
    file.write_text(json.dumps(call))
    complete = file.rename(file.with_suffix(".json"))
    while complete.exists():
        time.sleep(0.01)


def main():
    messages = [{"role": "user", "content": sys.argv[1]}]
    Path(os.environ["HOME"], "session").write_text(sys.argv[1])
    while True:
        text, calls = ask(messages)
        if not calls:
            print(text)
            return
        for name, arguments in calls:
            response = work(name, arguments)
            messages.append({"role": "user", "content": json.dumps(response)})
            if not arguments.get("silent"):
                report(name, arguments, response)


main()
