"""asteval's interpreter, extended by the everyday Python that it lacks.

asteval walks the syntax tree, looks names up in a table, and guards attributes and operators. This
module keeps that, and replaces what asteval lacks or does differently from Python: scopes of
functions, generator expressions, ``import`` of the allowed modules, unpacking, ``with``, ``try``,
``raise``, ``del``, ``+=`` and the position of errors.

Rule 1: a feature that is not supported raises an error that names it. Nothing is ignored.
Rule 2: none of this isolates the code. Code that escapes from the interpreter is still in the
child, which the module ``restrictions`` confines.

``return``, ``break`` and ``continue`` are exceptions that no ``except`` of the code can catch.
"""

from __future__ import annotations

import ast
import io
import operator
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final, TextIO, cast

import asteval  # pyright: ignore[reportMissingTypeStubs] - it has none
import asteval.astutils  # pyright: ignore[reportMissingTypeStubs] - as above

from .files import WorkspaceFiles
from .modules import Namespace
from .scopes import Bindings, Comprehension, Scope, bindings, bindings_of_module

__all__ = ["Interpreter", "builtin_names", "numpy_names"]

_Node = Any  # asteval's handlers take any node of ``ast``
_asteval: Any = asteval.Interpreter  # asteval has no types
_astutils: Any = asteval.astutils

_ADDED_BUILTINS: Final = (
    *("FileExistsError", "FileNotFoundError", "IsADirectoryError", "ModuleNotFoundError"),
    *("NotADirectoryError", "PermissionError", "RecursionError", "StopIteration", "TimeoutError"),
    *("ascii", "callable", "issubclass", "iter", "next", "object"),
    "pow",  # asteval has math.pow, which has no modulus and no large integers
)
_FILES_OF_NUMPY: Final = frozenset(
    {
        *("DataSource", "fromfile", "fromregex", "genfromtxt", "load", "loadtxt", "memmap"),
        *("open_memmap", "save", "savetxt", "savez", "savez_compressed"),
    }
)
_operator: Any = operator  # its functions are typed for operands of one type
_IN_PLACE: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Add: _operator.iadd,
    ast.BitAnd: _operator.iand,
    ast.BitOr: _operator.ior,
    ast.BitXor: _operator.ixor,
    ast.Div: _operator.itruediv,
    ast.FloorDiv: _operator.ifloordiv,
    ast.LShift: _operator.ilshift,
    ast.MatMult: _operator.imatmul,
    ast.Mod: _operator.imod,
    ast.Mult: _operator.imul,
    ast.Pow: _operator.ipow,
    ast.RShift: _operator.irshift,
    ast.Sub: _operator.isub,
}
_MUTABLE: Final = (list, dict, set, bytearray)
_READABLE_DUNDERS: Final = frozenset({"__name__", "__qualname__", "__doc__"})
"""Readable if their value is a string or ``None``."""
_CHAIN: Final = frozenset({"__cause__", "__context__"})
"""Also readable on an exception."""
_RECURSION: Final = 6_000  # about 500 nested calls of the code's own functions
_WARM_UP: Final = "def f(x, y=1):\n    return [x + y for x in range(x)]\nf(2), f'{len([])}'"
_RUN: Final = "<run>"
"""The global of a function that runs its body. It is not an identifier, so no code can use it."""
_ADDED_NODES: Final = (
    *("annassign", "generatorexp", "global", "namedexpr", "nonlocal", "starred"),
    *("break", "continue", "import", "importfrom"),
)


class _Signal(BaseException):
    """Moves control; not an error."""


class _Return(_Signal):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class _Break(_Signal):
    pass


class _Continue(_Signal):
    pass


def builtin_names(*, use_numpy: bool) -> dict[str, Any]:
    """The names that code can use without an import: asteval's table and our additions."""
    table = cast("dict[str, Any]", _astutils.make_symbol_table(use_numpy=use_numpy))
    kept = {name: value for name, value in table.items() if name not in _FILES_OF_NUMPY}
    python = cast("Mapping[str, Any]", _astutils.builtins)
    kept |= {name: python[name] for name in _ADDED_BUILTINS}
    kept["type"] = _type_of  # asteval's returns a string, which is not equal to any type
    return kept


