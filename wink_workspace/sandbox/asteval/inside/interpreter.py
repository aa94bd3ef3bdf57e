"""asteval's interpreter, with what it lacks of everyday Python.

asteval walks the syntax tree, looks names up in a table and guards attributes and operators;
that is kept. What it cannot do, or does otherwise than Python, is done here: scopes of
functions, generator expressions, ``import`` of the allowed modules, unpacking, ``with``,
``try``, ``raise``, ``del``, ``+=`` and where an error happened.

Rule 1: what is refused says what it is; nothing is passed over in silence.
Rule 2: none of this is a wall. Code that gets out of here finds itself in the child, behind
the one that ``wall`` has put up.

``return``, ``break`` and ``continue`` travel as exceptions that no ``except`` of the code sees.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import asteval  # pyright: ignore[reportMissingTypeStubs] - it has none
import asteval.astutils  # pyright: ignore[reportMissingTypeStubs] - as above

from .modules import Namespace

__all__ = ["Function", "Interpreter", "Scope", "builtin_names", "numpy_names"]

_Node = Any  # asteval's handlers take any node of ``ast``; a union of them all says no more
_asteval: Any = asteval.Interpreter  # neither it nor its parts have types
_astutils: Any = asteval.astutils

_ADDED_BUILTINS: Final = (
    *("FileExistsError", "FileNotFoundError", "IsADirectoryError", "ModuleNotFoundError"),
    *("NotADirectoryError", "PermissionError", "RecursionError", "StopIteration", "TimeoutError"),
    *("ascii", "callable", "issubclass", "iter", "next", "object"),
    "pow",  # asteval has that of math, which knows no modulus and no large integers
)
_FILES_OF_NUMPY: Final = frozenset(
    {
        *("DataSource", "fromfile", "fromregex", "genfromtxt", "load", "loadtxt", "memmap"),
        *("open_memmap", "save", "savetxt", "savez", "savez_compressed"),
    }
)
_operator: Any = operator  # typed for operands of one type, and these are of any
_IN_PLACE: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Add: _operator.iadd,
    ast.BitAnd: _operator.iand,
    ast.BitOr: _operator.ior,
    ast.BitXor: _operator.ixor,
    ast.Mult: _operator.imul,
    ast.Sub: _operator.isub,
}
_MUTABLE: Final = (list, dict, set, bytearray)
_READABLE_DUNDERS: Final = frozenset({"__name__", "__doc__"})
_ADDED_NODES: Final = (
    *("annassign", "generatorexp", "global", "namedexpr", "nonlocal", "starred"),
    *("break", "continue", "import", "importfrom"),
)


class _Signal(BaseException):
    """Moves control; never an error."""


class _Return(_Signal):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class _Break(_Signal):
    pass


class _Continue(_Signal):
    pass


class Scope:
    """The names of one function, or of the whole code, and the scope around it."""

    __slots__ = ("_elsewhere", "names", "outer")

    def __init__(self, outer: Scope | None = None, names: dict[str, Any] | None = None) -> None:
        self.outer = outer
        self.names: dict[str, Any] = {} if names is None else names
        self._elsewhere: dict[str, dict[str, Any]] = {}

    def get(self, name: str, default: object = None) -> Any:
        """The value of *name*, here or in a scope around."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return default

    def __setitem__(self, name: str, value: object) -> None:
        self._elsewhere.get(name, self.names)[name] = value

    def __delitem__(self, name: str) -> None:
        del self._elsewhere.get(name, self.names)[name]

    def belongs_to(self, name: str, scope: Scope) -> None:
        """From now on *name* is one of *scope*: what ``global`` and ``nonlocal`` say."""
        self._elsewhere[name] = scope.names

    def holder(self, name: str) -> Scope | None:
        """The nearest function around that has *name*."""
        scope = self.outer
        while scope is not None and name not in scope.names:
            scope = scope.outer
        return scope


class Function:
    """A function that the code has defined; calling it runs its body."""

    def __init__(
        self,
        interpreter: Interpreter,
        name: str,
        signature: inspect.Signature,
        run: Callable[[Scope], Any],
        closure: Scope,
    ) -> None:
        self.__name__ = name
        self._interpreter = interpreter
        self._signature = signature
        self._run = run
        self._closure = closure

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Bind the arguments as Python does, and run the body in a scope of its own."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.__name__}(): {error}") from None
        bound.apply_defaults()
        return self._run(Scope(self._closure, dict(bound.arguments)))

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"


