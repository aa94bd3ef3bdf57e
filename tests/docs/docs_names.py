"""Names that the documentation may use: public names, parameters, and words of the source."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

from docs_pages import ROOT, Page

import wink_workspace

FOREIGN = frozenset(
    name
    for names in {
        "entry points": ["wink_workspace.sandboxes"],
        "Python": ["Path.write_text"],
        "git and libgit2": ["GIT_COMMON_DIR", "GIT_DIR", "PackBuilder", "create_blob_fromdisk"],
        "HTTP": ["Host", "Origin"],
        "databases": ["synchronous_commit"],
        "trailers of commits": ["Wink-…"],
        "type variables": ["Params", "Result", "Type"],
        "the kernel": ["io_uring"],
        "files of other tools": ["Containerfile", "Gemfile", "Jenkinsfile", "Justfile", "Makefile"],
        "the tools that the benchmarks compare with": [
            *("FilesystemBackend", "HostFilesystem", "InMemorySaver", "LocalShellBackend"),
            *(
                "ApplyPatchTool",
                "LocalSnapshotSpec",
                "SandboxAgent",
                "Shell",
                "ShellTool",
                "write_stdin",
            ),
            "UnixLocalSandboxClient",
        ],
    }.values()
    for name in names
)
"""What pages put in backticks as code and others define."""

USUAL = {
    "adapter": "ProviderAdapter",
    "call": "WorkspaceCall",
    "context": "ToolContext",
    "files": "Filesystem",
    "prompt": "Prompt",
    "session": "Session",
    "store": "LocalPromptOverridesStore",
    "workspace": "Workspace",
}
"""The class of a variable that the pages call by its usual name."""


def find(dotted: str) -> object:
    """The module or the attribute of one with the name *dotted*; raises if there is none."""
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        return _attribute(found, parts[n:])
    raise AttributeError(dotted)


def _attribute(found: object, names: list[str]) -> object:
    for name in names:
        if not has_attribute(found, name):
            raise AttributeError(name)
        found = getattr(found, name, None)
    return found


def has_attribute(found: object, name: str) -> bool:
    """Whether *found* or its instances have the attribute *name*."""
    if hasattr(found, name):
        return True
    classes = found.__mro__ if isinstance(found, type) else ()
    return any(name in vars(each).get("__annotations__", {}) for each in classes) or any(
        f"self.{name}" in inspect.getsource(each)
        for each in classes
        if each.__module__.startswith("wink_workspace")
    )


def cited(file: str, name: str) -> bool:
    """Whether the Python file *file* of the repository defines *name*."""
    path = ROOT / file
    if not path.is_file():
        return False
    if file.startswith("wink_workspace/"):
        try:
            find(f"{file.removesuffix('.py').replace('/', '.')}.{name}")
        except AttributeError:
            return False
        return True
    found: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for part in name.split("."):
        named = [each for each in found if part in _defined_by(each)]
        if not named:
            return False
        found = getattr(named[-1], "body", [])
    return True


def _defined_by(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return {statement.name}
        case ast.Assign() | ast.AnnAssign():
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            return {
                node.id
                for target in targets
                for node in ast.walk(target)
                if isinstance(node, ast.Name)
            }
        case _:
            return set()


@cache
def modules() -> tuple[ModuleType, ...]:
    names = [each.name for each in walk_packages(wink_workspace.__path__, "wink_workspace.")]
    # These two are the command and the program inside a container; importing them runs them.
    left = [name for name in names if not name.endswith(("__main__", ".runner", ".probes"))]
    return (wink_workspace, *map(import_module, left))


@cache
def public() -> dict[str, object]:
    """What packages list and modules define without an underscore, by its name."""
    defined = {
        name: value
        for module in modules()
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }
    listed = (
        (name, getattr(module, name))
        for module in modules()
        for name in getattr(module, "__all__", ())
    )
    return {**defined, **dict(listed)}


def documented() -> Iterator[object]:
    """What has an entry in the reference: everything in the `__all__` of a package."""
    packages = [module for module in modules() if hasattr(module, "__path__")]
    for package in packages:
        yield from (getattr(package, name) for name in getattr(package, "__all__", ()))


@cache
def members() -> frozenset[str]:
    """The names of public methods, attributes and parameters of what is public."""
    found: set[str] = set()
    for value in public().values():
        if isinstance(value, type):
            for each in value.__mro__:
                found |= vars(each).keys() | vars(each).get("__annotations__", {}).keys()
            for name, method in inspect.getmembers(value, callable):
                if not name.startswith("_") or name == "__init__":
                    found |= _parameters(method)
        elif callable(value):
            found |= _parameters(value)
    return frozenset(name for name in found if not name.startswith("_"))


def _parameters(function: object) -> set[str]:
    """The names of its parameters; ``kwargs`` for any keyword, whatever it is called."""
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]  # refused below
    except (TypeError, ValueError):
        return set()
    return {
        "kwargs" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
        for parameter in signature.parameters.values()
    }


@cache
def words() -> frozenset[str]:
    """Every word in the source of the package and the benchmarks, and the names of all tests."""
    found: set[str] = set()
    sources = [*(ROOT / "wink_workspace").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    for path in (*sources, ROOT / "scripts/check_language"):
        if path.is_file():
            found.update(re.findall(r"[A-Za-z_]\w*", path.read_text(encoding="utf-8")))
    for folder in ("tests", "wink_workspace/testing"):
        for path in (ROOT / folder).rglob("*.py"):
            found.update(re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")))
    return frozenset(found)


def unknown_names(page: Page) -> list[str]:
    """Names in backticks in *page* that look like ours but do not exist."""
    return [
        f"{page.name}:{line}: `{span}`: {problem}"
        for line, span in page.spans
        for problem in _problems_of_span(span)
    ]


def _problems_of_span(span: str) -> list[str]:
    if span in FOREIGN:
        return []
    if "::" in span:
        return []  # `file.py::Name` has its own check
    if re.fullmatch(r"[\w-]+(/[\w.-]+)+|[\w-]+\.(?!\w+\()(gradle|py|rs|toml|yml|json|txt)", span):
        return []  # a path
    if re.fullmatch(r"[A-Z_]+=\w+", span):
        return []  # an environment variable with its value
    if re.fullmatch(r"[a-z_]+=", span):
        return [] if span[:-1] in members() else ["no public function takes this argument"]
    try:
        tree = ast.parse(span.replace("…", "..."))
    except SyntaxError:
        return []
    problems: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                if name not in members() | FOREIGN:
                    problems.append(f"no public function takes {name!r}")
            case ast.Name(id=name):
                problems += _problems_of_name(name)
            case ast.Attribute():
                problems += _problems_of_attribute(node)
            case ast.Call():
                problems += _problems_of_call(node)
            case _:
                pass
    return problems


def _problems_of_name(name: str) -> list[str]:
    if name in public() or name in FOREIGN or hasattr(builtins, name):
        return []
    if re.fullmatch(r"(?:[A-Z][a-z0-9]+)+", name):
        return [f"{name} is not public"]
    if "_" in name.strip("_") and name not in words():
        return [f"{name} is not a name of the package"]
    return []


def _problems_of_attribute(node: ast.Attribute) -> list[str]:
    base, dotted = node.value, ast.unparse(node)
    if dotted in FOREIGN:
        return []
    if dotted.startswith("wink_workspace."):
        try:
            find(dotted)
        except AttributeError:
            return [f"there is no {dotted}"]
        return []
    if isinstance(base, ast.Name):
        owner = public().get(USUAL.get(base.id, base.id))
        if owner is not None and not has_attribute(owner, node.attr):
            return [f"{base.id} has no attribute {node.attr!r}"]
    elif ast.unparse(base).split(".")[0] in USUAL and node.attr not in members():
        return [f"nothing public has an attribute {node.attr!r}"]
    return []


def _problems_of_call(node: ast.Call) -> list[str]:
    called = ast.unparse(node.func)
    if called in FOREIGN:
        return []
    owner: object = None
    if isinstance(node.func, ast.Name):
        owner = public().get(called)
        if owner is None and called not in members() and not hasattr(builtins, called):
            return [f"nothing public is called {called!r}"]
    elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        base = node.func.value.id
        owner = getattr(public().get(USUAL.get(base, base)), node.func.attr, None)
    taken = _parameters(owner) if owner is not None else members()
    takes_any = "kwargs" in taken or "params" in taken
    return [
        f"{called} takes no argument {keyword.arg!r}"
        for keyword in node.keywords
        if keyword.arg and keyword.arg not in taken and not takes_any
    ]
