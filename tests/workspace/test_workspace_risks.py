"""Files that can run on the user's machine are marked; others are not."""

from __future__ import annotations

import pytest

from wink_workspace.filesystem import FileKind, parse_path
from wink_workspace.workspace.changes.risks import (
    EXECUTABLE,
    LINK_OUTSIDE,
    RISKS,
    Links,
    risks_of,
)


def links_of(targets: dict[str, str]) -> Links:
    return Links({parse_path(path): target for path, target in targets.items()})


def marks(
    path: str,
    *,
    executable: bool = False,
    target: str | None = None,
    links: dict[str, str] | None = None,
) -> tuple[str, ...]:
    return risks_of(
        parse_path(path),
        FileKind.FILE if target is None else FileKind.SYMLINK,
        executable=executable,
        target=target,
        links=links_of(links or {}),
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
        ("AGENTS.md", "coding agent setting"),
        (".opencode/plugin/x.ts", "coding agent setting"),
        ("tools/bazel", "build file"),
        ("main.tf", "build file"),
        ("addon/binding.gyp", "build file"),
        ("gradle/publish.gradle.kts", "build file"),
        ("gradle.properties", "build file"),
        ("netlify.toml", "build file"),
        ("ansible.cfg", "interpreter start-up"),
        (".pnp.cjs", "package scripts or sources"),
        ("go.work", "package scripts or sources"),
        ("docs/conf.py", "build file"),
        (".gdbinit", "interpreter start-up"),
        (".golangci.yml", "test or lint set-up"),
        ("requirements-dev.txt", "package scripts or sources"),
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
    links = links_of({"up": "..", "here": "d/e", "loop": "loop", "round": "up"})
    assert (links.destination(parse_path("d/l"), target) is None) is leaves
    assert (marks("d/l", target="/x") == (LINK_OUTSIDE,)) is True


@pytest.mark.parametrize(
    ("path", "links", "reason"),
    [
        ("cfg/tasks.json", {".vscode": "cfg"}, "editor task or setting"),
        ("cfg/tasks.json", {".vscode": "./x/../cfg/"}, "editor task or setting"),
        ("deep/cfg/x/tasks.json", {"web/.vscode": "../deep/cfg/x"}, "editor task or setting"),
        ("y/ci.yml", {".github": "x", "x/workflows": "../y"}, "CI job"),
        ("y/ci.yml", {"z": ".github", ".github": "x", "x/workflows": "../y"}, "CI job"),
        ("rules.txt", {"Makefile": "rules.txt"}, "build file"),
        ("rules.txt", {"Makefile": "second", "second": "rules.txt"}, "build file"),
        ("hooks/pre-push", {".husky": "hooks"}, "git hook"),
    ],
)
def test_a_file_is_marked_under_each_name_by_which_links_lead_to_it(
    path: str, links: dict[str, str], reason: str
) -> None:
    assert marks(path, links=links) == (reason,)
    assert marks(path) == ()


def test_a_link_is_marked_as_the_directory_whose_name_it_has() -> None:
    assert marks(".vscode", target="cfg") == ("editor task or setting",)
    assert marks("notes", target="cfg") == ()


def test_links_that_lead_into_each_other_give_a_bounded_number_of_names() -> None:
    around = {f"d/l{n}": "." for n in range(40)}
    assert marks("d/notes.txt", links=around) == ()
    assert marks("d/Makefile", links={**around, "loop": "loop"}) == ("build file",)


def test_every_reason_fits_beside_a_path() -> None:
    reasons = [risk.reason for risk in RISKS] + [EXECUTABLE, LINK_OUTSIDE]
    assert len(set(reasons)) == len(reasons)
    assert max(map(len, reasons)) <= 30
