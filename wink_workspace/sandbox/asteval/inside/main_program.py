"""One program in a child: how it runs as the module ``__main__``, and what it leaves.

Python compiles and runs it in both interpreters. ``PythonInterpreter`` gives it Python's own names,
``Interpreter`` puts asteval's guards into it first.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import FunctionType, ModuleType, TracebackType
from typing import Any, ClassVar

from .files import SOURCE, WorkspaceFiles
from .modules import Namespace


class MainProgram(ABC):
    """Runs one program. ``names`` are its global names."""

    warm_up_code: ClassVar[str]
    names: dict[str, Any]

    @abstractmethod
    def clear(self) -> None:
        """Start with new global names."""

    @abstractmethod
    def provide(self, given: Mapping[str, Any], files: WorkspaceFiles) -> None:
        """Set the global names *given*, and the functions for files."""

    def warm_up(self) -> None:
        """Run something small, without any effect on the program."""
        self.clear()
        self.evaluate(ast.parse(self.warm_up_code))
        self.clear()

    def evaluate(self, tree: ast.Module) -> tuple[Any, bool]:
        """Run *tree*; returns the value of its last statement, and whether that is an expression.

        ``SystemExit`` with code 0 ends it without a value. Raises what the code raises.
        """
        last = tree.body[-1] if tree.body else None
        is_expression = isinstance(last, ast.Expr)
        body = ast.Module(tree.body[:-1] if is_expression else tree.body, [])
        value = None
        try:
            exec(compile(body, SOURCE, "exec", dont_inherit=True), self.names)  # noqa: S102 - isolated
            if isinstance(last, ast.Expr):
                expression = ast.Expression(last.value)
                value = eval(compile(expression, SOURCE, "eval", dont_inherit=True), self.names)  # noqa: S307 - isolated
        except SystemExit as exit_:
            if exit_.code:
                raise
            is_expression = False
        return value, is_expression

    def position(self, error: BaseException) -> tuple[int, int]:
        """The line and column, from 1, at which the code raised *error*; 0 if unknown."""
        if isinstance(error, SyntaxError) and error.filename == SOURCE:
            return error.lineno or 0, error.offset or 0
        found = 0, 0
        step: TracebackType | None = error.__traceback__
        while step is not None:
            if step.tb_frame.f_code.co_filename == SOURCE:
                positions = tuple(step.tb_frame.f_code.co_positions())
                column = positions[step.tb_lasti // 2][2]
                found = step.tb_lineno, 0 if column is None else column + 1
            step = step.tb_next
        return found

    def shown(self) -> dict[str, Any]:
        """The global names that hold values: no functions, classes and modules."""
        return {
            name: value
            for name, value in self.names.items()
            if not name.startswith("_")
            and not isinstance(value, ModuleType | Namespace | FunctionType | type)
            and not callable(value)
        }
