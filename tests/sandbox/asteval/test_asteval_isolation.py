"""The isolation of asteval: its layers, their probes, refusals, and the end of processes."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyseccomp
import pytest
from asteval_support import children_of, evaluate, opened, server_pid

import wink_workspace
from wink_workspace import companion
from wink_workspace.errors import IsolationError, SandboxBrokenError, SandboxUnavailableError
from wink_workspace.sandbox import IsolationReport, Layer, Probe
from wink_workspace.sandbox.asteval import (
    LAYERS,
    REQUIRED_LAYERS,
    AstevalConfig,
    AstevalSandbox,
    launching,
)
from wink_workspace.sandbox.asteval import evaluator as host
from wink_workspace.sandbox.asteval.inside.restrictions import ALLOWED_CALLS

UNPRIVILEGED_ID = 65_534
NEEDED_PACKAGES = (
    *("annotated_types", "asteval", "immutables", "inotify_simple", "landlock", "pydantic"),
    *("pyseccomp", "regex", "typing_extensions", "typing_inspection"),
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[AstevalSandbox]:
    with opened() as made:
        yield made


@pytest.mark.behaviour(61)
def test_every_probe_was_stopped_and_every_required_layer_is_up(
    sandbox: AstevalSandbox,
) -> None:
    report = sandbox.report
    assert not report.holes
    assert len(report.probes) >= 35
    assert [layer.name for layer in report.layers] == list(LAYERS)
    assert {layer.name for layer in report.layers if layer.is_active} >= REQUIRED_LAYERS


EVERY_CALL = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
refused = succeeded = 0
for number in range(600):
    if number not in allowed:
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 6)
        is_refused = (result, ctypes.get_errno()) == (-1, errno.EPERM)
        refused, succeeded = refused + is_refused, succeeded + (not is_refused)
refused, succeeded
"""


@pytest.mark.behaviour(61)
@pytest.mark.parametrize("interpreter", ["asteval", "python"])
def test_every_system_call_that_is_not_on_the_list_is_refused(interpreter: str) -> None:
    """asteval cannot make them, so its server's filter is read from the report of its layers."""
    names = (*ALLOWED_CALLS, "mmap", "mprotect")
    allowed = [pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) for name in names]
    # Newer kernels do not filter these two, which kill a caller that is not a probe of the kernel
    own_end = [335, 336] if platform.machine() == "x86_64" else []
    with opened(interpreter) as sandbox:
        found = evaluate(sandbox, EVERY_CALL, allowed=allowed + own_end)
    if interpreter == "asteval":
        (seccomp,) = [layer for layer in found.isolation.layers if layer.name == "seccomp"]
        assert seccomp.detail.startswith(f"{len(names)} calls allowed")
    else:
        assert found.value.json == [600 - len({*allowed, *own_end} - {-1}), 0]


def test_an_evaluation_reports_its_isolation_layers(sandbox: AstevalSandbox) -> None:
    isolation = evaluate(sandbox, "1").isolation
    assert {layer.name for layer in isolation.layers if layer.is_active} >= REQUIRED_LAYERS
    assert isolation.probes == sandbox.report.probes


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Make *packages* unavailable."""
    find = launching.importlib.util.find_spec
    monkeypatch.setattr(
        launching.importlib.util,
        "find_spec",
        lambda name: None if name in packages else find(name),
    )
    kept = [name for name in launching._PACKAGES if name not in packages]
    start = "import sys; sys.modules.update(dict.fromkeys({!r})); {}"
    # One folder holds all packages here, so the server itself must exclude these.
    monkeypatch.setattr(launching, "_START", start.format(packages, launching._START))
    monkeypatch.setattr(launching, "_PACKAGES", tuple(kept))


def test_without_a_system_call_filter_evaluations_are_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, "pyseccomp")
    with opened() as sandbox:
        with pytest.raises(IsolationError) as refused:
            evaluate(sandbox, "1")
    text = str(refused.value)
    assert "seccomp" in text
    assert "install pyseccomp" in text
    assert "are not affected" in text


def test_without_landlock_evaluations_still_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, "landlock")
    with opened() as sandbox:
        found = evaluate(sandbox, "1 + 1")
        (missing,) = [layer for layer in found.isolation.missing if layer.name == "landlock"]
    assert found.value.json == 2
    assert "install landlock" in missing.detail
    assert not found.isolation.holes


def test_a_missing_required_layer_refuses_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "landlock")
    with opened(required_layers=frozenset(LAYERS)) as sandbox:
        with pytest.raises(IsolationError, match="lacks landlock"):
            evaluate(sandbox, "1")
        report = sandbox.survey()
    assert "landlock" in {layer.name for layer in report.missing}


def test_landlock_alone_leaves_holes_that_the_probes_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The probes are effective: without the filter some of them succeed."""
    without(monkeypatch, "pyseccomp")
    with opened(required_layers=frozenset()) as sandbox:
        with pytest.raises(IsolationError, match="has holes"):
            evaluate(sandbox, "1")
        names = {probe.name for probe in sandbox.survey().holes}
    assert {"stat a path", "map executable memory"} <= names
    assert not names & {"read a file", "write a file", "start a process", "signal the server"}


