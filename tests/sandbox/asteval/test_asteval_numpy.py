"""numpy on request, without its access to files and memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from asteval_support import evaluate, opened, server_pid

from wink_workspace.sandbox.asteval import AstevalSandbox, EndReason

pytest.importorskip("numpy", reason="numpy is not installed, and nothing here needs it but this")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[AstevalSandbox]:
    with opened(use_numpy=True, timeout_s=10.0) as made:
        yield made


def test_numpy_works_inside_the_isolation(sandbox: AstevalSandbox) -> None:
    code = "import numpy as np\na = np.arange(6)\n(float(a.mean()), np.cumsum(a).tolist())"
    found = evaluate(sandbox, code)
    assert found.value.json == [2.5, [0, 1, 3, 6, 10, 15]], found
    assert not found.isolation.holes
    assert evaluate(sandbox, "type(sum([1, 2])) is int, any([0])").value.json == [True, False]
    assert evaluate(sandbox, "float(linspace(0, 1, 3)[1])").value.json == 0.5


def test_the_server_uses_one_thread(sandbox: AstevalSandbox) -> None:
    assert len(list(Path(f"/proc/{server_pid(sandbox)}/task").iterdir())) == 1


@pytest.mark.behaviour(61)
@pytest.mark.parametrize(
    "attempt",
    [
        "a.ctypes.data", "a.tofile('{target}')", "a.dump('{target}')",
        "loadtxt('{secret}', dtype='str')", "fromfile('{secret}')", "np.loadtxt('{secret}')",
        "np.fromfile('{secret}')", "np.save('{target}', a)", "np.load('{secret}')",
        "genfromtxt('{secret}')", "np.memmap('{secret}')", "np.lib", "np.ctypeslib", "np.f2py",
    ],
)  # fmt: skip
def test_numpy_access_to_files_and_memory_is_disabled(
    attempt: str, sandbox: AstevalSandbox, tmp_path: Path
) -> None:
    secret, target = tmp_path / "secret", tmp_path / "target"
    secret.write_text("PLANTED")
    code = "import numpy as np\na = np.arange(3)\n" + attempt.format(secret=secret, target=target)
    found = evaluate(sandbox, code)
    assert found.outcome is EndReason.ERROR
    assert found.error.type in ("AttributeError", "NameError", "PermissionError")
    assert not target.exists()


@pytest.fixture(scope="module")
def python() -> Iterator[AstevalSandbox]:
    with opened("python", timeout_s=10.0) as made:
        yield made


@pytest.mark.behaviour(61)
@pytest.mark.parametrize(
    "attempt",
    [
        "a.tofile('{target}')", "a.dump('{target}')", "print(np.loadtxt('{secret}', dtype=str))",
        "print(np.fromfile('{secret}', dtype='S1'))", "np.save('{target}', a)",
        "print(np.memmap('{secret}'))", "np.DataSource().open('{secret}').read()",
    ],
)  # fmt: skip
def test_the_same_in_plain_python_is_stopped_by_the_isolation(
    attempt: str, python: AstevalSandbox, tmp_path: Path
) -> None:
    secret, target = tmp_path / "secret", tmp_path / "target"
    secret.write_text("PLANTED")
    code = "import numpy as np\na = np.arange(3)\n" + attempt.format(secret=secret, target=target)
    found = evaluate(python, code)
    assert found.outcome is EndReason.ERROR
    assert "PLANTED" not in found.stdout
    assert not target.exists()


def test_numpy_is_not_available_by_default() -> None:
    with opened() as sandbox:
        found = evaluate(sandbox, "import numpy")
        assert found.error.type in ("ImportError", "ModuleNotFoundError")
        assert evaluate(sandbox, "linspace(0, 1, 3)").error.type == "NameError"
