"""A C and a Node project: `image build`, then their own test commands in a workspace.

They need the mirrors of Debian that apt is configured for, and the images build and node.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from loopback import package_registries

from wink_workspace.cli import main
from wink_workspace.environment import Environment

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("podman-projects")]

C_PROJECT = {
    "sum.c": '#include <stdio.h>\nint main(void) { printf("%d\\n", 40 + 2); return 0; }\n',
    "Makefile": (
        "sum: sum.c\n\t$(CC) -o $@ $<\n"
        "install: sum\n\tinstall -D sum $(PREFIX)/bin/sum\n"
        "test: sum\n\ttest `./sum` = 42\n\ttest `sum` = 42\n\t@echo all passed\n"
    ),
}
NODE_PROJECT = {
    "package.json": json.dumps(
        {"name": "p", "version": "1.0.0", "scripts": {"test": "node test.js"}}
    ),
    "package-lock.json": json.dumps(
        {"name": "p", "version": "1.0.0", "lockfileVersion": 3, "packages": {"": {"name": "p"}}}
    ),
    "test.js": 'require("assert").equal(40 + 2, 42); console.log("all passed");\n',
}


@pytest.mark.parametrize(
    ("files", "options", "command"),
    [
        (C_PROJECT, ["--base", "build", "--set-up", "make install PREFIX=/opt/project"], "make"),
        (NODE_PROJECT, ["--lock", "package-lock.json"], "npm"),
    ],
    ids=["c", "node"],
)
def test_a_project_passes_its_tests_after_one_build(
    files: dict[str, str],
    options: list[str],
    command: str,
    environment: Environment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source = tmp_path / "project"
    source.mkdir()
    for name, text in files.items():
        (source / name).write_text(text)

    def shell(*arguments: str) -> str:
        exit_code = main(list(arguments))
        captured = capfdbinary.readouterr()
        assert exit_code == 0, captured.err.decode()[-3_000:]
        return captured.out.decode()

    with package_registries():  # apt, unless the image is built; npm has nothing to fetch
        shell("image", "build", "--source", str(source), *options)
    workspace = shell("new", str(source)).partition(":")[0]
    assert "all passed" in shell("exec", workspace, "--", command, "test")
