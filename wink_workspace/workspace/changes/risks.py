"""Which changed paths can run something on the user's machine, and why.

Rule 1: a mark is a hint for the person who reviews a change, and never a permission: any file of
a program runs when the program does. Marked are the files that a tool runs or obeys without a
command that names them: when a directory is entered, an editor opened, or a project built, tested,
installed, committed or pushed.
Rule 2: one table holds all kinds. Names are compared without case, as some systems do. It has the
tools of the inventory "Living Off The Pipeline" [boostsecurityio.github.io/lotp] that read a file
of the project, the files that editors, shells, debuggers and interpreters load from the current
directory by their manuals, and those of coding agents.
Rule 3: only new states are marked. A removed path runs nothing.
Rule 4: a path counts under each name by which links of the tree lead to it. A link counts as what
it is named, so a link ``.vscode`` is marked as the directory would be.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.ledger import is_git_directory_name

_MOST_LINKS: Final = 40
_MOST_NAMES: Final = 256


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
                ".lefthook*.y*ml", ".overcommit.yml", ".huskyrc*", ".lintstagedrc*",
                "lint-staged.config.*"),
         folders=(".husky", ".githooks", ".lefthook")),
    Risk("git setting",
         names=(".gitattributes", ".gitmodules", ".gitconfig", ".lfsconfig")),
    Risk("shell or environment start-up",
         names=(".envrc", ".env", ".env.*", "mise.toml", ".mise.toml", ".tool-versions",
                ".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".zprofile",
                ".autoenv*", ".direnvrc", "devenv.nix", "devbox.json", ".wgetrc", ".curlrc",
                ".screenrc", "brewfile"),
         folders=(".mise", ".direnv")),
    Risk("interpreter start-up",
         names=(".ghci", ".irbrc", ".pryrc", ".gdbinit", ".lldbinit", ".rprofile", ".renviron",
                ".octaverc", ".proverc", ".perltidyrc", ".ctags", "jupyter_*config.*",
                "rust-toolchain", "rust-toolchain.toml", "ansible.cfg"),
         folders=(".ctags.d", ".ipython")),
    Risk("build file",
         names=("makefile", "gnumakefile", "makefile.*", "*.mk", "cmakelists.txt", "*.cmake",
                "meson.build", "*.ninja", "sconstruct", "sconscript", "wscript", "configure",
                "configure.ac", "justfile", ".justfile", "taskfile.y*ml", "rakefile", "*.rake",
                "*.gradle", "*.gradle.kts", "gradle.properties", "gradlew*", "mvnw*", "pom.xml",
                "build.xml", "build.rs", "build.sbt", "build.zig", "build", "build.bazel",
                "workspace", "workspace.bazel", "module.bazel", "*.bzl", "magefile.go", "tiltfile",
                "earthfile", "procfile", "vagrantfile", "dodo.py", "fabfile.py", "flake.nix",
                "shell.nix", "default.nix", "*.csproj", "*.fsproj", "*.vbproj", "*.vcxproj",
                "*.proj", "*.props", "*.targets", "nuget.config", "directory.build.*", "doxyfile*",
                "dune", "dune-project", "*.opam", "*.cabal", "cabal.project", "setup.hs",
                "stack.yaml", "rebar.config", "project.clj", "deps.edn", "bb.edn", "build.mill",
                "build.sc", "premake*.lua", "xmake.lua", "conanfile.*", "vcpkg*.json", "buck",
                ".buckconfig", ".bazelrc", "pants.toml", "snakefile", "nextflow.config",
                "pubspec.yaml", "build.yaml", "mkdocs.yml", "mkdocs.yaml", "conf.py",
                "hugo.toml", "nx.json", "turbo.json", "lerna.json", "angular.json", "*.tf",
                "*.tf.json", ".terraformrc", "terragrunt.hcl", "pulumi*.yaml", ".releaserc*",
                ".goreleaser.y*ml", ".gomplate.y*ml", "dangerfile*", "*.gyp", "*.gypi",
                "global.json", "netlify.toml", "vercel.json", "wrangler.*", "serverless.y*ml",
                "fastfile", "guardfile", "config.ru"),
         paths=("tools/bazel", ".cargo/config", ".cargo/config.toml", ".mvn/*",
                "gradle/wrapper/*")),
    Risk("package scripts or sources",
         names=("package.json", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs",
                "pnpmfile.js", "bunfig.toml", "deno.json*", "composer.json", "gemfile",
                "*.gemspec", "podfile", "package.swift", "mix.exs", "cargo.toml", "pip.conf",
                ".pypirc", "uv.toml", "pixi.toml", "environment.yml",
                "requirements*.txt", "constraints*.txt", "poetry.toml", "pdm.toml", ".pdm.toml",
                "pipfile", ".pnpmfile.mjs", "pnpm-workspace.yaml", "package-lock.json",
                "pnpm-lock.yaml", "yarn.lock", "auth.json", ".pnp.*", "go.mod", "go.work"),
         folders=(".yarn", ".bundle")),
    Risk("Python build or start-up",
         names=("setup.py", "setup.cfg", "pyproject.toml", "sitecustomize.py",
                "usercustomize.py", "*.pth", "*.egg-link", "hatch_build.py")),
    Risk("test or lint set-up",
         names=("conftest.py", "pytest.ini", "pytest.toml", "tox.ini", "noxfile.py", ".pylintrc",
                "pylintrc", "mypy.ini", ".mypy.ini", "*.config.js", "*.config.cjs",
                "*.config.mjs", "*.config.ts", "*.config.mts", ".eslintrc*", ".prettierrc*",
                ".babelrc*", "gulpfile.*", "gruntfile.*", "*.setup.js", "*.setup.ts",
                ".rspec", ".rubocop.yml", ".mocharc*", ".pytest.ini", ".flake8", ".checkov.y*ml",
                ".golangci.*", "phpunit.xml*", "phpstan*.neon*", ".php-cs-fixer*.php",
                ".stylelintrc*", ".swcrc", ".vale.ini", ".tflint.hcl", "trivy.yaml",
                "sonar-project.properties", "*.bats", ".nycrc*", "karma.conf.*",
                "testng.xml")),
    Risk("editor task or setting",
         names=("*.code-workspace", ".dir-locals.el", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua",
                ".lvimrc", "*.sublime-project", "*.sublime-build", "*.iml", ".emacs*", ".nvim.vim"),
         paths=(".helix/*.toml",),
         folders=(".vscode", ".idea", ".vim", ".zed", ".fleet", ".nova", ".settings", ".run",
                  ".theia", ".vs", ".kakrc")),
    Risk("coding agent setting",
         names=(".mcp.json", "mcp.json", ".aider*", "opencode.json*", "wink-workspace.toml",
                "agents.md", "claude.md", "claude.local.md", "gemini.md", ".cursorrules",
                ".windsurfrules", ".clinerules", ".crush.json", "crush.json", ".goosehints",
                "copilot-instructions.md"),
         paths=("wink-workspace/config.toml", "wink-workspace/confirmed/*"),
         folders=(".claude", ".cursor", ".codex", ".gemini", ".windsurf", ".continue", ".opencode",
                  ".roo", ".clinerules", ".kiro", ".agents", ".github/instructions",
                  ".github/prompts")),
    Risk("container",
         names=("dockerfile*", "*.dockerfile", "containerfile*", "docker-compose*.y*ml",
                "compose*.y*ml", "docker-bake.*", ".devcontainer.json", ".gitpod.y*ml",
                "kustomization.y*ml"),
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


class Links:
    """The links of a tree: where each leads, and by which other names a path is reached.

    Args:
        targets: The target of each link, by its path.
    """

    def __init__(self, targets: Mapping[WorkspacePath, str]) -> None:
        self._targets = targets

    @cached_property
    def _by_destination(self) -> Mapping[WorkspacePath, list[WorkspacePath]]:
        found: dict[WorkspacePath, list[WorkspacePath]] = {}
        for path, target in self._targets.items():
            destination = self.destination(path, target)
            if destination is not None:
                found.setdefault(destination, []).append(path)
        return found

    def names(self, path: WorkspacePath) -> Sequence[WorkspacePath]:
        """*path*, then each other name by which links lead to it; at most 256."""
        names = [path]
        if not self._targets:
            return names
        for name in names:  # which grows
            for above in (*name.ancestors(), name):
                for link in self._by_destination.get(above, ()):
                    other = WorkspacePath((*link.parts, *name.parts[len(above.parts) :]))
                    if other not in names and len(names) < _MOST_NAMES:
                        names.append(other)
        return names

    def destination(self, path: WorkspacePath, target: str) -> WorkspacePath | None:
        """Where a link at *path* leads, through other links.

        ``None`` if it leads out of the directory, or into a ``.git`` of it. A link of a cycle leads
        to itself.
        """
        at = list(path.parts[:-1])
        ahead = target.split("/")[::-1]
        n_links = 0
        if target.startswith("/"):
            return None
        while ahead:
            name = ahead.pop()
            if name in ("", "."):
                continue
            if name == "..":
                if not at:
                    return None
                at.pop()
                continue
            if is_git_directory_name(name):
                return None
            at.append(name)
            further = self._targets.get(WorkspacePath(tuple(at)))
            if further is not None:
                n_links += 1
                if n_links > _MOST_LINKS:
                    return path
                if further.startswith("/"):
                    return None
                at.pop()
                ahead += further.split("/")[::-1]
        return WorkspacePath(tuple(at))


def risks_of(
    path: WorkspacePath, kind: FileKind, *, executable: bool, target: str | None, links: Links
) -> tuple[str, ...]:
    """Why the new state of *path* can run something; empty if it cannot.

    Args:
        path: The path.
        kind: Its kind.
        executable: Whether it has the executable bit.
        target: The target, for a link.
        links: The links of the tree.
    """
    names = [str(each).casefold() for each in links.names(path)]
    if target is not None:
        names += [f"{each}/" for each in names]  # it may be a directory
    found = [risk.reason for risk, of_name, of_path in _COMPILED
             if any(of_name.match(each.rpartition("/")[2]) or of_path.match(f"/{each}")
                    for each in names)]  # fmt: skip
    if kind is FileKind.FILE and executable:
        found.append(EXECUTABLE)
    if target is not None and links.destination(path, target) is None:
        found.append(LINK_OUTSIDE)
    return tuple(found)


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