def builtin_names(*, use_numpy: bool) -> dict[str, Any]:
    """The names that code finds without importing anything, asteval's table with ours."""
    table = cast("dict[str, Any]", _astutils.make_symbol_table(use_numpy=use_numpy))
    kept = {name: value for name, value in table.items() if name not in _FILES_OF_NUMPY}
    python = cast("Mapping[str, Any]", _astutils.builtins)
    kept |= {name: python[name] for name in _ADDED_BUILTINS}
    kept["type"] = _type_of  # asteval's gives a text, which no type is equal to
    return kept


def numpy_names() -> Namespace:
    """What there is of numpy as a module: what asteval offers of it, without files."""
    table = cast("dict[str, Any]", _astutils.NUMPY_TABLE)
    kept = {name: value for name, value in table.items() if name not in _FILES_OF_NUMPY}
    return Namespace("numpy", kept)


def _type_of(value: object, /) -> type:
    return type(value)


class Interpreter(_asteval):
    """An interpreter, for one evaluation.

    Args:
        builtins: From ``builtin_names``. What else the code is to find goes to ``outermost``.
        modules: What it may import.
    """

    def __init__(self, builtins: Mapping[str, Any], modules: Mapping[str, Namespace]) -> None:
        names = dict(builtins)
        _asteval.__init__(self, symtable=names, use_numpy=False)
        self._modules = modules
        self.outermost = Scope(None, names)
        self.whole = Scope(self.outermost)
        self.symtable: Any = self.whole
        self.failed_at: _Node = None
        self._failure: BaseException | None = None
        for name in _ADDED_NODES:
            self.node_handlers[name] = getattr(self, f"on_{name}")

    def evaluate(self, tree: ast.Module) -> tuple[Any, bool]:
        """Run *tree*; the value of its last statement, and whether that was an expression.

        Whatever the code raises is raised; ``failed_at`` is then the node that raised it.
        """
        value = None
        for statement in tree.body:
            value = self.run(statement)
        return value, bool(tree.body) and isinstance(tree.body[-1], ast.Expr)

    # What asteval calls on the way

    def run(
        self, node: _Node, expr: object = None, lineno: object = None, with_raise: object = True
    ) -> Any:
        """The value of a node; remembers the innermost one that failed."""
        del expr, lineno, with_raise
        if node is None:
            return None
        handler = self.node_handlers.get(type(node).__name__.lower())
        try:
            return self.unimplemented(node) if handler is None else handler(node)
        except _Signal:
            raise
        except BaseException as error:
            if error is not self._failure:
                self._failure, self.failed_at = error, node
            raise

    def unimplemented(self, node: _Node) -> Any:
        """Refuse a kind of statement or expression."""
        name = type(node).__name__
        raise NotImplementedError(f"{_WORDS.get(name, name)} cannot be used here")

    def raise_exception(
        self,
        node: _Node,
        exc: type[BaseException] | None = None,
        msg: object = "",
        expr: object = None,
        lineno: object = None,
    ) -> Any:
        """What asteval calls when it refuses something."""
        del node, expr, lineno
        raise (RuntimeError if exc is None else exc)(str(msg))

    # Names and attributes

    def on_attribute(self, node: _Node) -> Any:
        """An attribute, unless it leads into the interpreter."""
        value, name = self.run(node.value), node.attr
        if isinstance(value, Namespace):
            if name.startswith("_"):
                raise AttributeError(f"{value!r} has no attribute {name!r} here")
            return getattr(value, name)
        if isinstance(value, str) and name == "format":
            return self._format(value, node)
        if isinstance(value, str) and name == "format_map":
            return self._format_map(value, node)
        if name in _READABLE_DUNDERS and isinstance(value, type | Function):
            return getattr(value, name)
        if isinstance(value, Function) or name in _astutils.UNSAFE_ATTRS or name.startswith("__"):
            raise AttributeError(
                f"attribute {name!r} of {type(value).__name__} cannot be used here"
            )
        getattr(value, name)  # raises as Python does where asteval would give None
        return _astutils.safe_getattr(value, name, self.raise_exception, node)

    def _format(self, text: str, node: _Node) -> Callable[..., str]:
        """``str.format`` with the guard on every attribute that the text walks along."""

        def format_(*args: Any, **kwargs: Any) -> str:
            return _astutils.safe_format(text, self.raise_exception, node, *args, **kwargs)

        return format_

    def _format_map(self, text: str, node: _Node) -> Callable[[Mapping[str, Any]], str]:
        format_ = self._format(text, node)
        return lambda mapping: format_(**mapping)

    def on_formattedvalue(self, node: _Node) -> str:
        """One part of an f-string; the specification is a text, and no format string again."""
        value = self.run(node.value)
        converted = {115: str, 114: repr, 97: ascii}.get(node.conversion)
        shown = value if converted is None else converted(value)
        return format(shown, self.run(node.format_spec) or "")

    def node_assign(self, node: _Node, val: Any) -> None:
        """Bind a target: a name, an attribute, an item, or several of them."""
        match node:
            case ast.Name():
                self._bind(node.id, val)
            case ast.Subscript():
                self.run(node.value)[self.run(node.slice)] = val
            case ast.Attribute():
                holder = self.run(node.value)
                _astutils.safe_setattr(holder, node.attr, val, self.raise_exception, node)
            case ast.Tuple() | ast.List():
                self._unpack(node.elts, val)
            case _:
                self.unimplemented(node)

    def _bind(self, name: str, value: object) -> None:
        if name.startswith("__"):
            raise NameError(f"the name {name!r} cannot be used here")
        self.symtable[name] = value

    def _unpack(self, targets: Sequence[_Node], value: Iterable[Any]) -> None:
        values = list(value)
        starred = next((n for n, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
        n_needed = len(targets) - (starred is not None)
        if len(values) < n_needed or (starred is None and len(values) > n_needed):
            few = "not enough" if len(values) < n_needed else "too many"
            raise ValueError(f"{few} values to unpack (expected {n_needed}, got {len(values)})")
        if starred is not None:
            end = starred + len(values) - n_needed
            values[starred:end] = [values[starred:end]]
        for target, each in zip(targets, values, strict=True):
            self.node_assign(target.value if isinstance(target, ast.Starred) else target, each)

    def on_annassign(self, node: _Node) -> None:
        """``x: int = 3``; the annotation is not looked at."""
        if node.value is not None:
            self.node_assign(node.target, self.run(node.value))

    def on_namedexpr(self, node: _Node) -> Any:
        """``(x := 3)``."""
        value = self.run(node.value)
        self.node_assign(node.target, value)
        return value

    def on_augassign(self, node: _Node) -> None:
        """``x += 1``: the target is looked at once, and what can change is changed in place."""
        target = node.target
        if isinstance(target, ast.Subscript):
            holder, key = self.run(target.value), self.run(target.slice)
            holder[key] = self._combined(node.op, holder[key], self.run(node.value))
        else:
            load = ast.copy_location(_loading(target), target)
            value = self._combined(node.op, self.run(load), self.run(node.value))
            self.node_assign(target, value)

    def _combined(self, op: ast.operator, left: Any, right: Any) -> Any:
        in_place = _IN_PLACE.get(type(op)) if isinstance(left, _MUTABLE) else None
        return _astutils.op2func(op)(left, right) if in_place is None else in_place(left, right)

    def on_delete(self, node: _Node) -> None:
        """``del`` of names and items."""
        for target in node.targets:
            match target:
                case ast.Name():
                    if target.id not in self.symtable.names:
                        raise NameError(f"name {target.id!r} is not defined")
                    del self.symtable[target.id]
                case ast.Subscript():
                    del self.run(target.value)[self.run(target.slice)]
                case _:
                    self.unimplemented(target)

    def on_global(self, node: _Node) -> None:
        """``global x``."""
        for name in node.names:
            self.symtable.belongs_to(name, self.whole)

    def on_nonlocal(self, node: _Node) -> None:
        """``nonlocal x``."""
        for name in node.names:
            holder = self.symtable.holder(name)
            if holder is None or holder in (self.whole, self.outermost):
                raise SyntaxError(f"no binding for nonlocal {name!r} found")
            self.symtable.belongs_to(name, holder)

    def on_import(self, node: _Node) -> None:
        """``import math``."""
        for alias in node.names:
            self._bind(alias.asname or alias.name, self._module(alias.name))

    def on_importfrom(self, node: _Node) -> None:
        """``from math import sqrt``."""
        module = self._module("." * node.level + (node.module or ""))
        for alias in node.names:
            if alias.name == "*":
                for name in dir(module):
                    self._bind(name, getattr(module, name))
                continue
            try:
                value = getattr(module, alias.name)
            except AttributeError:
                raise ImportError(f"cannot import {alias.name!r} from {node.module!r}") from None
            self._bind(alias.asname or alias.name, value)

    def _module(self, name: str) -> Namespace:
        try:
            return self._modules[name]
        except KeyError:
            offered = ", ".join(self._modules)
            raise ModuleNotFoundError(f"no module {name!r} here; there are {offered}") from None

    # Displays and comprehensions

    def on_list(self, node: _Node) -> list[Any]:
        """``[a, *b]``."""
        return list(self._items(node.elts))

    def on_tuple(self, node: _Node) -> tuple[Any, ...]:
        """``(a, *b)``."""
        return tuple(self._items(node.elts))

    def on_set(self, node: _Node) -> set[Any]:
        """``{a, *b}``."""
        return set(self._items(node.elts))

    def _items(self, nodes: Iterable[_Node]) -> Iterator[Any]:
        for each in nodes:
            if isinstance(each, ast.Starred):
                yield from self.run(each.value)
            else:
                yield self.run(each)

    def on_starred(self, node: _Node) -> Any:
        """Only where lists, tuples, sets, calls and targets take one."""
        del node
        raise SyntaxError("can't use starred expression here")

    def on_dict(self, node: _Node) -> dict[Any, Any]:
        """``{key: value, **more}``."""
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                made.update(self.run(value))
            else:
                made[self.run(key)] = self.run(value)
        return made

    def on_listcomp(self, node: _Node) -> list[Any]:
        """``[x for x in y]``."""
        return list(self.on_generatorexp(node))

    def on_setcomp(self, node: _Node) -> set[Any]:
        """``{x for x in y}``."""
        return set(self.on_generatorexp(node))

    def on_dictcomp(self, node: _Node) -> dict[Any, Any]:
        """``{k: v for k, v in y}``."""
        return dict(self._rows(node, lambda: (self.run(node.key), self.run(node.value))))

    def on_generatorexp(self, node: _Node) -> Iterator[Any]:
        """``(x for x in y)``; *y* is looked at now, all else when a value is asked for."""
        return self._rows(node, lambda: self.run(node.elt))

    def _rows(self, node: _Node, row: Callable[[], Any]) -> Iterator[Any]:
        first = iter(self.run(node.generators[0].iter))
        scope = Scope(self.symtable)
        return self._looped(node.generators, first, scope, row)

    def _looped(
        self, loops: Sequence[_Node], values: Iterator[Any], scope: Scope, row: Callable[[], Any]
    ) -> Generator[Any]:
        loop, inner = loops[0], loops[1:]
        for value in values:
            with self._inside(scope):
                self.node_assign(loop.target, value)
                wanted = all(self.run(condition) for condition in loop.ifs)
                more = iter(self.run(inner[0].iter)) if wanted and inner else None
                found = row() if wanted and not inner else None
            if more is not None:
                yield from self._looped(inner, more, scope, row)
            elif wanted:
                yield found

    @contextmanager
    def _inside(self, scope: Scope) -> Generator[None]:
        outside, self.symtable = self.symtable, scope
        try:
            yield
        finally:
            self.symtable = outside

    # Calls and functions

    def on_call(self, node: _Node) -> Any:
        """A call, with ``*`` and ``**``."""
        function = self.run(node.func)
        args = list(self._items(node.args))
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            given = self.run(keyword.value)
            new = dict(given) if keyword.arg is None else {keyword.arg: given}
            twice = kwargs.keys() & new.keys()
            if twice:
                raise TypeError(f"got multiple values for keyword argument {min(twice)!r}")
            kwargs |= new
        return function(*args, **kwargs)

    def on_functiondef(self, node: _Node, is_lambda: bool = False) -> Any:
        """``def``; decorators are called as in Python."""
        del is_lambda  # see on_lambda
        function = Function(
            self, node.name, self._signature(node.args), self._body(node.body), self.symtable
        )
        decorated: Any = function
        for decorator in reversed(node.decorator_list):
            decorated = self.run(decorator)(decorated)
        self._bind(node.name, decorated)

    def on_lambda(self, node: _Node) -> Function:
        """``lambda``."""

        def run(scope: Scope) -> Any:
            with self._inside(scope):
                return self.run(node.body)

        return Function(self, "<lambda>", self._signature(node.args), run, self.symtable)

    def _body(self, statements: Sequence[ast.stmt]) -> Callable[[Scope], Any]:
        if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in _own_nodes(statements)):
            raise NotImplementedError("functions with yield cannot be used here")

        def run(scope: Scope) -> Any:
            with self._inside(scope):
                try:
                    for statement in statements:
                        self.run(statement)
                except _Return as returned:
                    return returned.value
            return None

        return run

    def _signature(self, arguments: ast.arguments) -> inspect.Signature:
        kinds = inspect.Parameter
        plain = [
            *((each, kinds.POSITIONAL_ONLY) for each in arguments.posonlyargs),
            *((each, kinds.POSITIONAL_OR_KEYWORD) for each in arguments.args),
        ]
        defaults = [self.run(default) for default in arguments.defaults]
        values = [kinds.empty] * (len(plain) - len(defaults)) + defaults
        parameters = [
            kinds(each.arg, kind, default=value)
            for (each, kind), value in zip(plain, values, strict=True)
        ]
        if arguments.vararg is not None:
            parameters.append(kinds(arguments.vararg.arg, kinds.VAR_POSITIONAL))
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            value = kinds.empty if default is None else self.run(default)
            parameters.append(kinds(each.arg, kinds.KEYWORD_ONLY, default=value))
        if arguments.kwarg is not None:
            parameters.append(kinds(arguments.kwarg.arg, kinds.VAR_KEYWORD))
        return inspect.Signature(parameters)

    def on_return(self, node: _Node) -> None:
        """``return``."""
        value = self.run(node.value)
        if self.symtable is self.whole:
            raise SyntaxError("'return' outside function")
        raise _Return(value)

    # Control

    def on_break(self, node: _Node) -> None:
        """``break``."""
        del node
        raise _Break

    def on_continue(self, node: _Node) -> None:
        """``continue``."""
        del node
        raise _Continue

    def on_for(self, node: _Node) -> None:
        """``for``, with ``else``."""
        for value in self.run(node.iter):
            self.node_assign(node.target, value)
            if not self._turned(node.body):
                return
        self._block(node.orelse)

    def on_while(self, node: _Node) -> None:
        """``while``, with ``else``."""
        while self.run(node.test):
            if not self._turned(node.body):
                return
        self._block(node.orelse)

    def _turned(self, body: Sequence[_Node]) -> bool:
        """Run a loop's body once; whether to go on."""
        try:
            self._block(body)
        except _Break:
            return False
        except _Continue:
            pass
        return True

    def _block(self, statements: Sequence[_Node]) -> None:
        for statement in statements:
            self.run(statement)

    def on_assert(self, node: _Node) -> None:
        """``assert``."""
        if not self.run(node.test):
            raise AssertionError(*(() if node.msg is None else (self.run(node.msg),)))

    def on_raise(self, node: _Node) -> None:
        """``raise``, alone or with an exception, and with ``from``."""
        if node.exc is None:
            error = self.symtable.get("__handled__")
            if error is None:
                raise RuntimeError("No active exception to reraise")
            raise error
        raised = self.run(node.exc)
        cause = self.run(node.cause)
        if isinstance(raised, type) and issubclass(raised, BaseException):
            raised = raised()
        if not isinstance(raised, BaseException):
            raise TypeError("exceptions must derive from BaseException")
        raise raised from cause

    def on_try(self, node: _Node) -> None:
        """``try``; ``finally`` runs also when the code is leaving a function or a loop."""
        try:
            try:
                self._block(node.body)
            except _Signal:
                raise
            except BaseException as error:
                handler = self._handler_for(error, node.handlers)
                if handler is None:
                    raise
                self._handle(error, handler)
            else:
                self._block(node.orelse)
        finally:
            self._block(node.finalbody)

    def _handler_for(self, error: BaseException, handlers: Sequence[_Node]) -> _Node:
        for handler in handlers:
            if handler.type is None or isinstance(error, self.run(handler.type)):
                return handler
        return None

    def _handle(self, error: BaseException, handler: _Node) -> None:
        names = self.symtable.names
        outer = names.get("__handled__")
        names["__handled__"] = error  # no code can have a name like this; see _bind
        if handler.name is not None:
            self._bind(handler.name, error)
        try:
            self._block(handler.body)
        finally:
            if outer is None:
                del names["__handled__"]
            else:
                names["__handled__"] = outer
            if handler.name is not None:
                names.pop(handler.name, None)

    def on_with(self, node: _Node) -> None:
        """``with``: every manager is left again, the last one first."""
        self._with(node.items, node.body)

    def _with(self, items: Sequence[_Node], body: Sequence[_Node]) -> None:
        if not items:
            self._block(body)
            return
        with self.run(items[0].context_expr) as entered:
            if items[0].optional_vars is not None:
                self.node_assign(items[0].optional_vars, entered)
            self._with(items[1:], body)


_WORDS: Final = {
    "AsyncFor": "async",
    "AsyncFunctionDef": "async",
    "AsyncWith": "async",
    "Await": "await",
    "ClassDef": "class definitions",
    "Match": "match statements",
    "TryStar": "except*",
    "TypeAlias": "type aliases",
    "Yield": "yield",
    "YieldFrom": "yield from",
}


def _loading(target: _Node) -> _Node:
    """The same name or attribute, to be read."""
    if isinstance(target, ast.Attribute):
        return ast.Attribute(target.value, target.attr, ast.Load())
    return ast.Name(target.id, ast.Load())


def _own_nodes(statements: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Every node of a function's body that is not one of a function inside it."""
    waiting: list[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
