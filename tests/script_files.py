"""The programs in ``scripts/`` as modules."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

__all__ = ["SCRIPTS", "script"]

SCRIPTS = Path(__file__).parents[1] / "scripts"


def script(name: str) -> ModuleType:
    """The module of a program whose file has no suffix; it writes no compiled file beside it."""
    loader = SourceFileLoader(name, str(SCRIPTS / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    sys.modules[name] = module  # dataclasses look it up
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
        del sys.modules[name]
    return module
