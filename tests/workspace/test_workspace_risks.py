"""Files that can run on the user's machine are marked; others are not."""

from __future__ import annotations

import pytest

from wink_workspace.filesystem import FileKind, parse_path
from wink_workspace.workspace.risks import (
    EXECUTABLE,
    LINK_OUTSIDE,
    RISKS,
    leaves_the_tree,
    risks_of,
)


def marks(path: str, *, executable: bool = False, target: str | None = None) -> tuple[str, ...]:
    return risks_of(
        parse_path(path),
        FileKind.FILE if target is None else FileKind.SYMLINK,
        executable=executable,
        target=target,
        link_at=lambda _: None,
    )


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".husky/pre-commit", "git hook"),
        ("web/.pre-commit-config.yaml", "git hook"),
        (".gitattributes", "git setting"),
        (".gitmodules", "git setting"),
        (".envrc", "shell or environment start-up"),
        (".env.local", "shell or environment start-up"),
        ("Makefile", "build file"),
        ("lib/GNUmakefile", "build file"),
        ("rules.mk", "build file"),
        (".cargo/config.toml", "build file"),
        ("package.json", "package scripts or sources"),
        ("app/.npmrc", "package scripts or sources"),
        ("setup.py", "Python build or start-up"),
        ("pyproject.toml", "Python build or start-up"),
        ("lib/evil.pth", "Python build or start-up"),
        ("tests/conftest.py", "test or lint set-up"),
        ("vite.config.ts", "test or lint set-up"),
        (".vscode/tasks.json", "editor task or setting"),
        ("sub/.VSCode/Tasks.json", "editor task or setting"),
        (".idea/runConfigurations/x.xml", "editor task or setting"),
        (".mcp.json", "coding agent setting"),
        (".claude/settings.json", "coding agent setting"),
        ("Dockerfile", "container"),
        (".devcontainer/devcontainer.json", "container"),
        (".github/workflows/ci.yml", "CI job"),
        (".gitlab-ci.yml", "CI job"),
    ],
)
def test_a_file_that_a_tool_runs_unasked_is_marked(path: str, reason: str) -> None:
    assert marks(path) == (reason,)


@pytest.mark.parametrize(
    "path",
    ["a.py", "README.md", "src/hooks/use.ts", "docs/makefile/intro.md", "github/workflows/x", "envrc",
     "src/build/a.c", ".gitignore", "notes/package.json.md"],
)  # fmt: skip
def test_an_ordinary_file_is_not_marked(path: str) -> None:
    assert marks(path) == ()


def test_the_executable_bit_is_marked_beside_other_reasons() -> None:
    assert marks("x") == ()
    assert marks("x", executable=True) == (EXECUTABLE,)
    assert marks(".husky/pre-push", executable=True) == ("git hook", EXECUTABLE)


@pytest.mark.parametrize(
    ("target", "leaves"),
    [
        ("/etc/passwd", True),
        ("../../x", True),
        ("../x", False),
        ("../d/../../x", True),
        ("./e/../f", False),
        ("../.git/hooks/post", True),
        ("../up/x", True),
        ("../here/../d", False),
        ("../loop", False),
        ("../round/x", True),
        ("", False),
    ],
)
def test_a_link_is_followed_through_other_links_to_where_it_leads(
    target: str, leaves: bool
) -> None:
    links = {"up": "..", "here": "d/e", "loop": "loop", "round": "up"}
    found = leaves_the_tree(parse_path("d/l"), target, lambda path: links.get(str(path)))
    assert found is leaves
    assert (marks("d/l", target="/x") == (LINK_OUTSIDE,)) is True


def test_every_reason_fits_beside_a_path() -> None:
    reasons = [risk.reason for risk in RISKS] + [EXECUTABLE, LINK_OUTSIDE]
    assert len(set(reasons)) == len(reasons)
    assert max(map(len, reasons)) <= 30
