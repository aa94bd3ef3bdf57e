"""A forked child can use every lock of a module, whichever thread of its parent holds it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import wink_workspace

FORKED_MEANWHILE = """
import os, threading
from wink_workspace._module_lock import ModuleLock

lock = ModuleLock()
is_held, may_end = threading.Event(), threading.Event()

def hold():
    with lock.now:
        is_held.set()
        may_end.wait()

thread = threading.Thread(target=hold)
thread.start()
is_held.wait()
child = os.fork()
if child == 0:
    os._exit(not lock.now.acquire(blocking=False))
was_held = lock.now.locked()
may_end.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), was_held, lock.now.locked())
"""

FORKED_INSIDE = """
import os
from wink_workspace._module_lock import ModuleLock

lock = ModuleLock()
with lock.now:
    child = os.fork()
if child == 0:
    os._exit(lock.now.locked())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), lock.now.locked())
"""

LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}


def printed(script: str) -> str:
    return subprocess.check_output([sys.executable, "-c", script], text=True).strip()


def test_a_lock_that_a_thread_holds_is_free_in_a_forked_child_only() -> None:
    assert printed(FORKED_MEANWHILE) == "0 True False"


def test_a_thread_that_forks_while_it_holds_a_lock_releases_it_in_both_processes() -> None:
    assert printed(FORKED_INSIDE) == "0 False"


def test_no_module_or_class_keeps_a_lock_that_a_forked_child_could_not_use() -> None:
    root = Path(wink_workspace.__file__).parent
    found = [
        f"{path.relative_to(root)}:{line}"
        for path in sorted(root.rglob("*.py"))
        if path.name != "_module_lock.py"
        for line in lines_with_locks(ast.parse(path.read_bytes()))
    ]
    assert found == []


def lines_with_locks(tree: ast.AST) -> list[int]:
    """Where a lock of ``threading`` is made as the module is imported."""
    found: list[int] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            found += [node.lineno] if name in LOCKS else []
        found += lines_with_locks(node)
    return found