def numpy_names() -> Namespace:
    """The module ``numpy``: the names of it that asteval has, without those that access files."""
    table = cast("dict[str, Any]", _astutils.NUMPY_TABLE)
    kept = {name: value for name, value in table.items() if name not in _FILES_OF_NUMPY}
    return Namespace("numpy", kept)


def _type_of(value: object, /) -> type:
    return type(value)


class Interpreter(_asteval):
    """An interpreter, for one evaluation.

    Args:
        builtins: From ``builtin_names``. The caller may add names to the scope ``builtins``.
        modules: What it may import.
    """

    def __init__(self, builtins: Mapping[str, Any], modules: Mapping[str, Namespace]) -> None:
        names = dict(builtins)
        _asteval.__init__(self, symtable=names, use_numpy=False)
        names.update(__name__="__main__", getattr=self._getattr, hasattr=self._hasattr)
        self._modules = modules
        self.builtins = Scope(None, names)
        self.module = Scope(self.builtins)
        self.symtable: Any = self.module
        self.failed_at: _Node = None
        self._failure: BaseException | None = None
        self._handled: list[BaseException] = []
        self._compiled: dict[_Node, tuple[CodeType, Bindings]] = {}
        for name in _ADDED_NODES:
            self.node_handlers[name] = getattr(self, f"on_{name}")

    def evaluate(self, tree: ast.Module) -> tuple[Any, bool]:
        """Run *tree*; returns the value of its last statement, and whether that is an expression.

        Raises what the code raises; ``failed_at`` is then the node that raised it.
        """
        with warnings.catch_warnings(action="ignore"):  # printing a warning would read files
            compile(tree, "<code>", "exec")  # raises all syntax errors before anything runs
        self.module.binds = bindings_of_module(tree)
        value = None
        for statement in tree.body:
            value = self.run(statement)
        return value, bool(tree.body) and isinstance(tree.body[-1], ast.Expr)

    def warm_up(self) -> None:
        """Evaluate something small, and remove its names."""
        sys.setrecursionlimit(_RECURSION)
        self.evaluate(ast.parse(_WARM_UP))
        self.module.names.clear()

    def provide(self, given: Mapping[str, Any], files: WorkspaceFiles, stdout: TextIO) -> None:
        """Set the global names *given*, and the functions for files and output."""

        def print_(
            *values: object, sep: str = " ", end: str = "\n", file: Any = None, **_: object
        ) -> None:
            """As ``print``; each call sends one frame immediately."""
            line = io.StringIO()
            print(*values, sep=sep, end=end, file=line)
            stream = stdout if file is None else file
            stream.write(line.getvalue())
            if file is None:
                stream.flush()

        self.builtins.names.update(
            print=print_,
            open=files.open,
            read_text=files.read_text,
            write_text=files.write_text,
        )
        self.module.names.update(given)

    def position(self, error: BaseException) -> tuple[int, int]:
        """The line and column of the node that failed."""
        node = self.failed_at
        if node is None and isinstance(error, SyntaxError):
            return error.lineno or 0, error.offset or 0
        return getattr(node, "lineno", 0), getattr(node, "col_offset", -1) + 1

    def shown(self) -> dict[str, Any]:
        """The global names that hold values: no functions, classes and modules."""
        return {
            name: value
            for name, value in self.module.names.items()
            if not name.startswith("_") and not isinstance(value, Namespace | FunctionType | type)
        }

    # Methods that asteval calls

    def run(
        self, node: _Node, expr: object = None, lineno: object = None, with_raise: object = True
    ) -> Any:
        """The value of a node; records the innermost node that failed."""
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
        """Raise the error with which asteval refuses something."""
        del node, expr, lineno
        raise (RuntimeError if exc is None else exc)(str(msg))

    # Names and attributes

    def on_name(self, node: _Node) -> Any:
        """The value of a name."""
        return self.symtable.get(node.id)

    def on_attribute(self, node: _Node) -> Any:
        """An attribute, unless it gives access to the interpreter."""
        return self._attribute(self.run(node.value), node.attr, node)

    def _attribute(self, value: Any, name: str, node: _Node) -> Any:
        if isinstance(value, Namespace):
            if name.startswith("_"):
                raise AttributeError(f"{value!r} has no attribute {name!r} here")
            return getattr(value, name)
        if isinstance(value, str) and name == "format":
            return self._format(value, node)
        if isinstance(value, str) and name == "format_map":
            return self._format_map(value, node)
        if name in _READABLE_DUNDERS:
            found = getattr(value, name)
            if found is None or isinstance(found, str):
                return found
        if name in _CHAIN and isinstance(value, BaseException):
            return getattr(value, name)
        if name in _astutils.UNSAFE_ATTRS or name.startswith("__"):
            raise AttributeError(
                f"attribute {name!r} of {type(value).__name__} cannot be used here"
            )
        getattr(value, name)  # raises as Python does; asteval would return None
        return _astutils.safe_getattr(value, name, self.raise_exception, node)

    def _getattr(self, *args: Any) -> Any:
        """``getattr``, for the attributes that can be read with a dot."""
        if len(args) in (2, 3) and isinstance(args[1], str):
            try:
                return self._attribute(args[0], args[1], None)
            except AttributeError:
                if len(args) == 2:
                    raise
                return args[2]
        return getattr(*args)  # raises the error for wrong arguments

    def _hasattr(self, *args: Any) -> bool:
        """``hasattr``, for the attributes that can be read with a dot."""
        if len(args) == 2 and isinstance(args[1], str):
            missing = object()
            return self._getattr(*args, missing) is not missing
        return hasattr(*args)

    def _format(self, text: str, node: _Node) -> Callable[..., str]:
        """``str.format``, with a check of every attribute that *text* names."""

        def format_(*args: Any, **kwargs: Any) -> str:
            return _astutils.safe_format(text, self.raise_exception, node, *args, **kwargs)

        return format_

    def _format_map(self, text: str, node: _Node) -> Callable[[Mapping[str, Any]], str]:
        format_ = self._format(text, node)
        return lambda mapping: format_(**mapping)

    def on_formattedvalue(self, node: _Node) -> str:
        """One part of an f-string; its specification is not formatted a second time."""
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
        self.symtable.set(name, value)

    def _unpack(self, targets: Sequence[_Node], value: Iterable[Any]) -> None:
        starred = next((n for n, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
        values = _unpacking(len(targets), starred)(value)
        for target, each in zip(targets, values, strict=True):
            self.node_assign(target.value if isinstance(target, ast.Starred) else target, each)

    def on_annassign(self, node: _Node) -> None:
        """``x: int = 3``; the annotation is not evaluated."""
        if node.value is not None:
            self.node_assign(node.target, self.run(node.value))

    def on_namedexpr(self, node: _Node) -> Any:
        """``(x := 3)``."""
        value = self.run(node.value)
        with self._inside(self.symtable.function):
            self.node_assign(node.target, value)
        return value

    def on_augassign(self, node: _Node) -> None:
        """``x += 1``: the target is evaluated once, and a mutable value is changed in place."""
        target = node.target
        if isinstance(target, ast.Subscript):
            holder, key = self.run(target.value), self.run(target.slice)
            holder[key] = self._combined(node.op, holder[key], self.run(node.value))
        else:
            load = ast.copy_location(_loading(target), target)
            value = self._combined(node.op, self.run(load), self.run(node.value))
            self.node_assign(target, value)

    def _combined(self, op: ast.operator, left: Any, right: Any) -> Any:
        in_place = _IN_PLACE[type(op)]
        if isinstance(left, _MUTABLE):
            return in_place(left, right)
        try:
            return _astutils.op2func(op)(left, right)  # it limits the size of results
        except TypeError:
            return in_place(left, right)  # raises an error that names `+=`

    def on_delete(self, node: _Node) -> None:
        """``del`` of names and items."""
        for target in node.targets:
            match target:
                case ast.Name():
                    self.symtable.delete(target.id)
                case ast.Subscript():
                    del self.run(target.value)[self.run(target.slice)]
                case _:
                    self.unimplemented(target)

    def on_global(self, node: _Node) -> None:
        """``global x``; see ``scopes``."""

    def on_nonlocal(self, node: _Node) -> None:
        """``nonlocal x``; see ``scopes``."""

    def on_import(self, node: _Node) -> None:
        """``import math``."""
        for alias in node.names:
            module = self._module(alias.name)
            if alias.asname is None:
                package = alias.name.partition(".")[0]
                self._bind(package, self._module(package))
            else:
                self._bind(alias.asname, module)

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
            raise ModuleNotFoundError(f"no module {name!r} here; available: {offered}") from None

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
        """Refuse ``*x`` outside of lists, tuples, sets, calls and targets."""
        del node
        raise SyntaxError("can't use starred expression here")

    def on_dict(self, node: _Node) -> dict[Any, Any]:
        """``{key: value, **more}``."""
        result: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                result.update(self.run(value))
            else:
                result[self.run(key)] = self.run(value)
        return result

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
        """``(x for x in y)``; *y* is evaluated now, everything else when a value is requested."""
        return self._rows(node, lambda: self.run(node.elt))

    def _rows(self, node: Comprehension, row: Callable[[], Any]) -> Iterator[Any]:
        first = iter(self.run(node.generators[0].iter))
        binds = bindings(loop.target for loop in node.generators)
        title = "<genexpr>" if isinstance(node, ast.GeneratorExp) else f"<{_title(node)}>"
        scope = Scope(self.symtable, None, binds, title, node)
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
        named = [(each.arg, self.run(each.value)) for each in node.keywords]
        if all(name is not None for name, _ in named):
            return function(*args, **dict(named))
        mappings = [value if name is None else {name: value} for name, value in named]
        return _calling(len(mappings))(function, args, mappings)

    def on_functiondef(self, node: _Node, is_lambda: bool = False) -> Any:
        """``def``; decorators are called as in Python."""
        del is_lambda  # see on_lambda
        if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in _own_nodes(node.body)):
            raise NotImplementedError("functions with yield cannot be used here")
        decorators = [self.run(each) for each in node.decorator_list]
        function: Any = self._function(node, node.name, lambda: self._returned(node.body))
        for decorator in reversed(decorators):
            function = decorator(function)
        self._bind(node.name, function)

    def on_lambda(self, node: _Node) -> FunctionType:
        """``lambda``."""
        return self._function(node, "<lambda>", lambda: self.run(node.body))

    def _function(self, node: _Node, name: str, body: Callable[[], Any]) -> FunctionType:
        """A Python function, which binds its arguments and runs *body*."""
        code, binds = self._compiled_function(node, name)
        closure: Scope = self.symtable

        def run(arguments: dict[str, Any]) -> Any:
            with self._inside(Scope(closure, arguments, binds, name)):
                return body()

        defaults = tuple(self.run(default) for default in node.args.defaults)
        function_globals = {_RUN: run, "__name__": "__main__"}
        function = FunctionType(code, function_globals, name, defaults)
        function.__qualname__ = closure.qualified(name)
        function.__kwdefaults__ = {
            each.arg: self.run(default)
            for each, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            if default is not None
        }
        return function

    def _compiled_function(self, node: _Node, name: str) -> tuple[CodeType, Bindings]:
        if node not in self._compiled:
            statements = [node.body] if isinstance(node, ast.Lambda) else node.body
            binds = bindings(statements, _parameters(node.args))
            self._compiled[node] = _binder(node, name), binds
        return self._compiled[node]

    def _returned(self, statements: Sequence[_Node]) -> Any:
        try:
            self._block(statements)
        except _Return as returned:
            return returned.value
        return None

    def on_return(self, node: _Node) -> None:
        """``return``."""
        raise _Return(self.run(node.value))

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
            if not self._iterate(node.body):
                return
        self._block(node.orelse)

    def on_while(self, node: _Node) -> None:
        """``while``, with ``else``."""
        while self.run(node.test):
            if not self._iterate(node.body):
                return
        self._block(node.orelse)

    def _iterate(self, body: Sequence[_Node]) -> bool:
        """Run a loop's body once; returns whether to continue the loop."""
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
            if not self._handled:
                raise RuntimeError("No active exception to reraise")
            raise self._handled[-1]
        raised = self.run(node.exc)
        cause = self.run(node.cause)
        if isinstance(raised, type) and issubclass(raised, BaseException):
            raised = raised()
        if not isinstance(raised, BaseException):
            raise TypeError("exceptions must derive from BaseException")
        if node.cause is None:
            raise raised
        raise raised from cause

    def on_try(self, node: _Node) -> None:
        """``try``; ``finally`` also runs when ``return`` or ``break`` leaves the block."""
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
            if handler.type is None or isinstance(error, _caught(self.run(handler.type))):
                return handler
        return None

    def _handle(self, error: BaseException, handler: _Node) -> None:
        self._handled.append(error)
        if handler.name is not None:
            self._bind(handler.name, error)
        try:
            self._block(handler.body)
        finally:
            self._handled.pop()
            if handler.name is not None:
                self.symtable.set(handler.name, None)  # the code may have deleted it
                self.symtable.delete(handler.name)

    def on_with(self, node: _Node) -> None:
        """``with``: the context managers are left in reverse order."""
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
    """The node that reads the same name or attribute."""
    if isinstance(target, ast.Attribute):
        return ast.Attribute(target.value, target.attr, ast.Load())
    return ast.Name(target.id, ast.Load())


def _title(node: Comprehension) -> str:
    return type(node).__name__.lower()


def _parameters(arguments: ast.arguments) -> list[str]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    gathering = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [each.arg for each in (*named, *gathering)]


def _binder(node: _Node, name: str) -> CodeType:
    """Code with the parameters and the docstring of *node*, which passes its arguments to ``_RUN``.

    So Python itself binds the arguments and reports errors in them.
    """
    given: ast.arguments = node.args
    none = ast.Constant(None)
    parameters = ast.arguments(
        posonlyargs=[ast.arg(each.arg) for each in given.posonlyargs],
        args=[ast.arg(each.arg) for each in given.args],
        vararg=None if given.vararg is None else ast.arg(given.vararg.arg),
        kwonlyargs=[ast.arg(each.arg) for each in given.kwonlyargs],
        kw_defaults=[None if each is None else none for each in given.kw_defaults],
        kwarg=None if given.kwarg is None else ast.arg(given.kwarg.arg),
        defaults=[none for _ in given.defaults],
    )
    names = _parameters(given)
    arguments = ast.Dict(
        [ast.Constant(each) for each in names], [ast.Name(each, ast.Load()) for each in names]
    )
    run = ast.Return(ast.Call(ast.Name(_RUN, ast.Load()), [arguments], []))
    text = None if isinstance(node, ast.Lambda) else ast.get_docstring(node, clean=False)
    docstring: list[ast.stmt] = [] if text is None else [ast.Expr(ast.Constant(text))]
    body = [*docstring, run]
    function = ast.FunctionDef(name=name, args=parameters, body=body, decorator_list=[])
    module = ast.fix_missing_locations(ast.Module([function], []))
    compiled = compile(module, "<function>", "exec")
    return next(each for each in compiled.co_consts if isinstance(each, CodeType))


@lru_cache
def _unpacking(n_targets: int, starred: int | None) -> Callable[[Iterable[Any]], list[Any]]:
    """A function that unpacks an iterable into *n_targets* values, the one at *starred* a list."""
    names = [f"{'*' if n == starred else ''}v{n}" for n in range(n_targets)]
    targets, values = ", ".join(names), ", ".join(name.lstrip("*") for name in names)
    names_of_exec: dict[str, Any] = {}
    exec(f"def unpack(value):\n [{targets}] = value\n return [{values}]", names_of_exec)  # noqa: S102 - made of numbers only
    return names_of_exec["unpack"]


@lru_cache
def _calling(n_mappings: int) -> Callable[..., Any]:
    """A function that calls another one with *n_mappings* arguments ``**``."""
    more = "".join(f", **mappings[{n}]" for n in range(n_mappings))
    return eval(f"lambda function, args, mappings: function(*args{more})")  # noqa: S307 - as above


def _caught(kinds: Any) -> tuple[type[BaseException], ...]:
    caught = cast("tuple[Any, ...]", kinds if isinstance(kinds, tuple) else (kinds,))
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in caught):
        raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    return caught


def _own_nodes(statements: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Every node of a function's body, without the bodies of functions inside it."""
    waiting: list[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
