"""What a project needs, from the files it has: the content of a first ``wink-workspace.toml``.

Nothing of the project is run. Only regular files of bounded size are read, and no link is followed.
What a file asks for beyond an image, such as the mounts, arguments and hooks of a devcontainer, is
not taken over.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from wink_workspace.errors import FilesystemError, UsageError
from wink_workspace.filesystem import FileKind, parse_path
from wink_workspace.filesystem.disk import DiskTree
from wink_workspace.sandbox import DEFAULT_SANDBOX, ImageRecipe
from wink_workspace.sandbox.image_store import NODE_LOCKS

from .toml_file import TomlFile

_MOST_BYTES: Final = 1_048_576
_REQUIREMENTS: Final = (
    *("requirements.txt", "requirements-dev.txt", "dev-requirements.txt", "requirements_dev.txt"),
    *("requirements-test.txt", "requirements-tests.txt", "test-requirements.txt"),
    *("requirements/dev.txt", "requirements/test.txt", "requirements/tests.txt"),
)
_DEVCONTAINERS: Final = (".devcontainer/devcontainer.json", ".devcontainer.json")
_NOT_TAKEN: Final = (
    *("mounts", "workspaceMount", "runArgs", "features", "capAdd", "privileged", "securityOpt"),
    *("initializeCommand", "onCreateCommand", "updateContentCommand", "postCreateCommand"),
    *("postStartCommand", "postAttachCommand"),
)
_PLAIN: Final = re.compile(r"[ -~]*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True)
class Detected:
    """The settings for a project, and what they are derived from.

    Attributes:
        base: The image to start from; ``None`` for the default.
        packages: Names of Debian packages.
        requirements: Paths of files with requirements, relative to the project.
        lock: The path of a lock file.
        containerfile: The path of a Containerfile.
        set_up: Shell commands, in order.
        environment: Values of variables, by name.
        network: What commands may reach.
        suggestions: Lines of TOML in a comment, for what the user has to decide.
        found: One sentence for each file that was used.
    """

    base: str | None = None
    packages: list[str] = field(default_factory=list[str])
    requirements: list[str] = field(default_factory=list[str])
    lock: str | None = None
    containerfile: str | None = None
    set_up: list[str] = field(default_factory=list[str])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    network: list[str] = field(default_factory=list[str])
    suggestions: list[str] = field(default_factory=list[str])
    found: list[str] = field(default_factory=list[str])

    def need(self, base: str, packages: tuple[str, ...]) -> None:
        """Use our image *base*; if another language has chosen one, add these packages to it."""
        if self.base is None:
            self.base = base
        elif self.base != base:
            self.packages += [each for each in packages if each not in self.packages]

    def toml(self) -> str:
        """The text of a ``wink-workspace.toml``."""
        lines = [
            "# Settings for coding agents that work on this project with wink-workspace.",
            "# After a change, confirm them with `wink-workspace trust`.",
            "",
            f"sandbox = {json.dumps(DEFAULT_SANDBOX)}",
            f'network = {json.dumps(self.network)}  # such as ["pypi", "npm", "example.org:443"]',
            "",
            "[image]",
            *self._image(),
            *self.suggestions,
        ]
        if self.environment:
            lines += ["", "[environment]"]
            lines += [f"{name} = {json.dumps(each)}" for name, each in self.environment.items()]
        return "\n".join(lines) + "\n"

    def _image(self) -> Iterator[str]:
        keys = {
            "base": None if self.containerfile else self.base or "python",
            "packages": self.packages,
            "requirements": self.requirements,
            "lock": self.lock,
            "containerfile": self.containerfile,
            "set-up": self.set_up,
        }
        for name, value in keys.items():
            if value:
                yield f"{name} = {json.dumps(value)}"


def detect(source: Path) -> Detected:
    """What the project in *source* needs.

    Raises:
        FilesystemError: If *source* cannot be read.
    """
    detected = Detected()
    with DiskTree(source) as tree:
        files = _Files(tree)
        _python(files, detected)
        _node(files, detected)
        for name, other in _OTHERS.items():
            if files.has(name):
                _other(files, name, other, detected)
        _devcontainer(files, detected)
        if detected.containerfile is None and files.has("Containerfile"):
            detected.containerfile = "Containerfile"
            detected.found.append("Containerfile: its image")
        elif detected.containerfile is None and files.has("Dockerfile"):
            # It mostly describes what is deployed, without the project's tools.
            detected.suggestions.append('# containerfile = "Dockerfile"')
            detected.found.append("Dockerfile: as a comment")
    return detected


_IN_BUILD: Final = ("gcc", "make")


@dataclass(frozen=True, slots=True)
class _Other:
    """What a file of another language needs: Debian packages, and a command that fetches the rest.

    ``variables`` lead that command and those of the sandbox to what it fetched.
    """

    packages: tuple[str, ...]
    fetch: str = ""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


_JAVA: Final = "default-jdk-headless"
_OTHERS: Final[Mapping[str, _Other]] = {
    "Cargo.toml": _Other(
        ("cargo-web", "rustc-web"),
        # Its settings name the proxy, and what it fetches is kept under that name.
        "sh -c 'mkdir -p $CARGO_HOME && cp ~/.cargo/config.toml $CARGO_HOME && cargo fetch'",
        {"CARGO_HOME": "/opt/project/cargo"},
    ),
    "go.mod": _Other(("golang-go",), "go mod download", {"GOMODCACHE": "/opt/project/go"}),
    "pom.xml": _Other(
        ("maven", _JAVA),
        # Only a build knows what the plugins of its steps fetch, such as what runs the tests.
        "mvn --batch-mode --quiet -Dmaven.test.failure.ignore package",
        {"MAVEN_OPTS": "-Dmaven.repo.local=/opt/project/maven"},
    ),
    "build.gradle": _Other(("gradle", _JAVA)),
    "build.gradle.kts": _Other((_JAVA,)),
    "configure.ac": _Other(("gcc", "make", "autoconf", "automake", "libtool")),
    "CMakeLists.txt": _Other(("gcc", "make", "cmake")),
    "meson.build": _Other(("gcc", "meson", "ninja-build")),
    "Makefile": _Other(("gcc", "make")),
}
_OF_AUTOCONF: Final = {"PROG_YACC": "bison", "PROG_LEX": "flex", "GNU_GETTEXT": "gettext"}
"""Macros of a configure.ac, and the Debian packages that these need."""


def _other(files: _Files, name: str, other: _Other, detected: Detected) -> None:
    text = files.text(name) if name == "configure.ac" else ""
    packages = (
        *other.packages,
        *(package for macro, package in _OF_AUTOCONF.items() if macro in text),
    )
    detected.need("build", packages)
    detected.packages += [each for each in packages if each not in (*_IN_BUILD, *detected.packages)]
    if other.fetch:
        where = " ".join(f"{key}={value}" for key, value in other.variables.items())
        detected.set_up.append(f"{where} {other.fetch}")
        detected.environment.update(other.variables)
    detected.found.append(f"{name}: {', '.join(packages)}")
    if name.startswith("build.gradle"):
        # Gradle cannot use files that it cannot write, such as those of an image.
        detected.network = ["maven"]
        detected.found.append(f"{name}: commands read the registry maven")
    if name.endswith(".kts"):
        detected.found.append(
            f"{name}: Debian's Gradle does not read it; use the project's gradlew, and list the"
            " hosts that it downloads from in network"
        )


class _Files:
    """Reads the project."""

    def __init__(self, tree: DiskTree) -> None:
        self._tree = tree

    def has(self, path: str) -> bool:
        """Whether there is a regular file."""
        entry = self._tree.entry(parse_path(path))
        return entry is not None and entry.kind is FileKind.FILE

    def text(self, path: str) -> str:
        """The text of a file; empty if it is missing, not text, or large."""
        try:
            with self._tree.open(parse_path(path)) as file:
                content = file.read(_MOST_BYTES + 1)
        except FilesystemError:
            return ""
        return content.decode(errors="replace") if len(content) <= _MOST_BYTES else ""

    def has_modules(self, path: str) -> bool:
        """Whether Python can import something from the directory *path*."""
        entry = self._tree.entry(parse_path(path))
        if entry is None or entry.kind is not FileKind.DIRECTORY:
            return False
        return any(
            self.has(f"{each.path}/__init__.py")
            if each.kind is FileKind.DIRECTORY
            else each.path.name.endswith(".py")
            for each in self._tree.entries(parse_path(path))
        )


def _python(files: _Files, detected: Detected) -> None:
    marks = [name for name in ("pyproject.toml", "setup.py", "setup.cfg") if files.has(name)]
    requirements = [name for name in _REQUIREMENTS if files.has(name)]
    has_lock = files.has("uv.lock")
    if not (marks or requirements or has_lock):
        return
    keys = _keys(files.text("pyproject.toml"))
    is_compiled = any(map(_HAS_EXTENSIONS.search, map(files.text, marks)))
    is_editable = False
    if is_compiled:
        detected.need("build", ("gcc", "make"))
        detected.set_up.append(_install(files, "--target=/opt/project/extensions"))
        detected.found.append(f"{' or '.join(marks)}: modules that a compiler builds")
    else:
        detected.need("python", ("python3",))
        is_editable = files.has("setup.py") or "build-system" in keys
        if is_editable:
            detected.set_up.append(_install(files, "--editable"))
    detected.found += [f"{name}: a Python project" for name in marks[:1]]
    if has_lock:
        detected.lock = "uv.lock"
        detected.found.append("uv.lock: the Python packages")
    else:
        if keys & {"dependencies", "optional-dependencies", "dependency-groups"}:
            requirements.insert(0, "pyproject.toml")
        detected.requirements = requirements
        detected.found += [f"{name}: Python packages" for name in requirements]
    if files.has_modules("src") and not is_editable:
        detected.environment["PYTHONPATH"] = "/workspace/src"
        detected.found.append("src: modules that Python imports from there")


_HAS_EXTENSIONS: Final = re.compile(
    r"\bext[_-]modules\b|\bcffi_modules\b|\bExtension\(|[\"']mesonpy[\"']|scikit_build_core"
)
_VERSION_OF_GIT: Final = re.compile(r"\b(setuptools[-_]scm|hatch[-_]vcs)\b")


def _install(files: _Files, how: str) -> str:
    """The command that installs the project: its metadata, programs and compiled modules."""
    command = f"pip install --quiet --no-deps {how} ."
    if _VERSION_OF_GIT.search(files.text("pyproject.toml")) and not files.has("PKG-INFO"):
        return f"SETUPTOOLS_SCM_PRETEND_VERSION=0.0.0 {command}"  # the copy has no .git
    return command


def _keys(pyproject: str) -> set[str]:
    """The keys of a ``pyproject.toml``, and of its table ``project``; none if it is not TOML."""
    try:
        table = TomlFile.parse("pyproject.toml", pyproject.encode()).table
    except UsageError:
        return set()
    project = table.get("project")
    return {*table, *(cast("dict[str, object]", project) if isinstance(project, dict) else ())}


def _node(files: _Files, detected: Detected) -> None:
    if not files.has("package.json"):
        return
    detected.need("node", ("nodejs", "npm"))
    detected.found.append("package.json: a Node project")
    lock = next(filter(files.has, NODE_LOCKS), None)
    if lock is not None and detected.lock is None:
        detected.lock = lock
        detected.found.append(f"{lock}: the Node packages")
    elif _HAS_NODE_PACKAGES.search(files.text("package.json")):
        detected.found.append(
            "there is no package-lock.json, so no Node packages are in the image; to make one:"
            " npm install --package-lock-only"
        )


_HAS_NODE_PACKAGES: Final = re.compile(r'"(?:devD|d)ependencies"\s*:\s*\{\s*"')


def _devcontainer(files: _Files, detected: Detected) -> None:
    path = next((each for each in _DEVCONTAINERS if files.has(each)), None)
    if path is None:
        return
    try:
        content = json.loads(_without_comments(files.text(path)))
    except (ValueError, RecursionError):
        detected.found.append(f"{path}: it cannot be read, so it is not used")
        return
    if not isinstance(content, dict):
        return
    table = cast("dict[str, Any]", content)  # Any: JSON of the project
    image, build, variables = (table.get(each) for each in ("image", "build", "containerEnv"))
    used: list[str] = []
    with suppress(UsageError):
        if isinstance(image, str) and ImageRecipe(base=image):
            if detected.base is None:
                detected.base = image
            else:
                detected.suggestions.append(f"# base = {json.dumps(image)}")
            used.append("image")
    dockerfile = (
        cast("dict[str, Any]", build).get("dockerfile") if isinstance(build, dict)
        else table.get("dockerFile")
    )  # fmt: skip
    if isinstance(dockerfile, str):
        named = posixpath.normpath(posixpath.join(posixpath.dirname(path), dockerfile))
        if _PLAIN.fullmatch(named) and not named.startswith(("/", "..")) and files.has(named):
            detected.containerfile = named
            used.append("build.dockerfile")
    if isinstance(variables, dict):
        plain = _plain_variables(cast("dict[str, Any]", variables))
        detected.environment.update(plain)
        used += ["containerEnv"] if plain else []
    left_out = [name for name in _NOT_TAKEN if name in table]
    detected.found.append(
        f"{path}: {', '.join(used) or 'nothing that applies'}"
        + (f"; left out: {', '.join(left_out)}" if left_out else "")
    )


def _plain_variables(table: Mapping[str, object]) -> dict[str, str]:
    """The variables whose values are plain text, without references to the host."""
    return {
        name: value
        for name, value in list(table.items())[:100]
        if isinstance(value, str)
        and _VARIABLE.fullmatch(name)
        and _PLAIN.fullmatch(value)
        and "${" not in value
    }


_JSON_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


def _without_comments(text: str) -> str:
    """JSON with comments and final commas, as JSON."""
    plain = _JSON_PART.sub(lambda part: part[0] if part[0].startswith('"') else " ", text)
    return _LAST_COMMA.sub(lambda part: part[1] or "", plain)