def test_a_missing_asteval_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "asteval")
    # The server requires a missing package; the installed ones stay unchanged.
    monkeypatch.setattr(launching, "_PACKAGES", (*launching._PACKAGES, "asteval"))
    with opened() as sandbox, pytest.raises(SandboxUnavailableError, match="pip install asteval"):
        evaluate(sandbox, "1")


def test_a_server_that_does_not_start_is_reported_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A server that fails at its start; its program is not configurable.
    monkeypatch.setattr(launching, "_START", "raise SystemExit('no such luck')")
    with opened() as sandbox, pytest.raises(SandboxUnavailableError, match="no such luck"):
        evaluate(sandbox, "1")


def test_a_server_that_never_answers_fails_after_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A server that never answers; its program is not configurable.
    monkeypatch.setattr(launching, "_START", "import signal; signal.pause()")
    monkeypatch.setattr(companion, "_END_TIMEOUT_S", 0.1)
    with opened(start_timeout_s=0.5) as sandbox:
        with pytest.raises(SandboxUnavailableError, match="not ready after"):
            evaluate(sandbox, "1")
    assert not [pid for pid in children_of(os.getpid()) if is_server(pid)]


def is_server(pid: int) -> bool:
    return b"signal.pause" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_without_sys_executable_no_server_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with opened() as sandbox, pytest.raises(SandboxUnavailableError, match="its own program"):
        evaluate(sandbox, "1")


def test_a_killed_server_is_replaced_and_its_children_end() -> None:
    with opened() as sandbox:
        server = server_pid(sandbox)
        orphans = children_of(server)
        os.kill(server, signal.SIGKILL)
        wait_for_death(server)
        assert evaluate(sandbox, "2 + 2").value.json == 4
        assert server_pid(sandbox) != server
        assert all(not Path(f"/proc/{pid}").exists() or is_zombie(pid) for pid in orphans)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_for_death(pid: int) -> None:
    """Wait until *pid* no longer runs; it may still be a zombie."""
    process = os.pidfd_open(pid)
    try:
        import select

        poll = select.poll()
        poll.register(process, select.POLLIN)
        assert poll.poll(30_000), "watchdog"
    finally:
        os.close(process)


def test_a_server_that_dies_during_an_evaluation_fails_it() -> None:
    with opened(timeout_s=30.0) as sandbox:
        server = server_pid(sandbox)
        child = host._Child(sandbox._server, sandbox.config, sandbox._clock)
        with pytest.raises(SandboxBrokenError, match="has died"), child:
            child.ready_layers()
            os.kill(server, signal.SIGKILL)
            child.begin(30.0)
            assert child.receive(0) is None
            raise SandboxBrokenError(child.describe_ending())


@pytest.mark.parametrize("ending", ["kill -9", "exit"])
def test_all_processes_end_when_the_host_dies(ending: str) -> None:
    code = """
import os, signal, sys
from wink_workspace.sandbox.asteval import AstevalSandbox
sandbox = AstevalSandbox()
sandbox.report
print(sandbox._server.pid, flush=True)
sys.stdin.readline()
if sys.argv[1] == "kill -9":
    os.kill(os.getpid(), signal.SIGKILL)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, ending],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": str(Path(wink_workspace.__file__).parents[1])},
    )  # fmt: skip
    with process:
        server = int(process.stdout.readline())
        processes = [server, *children_of(server)]
        assert len(processes) == 2
        handles = [os.pidfd_open(pid) for pid in processes]
        process.communicate("\n")
    import select

    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        assert poll.poll(30_000), "watchdog: a process outlived the host"
        os.close(handle)


def test_the_server_is_not_a_fork_of_the_host(sandbox: AstevalSandbox) -> None:
    """It was started by exec, with none of our environment, and has one thread."""
    process_directory = Path("/proc") / str(server_pid(sandbox))
    variables = process_directory.joinpath("environ").read_bytes().split(b"\0")
    names = {variable.partition(b"=")[0] for variable in variables if variable}
    assert names <= {b"LC_CTYPE", b"LD_LIBRARY_PATH"}, "set by Python itself, and its library path"
    assert len(list(process_directory.joinpath("task").iterdir())) == 1
    targets = {str(each.readlink()) for each in process_directory.joinpath("fd").iterdir()}
    ours = {each for each in targets if not each.startswith(("socket:", "anon_inode:", "pipe:"))}
    assert all(each == "/dev/null" or "deleted" in each for each in ours)
    assert process_directory.joinpath("cwd").resolve() == Path("/")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_root_drops_its_account_and_privileges(sandbox: AstevalSandbox) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{server_pid(sandbox)}/status").read_text().splitlines()
        if ":\t" in line
    )
    assert status["Uid"].split() == [str(UNPRIVILEGED_ID)] * 4
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0


AS_ANOTHER = """
import json, os, sys
uid = int(sys.argv[1])
sys.path[:0] = json.loads(sys.argv[2])
import wink_workspace.sandbox.asteval.evaluator
from wink_workspace.sandbox.asteval import *
from wink_workspace.filesystem import MemoryFilesystem, parse_path
if uid:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
sandbox = AstevalSandbox()
files = MemoryFilesystem({"a": "x"})
request = EvaluationRequest(code="write_text('b', read_text('a') * 3)\\n6 * 7",
                            reads=(parse_path("a"),), writes=(parse_path("b"),))
