"""Which changed paths can run something on the user's machine, and why.

Rule 1: a mark is a hint for the person who reviews a change, and never a permission: any file of
a program runs when the program does. Marked are the files that a tool runs or obeys without a
command that names them: when a directory is entered, an editor opened, or a project built, tested,
installed, committed or pushed.
Rule 2: one table holds all kinds. Names are compared without case, as some systems do.
Rule 3: only new states are marked. A removed path runs nothing.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.ledger import is_git_directory_name

__all__ = ["EXECUTABLE", "LINK_OUTSIDE", "RISKS", "LinkAt", "Risk", "leaves_the_tree", "risks_of"]

LinkAt = Callable[[WorkspacePath], str | None]
"""The target of the link at a path; ``None`` if there is no link."""

_MOST_LINKS: Final = 40


@dataclass(frozen=True, slots=True)
class Risk:
    """One kind of file that runs although no command names it.

    Attributes:
        reason: What to show beside the path, in at most 30 letters.
        names: Patterns for the last part of the path.
        paths: Patterns for the end of the path, of several parts.
        folders: Directories in which every file counts, at any depth.
    """

    reason: str
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


EXECUTABLE: Final = "executable"
LINK_OUTSIDE: Final = "link that leaves the directory"

# fmt: off
RISKS: Final = (
    Risk("git hook",
         names=(".pre-commit-config.yaml", ".pre-commit-hooks.yaml", "lefthook*.y*ml",
                ".lefthook*.y*ml", ".overcommit.yml", ".huskyrc*", ".lintstagedrc*"),
         folders=(".husky", ".githooks", ".lefthook")),
    Risk("git setting",
         names=(".gitattributes", ".gitmodules", ".gitconfig", ".lfsconfig")),
    Risk("shell or environment start-up",
         names=(".envrc", ".env", ".env.*", "mise.toml", ".mise.toml", ".tool-versions",
                ".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".zprofile",
                ".autoenv*", ".direnvrc"),
         folders=(".mise", ".direnv")),
    Risk("build file",
         names=("makefile", "gnumakefile", "makefile.*", "*.mk", "cmakelists.txt", "*.cmake",
                "meson.build", "*.ninja", "sconstruct", "sconscript", "wscript", "configure",
                "configure.ac", "justfile", ".justfile", "taskfile.y*ml", "rakefile", "*.rake",
                "build.gradle*", "settings.gradle*", "gradlew*", "mvnw*", "pom.xml", "build.xml",
                "build.rs", "build.sbt", "build.zig", "build", "build.bazel", "workspace",
                "workspace.bazel", "module.bazel", "*.bzl", "magefile.go", "tiltfile",
                "earthfile", "procfile", "vagrantfile", "dodo.py", "fabfile.py", "flake.nix",
                "shell.nix", "default.nix", "*.csproj", "*.vcxproj", "directory.build.*"),
         paths=(".cargo/config", ".cargo/config.toml", ".mvn/*", "gradle/wrapper/*")),
    Risk("package scripts or sources",
         names=("package.json", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs",
                "pnpmfile.js", "bunfig.toml", "deno.json*", "composer.json", "gemfile",
                "*.gemspec", "podfile", "package.swift", "mix.exs", "cargo.toml", "pip.conf",
                ".pypirc", "uv.toml", "pixi.toml", "environment.yml"),
         folders=(".yarn",)),
    Risk("Python build or start-up",
         names=("setup.py", "setup.cfg", "pyproject.toml", "sitecustomize.py",
                "usercustomize.py", "*.pth", "*.egg-link", "hatch_build.py")),
    Risk("test or lint set-up",
         names=("conftest.py", "pytest.ini", "pytest.toml", "tox.ini", "noxfile.py", ".pylintrc",
                "pylintrc", "mypy.ini", ".mypy.ini", "*.config.js", "*.config.cjs",
                "*.config.mjs", "*.config.ts", "*.config.mts", ".eslintrc*", ".prettierrc*",
                ".babelrc*", "gulpfile.*", "gruntfile.*", "*.setup.js", "*.setup.ts",
                ".rspec", ".rubocop.yml", ".mocharc*")),
    Risk("editor task or setting",
         names=("*.code-workspace", ".dir-locals.el", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua",
                ".lvimrc", "*.sublime-project", "*.sublime-build", "*.iml"),
         folders=(".vscode", ".idea", ".vim", ".zed", ".fleet", ".nova", ".settings")),
    Risk("coding agent setting",
         names=(".mcp.json", ".aider.conf.yml", "opencode.json*", "wink-workspace.toml"),
         paths=("wink-workspace/config.toml", "wink-workspace/confirmed/*"),
         folders=(".claude", ".cursor", ".codex", ".gemini", ".windsurf", ".continue")),
    Risk("container",
         names=("dockerfile*", "*.dockerfile", "containerfile*", "docker-compose*.y*ml",
                "compose*.y*ml", "docker-bake.*", ".devcontainer.json"),
         folders=(".devcontainer",)),
    Risk("CI job",
         names=(".gitlab-ci*.yml", ".travis.yml", "jenkinsfile*", "azure-pipelines*.yml",
                "bitbucket-pipelines.yml", "appveyor.yml", ".appveyor.yml", ".drone.yml",
                ".woodpecker.y*ml", "cloudbuild.y*ml", "buildspec.y*ml", ".cirrus.yml",
                "dependabot.yml", "renovate.json*", "action.yml", "action.yaml"),
         folders=(".github/workflows", ".github/actions", ".gitlab", ".circleci", ".buildkite",
                  ".woodpecker", ".forgejo/workflows", ".gitea/workflows")),
)
# fmt: on
"""The kinds, in the order in which their reasons are shown."""


def risks_of(
    path: WorkspacePath, kind: FileKind, *, executable: bool, target: str | None, link_at: LinkAt
) -> tuple[str, ...]:
    """Why the new state of *path* can run something; empty if it cannot.

    Args:
        path: The path.
        kind: Its kind.
        executable: Whether it has the executable bit.
        target: The target, for a link.
        link_at: Finds the other links of the tree.
    """
    name = path.name.casefold()
    whole = "/" + str(path).casefold()
    found = [risk.reason for risk, its_name, its_path in _COMPILED
             if its_name.match(name) or its_path.match(whole)]  # fmt: skip
    if kind is FileKind.FILE and executable:
        found.append(EXECUTABLE)
    if target is not None and leaves_the_tree(path, target, link_at):
        found.append(LINK_OUTSIDE)
    return tuple(found)


def leaves_the_tree(path: WorkspacePath, target: str, link_at: LinkAt) -> bool:
    """Whether a link at *path* leads out of the directory, or into a ``.git`` of it.

    Other links on the way are followed. A cycle of links leads nowhere.
    """
    at = list(path.parts[:-1])
    ahead = target.split("/")[::-1]
    if target.startswith("/"):
        return True
    n_links = 0
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if not at:
                return True
            at.pop()
            continue
        if is_git_directory_name(name):
            return True
        at.append(name)
        further = link_at(WorkspacePath(tuple(at)))
        if further is not None:
            n_links += 1
            if n_links > _MOST_LINKS:
                return False
            if further.startswith("/"):
                return True
            at.pop()
            ahead += further.split("/")[::-1]
    return False


def _any_of(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, patterns)) if patterns else "(?!)")


_COMPILED: Final = tuple(
    (
        risk,
        _any_of(list(risk.names)),
        _any_of([f"*/{each}" for each in (*risk.paths, *(f"{at}/*" for at in risk.folders))]),
    )
    for risk in RISKS
)
