"""Kill points are only for tests: they are not in any public signature."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import wink_workspace
from wink_workspace import Workspace
from wink_workspace._kill_points import KillPoint, calling, passed


def signatures() -> Iterator[tuple[str, inspect.Signature]]:
    for package in pkgutil.iter_modules(wink_workspace.__path__, "wink_workspace."):
        if package.name.rpartition(".")[2].startswith("_"):
            continue
        module = importlib.import_module(package.name)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            members = [value, *vars(value).values()] if inspect.isclass(value) else [value]
            for member in members:
                member = getattr(member, "__func__", member)  # of a class method
                if (callable(member) and not isinstance(member, type)) or inspect.isclass(member):
                    try:
                        yield f"{package.name}.{name}", inspect.signature(member)
                    except (TypeError, ValueError):
                        continue


def test_no_public_signature_names_kill_points() -> None:
    found = list(signatures())
    assert inspect.signature(Workspace) in [signature for _, signature in found]
    assert not [name for name, signature in found if "kill_point" in str(signature).lower()]


def test_a_hook_is_called_only_inside_its_block() -> None:
    outer: list[KillPoint] = []
    inner: list[KillPoint] = []
    passed(KillPoint.MARK_WRITTEN)
    with calling(outer.append):
        passed(KillPoint.REF_LOCKED)
        with pytest.raises(ZeroDivisionError), calling(inner.append):
            passed(KillPoint.REF_MOVED)
            _ = 1 / 0
        passed(KillPoint.PACK_WRITTEN)
    passed(KillPoint.MARK_WRITTEN)
    assert outer == [KillPoint.REF_LOCKED, KillPoint.PACK_WRITTEN]
    assert inner == [KillPoint.REF_MOVED]
