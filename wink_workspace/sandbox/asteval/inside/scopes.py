"""Scopes of names, as in Python: which names are local, and where the value of a name is found.

A name is local to a function that binds it anywhere, also before the statement that binds it.
A comprehension has a scope of its own, but ``:=`` inside of it binds in the function around it.

The scope outside of the module holds the names that need no import: the built-in names, and
asteval's own, such as ``e`` and ``sqrt``. If a module binds one of asteval's own names anywhere,
asteval's value is hidden in the whole module.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Bindings", "Comprehension", "Scope", "bindings", "bindings_of_module"]

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_INLINES: Final = sys.version_info >= (3, 12)
"""Whether Python runs a comprehension inline, without a function of its own (PEP 709)."""


@dataclass(frozen=True, slots=True)
class Bindings:
    """The names that one scope binds or declares."""

    local: frozenset[str] = frozenset()
    of_module: frozenset[str] = frozenset()
    of_outer: frozenset[str] = frozenset()


def bindings(nodes: Iterable[ast.AST], parameters: Iterable[str] = ()) -> Bindings:
    """The names bound by a function with this body, a lambda, or targets of a comprehension."""
    found = list(_own(nodes))
    of_module = {name for node in found if isinstance(node, ast.Global) for name in node.names}
    of_outer = {name for node in found if isinstance(node, ast.Nonlocal) for name in node.names}
    local = {*parameters, *(name for node in found for name in _bound_by(node))}
    return Bindings(
        frozenset(local - of_module - of_outer), frozenset(of_module), frozenset(of_outer)
    )


def bindings_of_module(tree: ast.Module) -> Bindings:
    """The names that a module binds, also in its functions with ``global``."""
    declared = {
        name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names
    }
    return Bindings(bindings(tree.body).local | declared)


def _own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of one scope, with those parts of inner scopes that are evaluated in this scope."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case ast.FunctionDef():
                waiting += node.decorator_list
                waiting += _defaults(node.args)
            case ast.Lambda():
                waiting += _defaults(node.args)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                waiting += (n for n in _own(ast.iter_child_nodes(node)) if _is_walrus(n))
            case _:
                waiting += ast.iter_child_nodes(node)


def _is_walrus(node: ast.AST) -> bool:
    return isinstance(node, ast.NamedExpr)


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]


def _bound_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(ctx=ast.Store() | ast.Del()):
            yield node.id
        case ast.FunctionDef():
            yield node.name
        case ast.ExceptHandler() if node.name is not None:
            yield node.name
        case ast.Import():
            yield from (each.asname or each.name.partition(".")[0] for each in node.names)
        case ast.ImportFrom():
            yield from (each.asname or each.name for each in node.names if each.name != "*")
        case _:
            pass


class Scope:
    """The values of the names of one call, one comprehension, the module, or the built-in names.

    Args:
        outer: The scope around it; ``None`` for the built-in names.
        names: The initial values.
        binds: The names that the scope binds.
        title: Its name in the qualified names of functions inside it.
        comprehension: The comprehension whose scope it is.
    """

    __slots__ = ("binds", "comprehension", "names", "outer", "title")

    def __init__(
        self,
        outer: Scope | None = None,
        names: dict[str, Any] | None = None,
        binds: Bindings | None = None,
        title: str = "",
        comprehension: Comprehension | None = None,
    ) -> None:
        self.outer = outer
        self.names: dict[str, Any] = {} if names is None else names
        self.binds = Bindings() if binds is None else binds
        self.title = title
        self.comprehension = comprehension

    def get(self, name: str) -> Any:
        """The value of *name* as code in this scope sees it.

        Raises:
            UnboundLocalError, NameError: If it has no value, as in Python.
        """
        scope, is_own = self, True
        while scope.is_inner:
            if name in scope.binds.of_module:
                break
            if name in scope.names:
                return scope.names[name]
            if name in scope.binds.local:
                raise _unbound(name, is_own=is_own)
            is_own = is_own and scope.is_inlined
            scope = scope.around
        return self.module.value_in_module(name)

    def value_in_module(self, name: str) -> Any:
        """The value of *name* in this module's scope, or its built-in value."""
        if name in self.names:
            return self.names[name]
        found = self.around.names
        if name not in found or (name in self.binds.local and not hasattr(builtins, name)):
            raise NameError(f"name {name!r} is not defined")
        return found[name]

    def set(self, name: str, value: object) -> None:
        """Bind *name* to *value* in the scope in which code of this scope binds it."""
        self._holder(name).names[name] = value

    def delete(self, name: str) -> None:
        """Unbind *name*; raises as ``get``."""
        holder = self._holder(name)
        if name not in holder.names:
            if not holder.is_inner:
                raise NameError(f"name {name!r} is not defined")
            raise _unbound(name, is_own=holder is self)
        del holder.names[name]

    @property
    def around(self) -> Scope:
        """The scope around it."""
        if self.outer is None:
            raise LookupError("the outermost scope has no scope around it")
        return self.outer

    @property
    def is_inner(self) -> bool:
        """Whether it is the scope of a function or a comprehension."""
        return self.outer is not None and self.outer.outer is not None

    @property
    def is_inlined(self) -> bool:
        """Whether Python runs it inline: a comprehension, since Python 3.12."""
        generates = self.comprehension is None or isinstance(self.comprehension, ast.GeneratorExp)
        return _INLINES and not generates

    @property
    def module(self) -> Scope:
        """The scope of the module."""
        scope = self
        while scope.is_inner:
            scope = scope.around
        return scope

    @property
    def function(self) -> Scope:
        """The scope itself; for a comprehension, that of the function around it."""
        scope = self
        while scope.comprehension is not None:
            scope = scope.around
        return scope

    def qualified(self, name: str) -> str:
        """The qualified name of a function that is defined here."""
        if name in self.binds.of_module or not self.is_inner:
            return name
        if self.is_inlined:
            return self.around.qualified(name)
        return f"{self.around.qualified(self.title)}.<locals>.{name}"

    def _holder(self, name: str) -> Scope:
        if name in self.binds.of_module:
            return self.module
        scope = self
        if name in self.binds.of_outer:
            scope = self.around
            while name not in scope.binds.local:
                scope = scope.around
        return scope


def _unbound(name: str, *, is_own: bool) -> NameError:
    if is_own:
        return UnboundLocalError(
            f"cannot access local variable {name!r} where it is not associated with a value"
        )
    return NameError(
        f"cannot access free variable {name!r} where it is not associated with a value in"
        " enclosing scope"
    )