found = sandbox.evaluate(request, files)
hang = AstevalSandbox(AstevalConfig(timeout_s=0.3)).evaluate(EvaluationRequest(code="while 1: 1"))
python = AstevalSandbox(PythonConfig(use_numpy=False))
code = "class A: n = open('a').read()\\nA.n * 2"
own = python.evaluate(EvaluationRequest(code=code, reads=(parse_path("a"),)), files)
print(json.dumps([own.value.json, len(own.isolation.holes), found.value.json, files.read_text("b").text, len(found.isolation.holes),
                  [layer.name for layer in found.isolation.missing], hang.outcome,
                  [layer.detail for layer in found.isolation.layers if layer.name == "ordinary-user"]]))
sandbox.close()
python.close()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.share(2)
@pytest.mark.parametrize("prefix", [[], ["unshare", "--user", "--map-root-user", "--pid", "--fork",
                                         "--mount-proc", "--net"]], ids=["plain", "container"])  # fmt: skip
@pytest.mark.parametrize("uid", [0, 12_345])
def test_works_as_root_and_as_ordinary_user_with_and_without_a_container(
    uid: int, prefix: list[str], readable_installation: tuple[str, list[str]]
) -> None:
    """The container is made with ``unshare``: root inside, no privileges outside."""
    python, folders = readable_installation
    if prefix and uid:
        pytest.skip("the container has one account mapped")
    done = subprocess.run(
        [*prefix, python, "-c", AS_ANOTHER, str(uid), json.dumps(folders)],
        capture_output=True, text=True, timeout=120, cwd="/",
        env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(Path(python).parents[1] / "lib")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    own, n_own_holes, value, text, n_holes, missing, hang, (user,) = json.loads(done.stdout)
    assert (own, n_own_holes) == ("xx", 0)
    assert (value, text, n_holes, hang) == (42, "xxx", 0, "deadline")
    assert not set(missing) & REQUIRED_LAYERS
    if uid:
        assert user == f"uid {uid}, the host's own"


@pytest.fixture(scope="module")
def readable_installation(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, list[str]]]:
    """Copy Python and the packages to where every user may read them; root's home is private."""
    import shutil
    import sysconfig
    import tempfile

    with tempfile.TemporaryDirectory(prefix="wink-python-") as folder:
        process_directory = Path(folder)
        process_directory.chmod(0o755)
        base = Path(sys.base_prefix)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        (process_directory / "bin").mkdir()
        shutil.copy(base / "bin" / version, process_directory / "bin" / "python")
        skip = shutil.ignore_patterns("site-packages", "test", "tests", "__pycache__", "idlelib",
                                      "ensurepip", "lib2to3", "turtledemo", "config-*", "tkinter",
                                      "pydoc_data", "distutils")  # fmt: skip
        shutil.copytree(base / "lib" / version, process_directory / "lib" / version, ignore=skip)
        for library in (base / "lib").glob("libpython*"):
            shutil.copy(library, process_directory / "lib")
        packages = process_directory / "packages"
        packages.mkdir()
        for each in Path(sysconfig.get_paths()["purelib"]).iterdir():
            if each.name.startswith(NEEDED_PACKAGES):
                (shutil.copytree if each.is_dir() else shutil.copy)(each, packages / each.name)
        shutil.copytree(Path(wink_workspace.__file__).parent, packages / "wink_workspace",
                        ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)  # fmt: skip
        yield str(process_directory / "bin" / "python"), [str(packages)]


def test_a_hole_is_reported_with_what_code_could_do() -> None:
    report = IsolationReport(
        (Layer("seccomp", is_active=True),), (Probe("read a file", False, "opened"),)
    )
    with pytest.raises(IsolationError, match="could: read a file"):
        host._check_holes(report)


def test_an_evaluation_after_close_is_refused() -> None:
    sandbox = AstevalSandbox(AstevalConfig())
    sandbox.close()
    sandbox.close()
    with pytest.raises(SandboxBrokenError, match="closed"):
        evaluate(sandbox, "1")
