"""An image's ENV, PATH and WORKDIR apply to commands; its USER does not, and the runner gets none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from podman_machine import WATCHDOG_S, sandbox_place

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.sandbox import ExecRequest, PythonRequest
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox
from wink_workspace.sandbox.podman.commands.image_settings import RESERVED, ImageSettings

pytestmark = pytest.mark.xdist_group("podman")

CONTAINERFILE = """\
FROM {base}
COPY --chmod=755 greet /opt/tools/greet
COPY --chmod=755 forged /opt/tools/python3
ENV PATH=/opt/tools:/usr/bin:/bin GREETING="good day" EMPTY= LANG=de_DE.UTF-8
ENV HOME=/root USER=root LOGNAME=root TMPDIR=/var/tmp TERM=xterm PYTHONPATH=/opt/tools
USER root
WORKDIR /workspace/part
"""


@pytest.fixture(scope="module")
def built(
    engine_environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Callable[..., str]]:
    """Build an image with settings of its own on one of ours; returns its name."""
    names: list[str] = []

    def podman(*arguments: str) -> None:
        done = subprocess.run(
            ["podman", *arguments],
            env=dict(engine_environment.variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WATCHDOG_S,
        )
        assert done.returncode == 0, done.stderr

    def build(base: str, more: str = "") -> str:
        folder = tmp_path_factory.mktemp("context")
        (folder / "greet").write_text('#!/bin/sh\necho "$GREETING"\n')
        (folder / "forged").write_text("#!/bin/sh\necho forged\n")
        (folder / "Containerfile").write_text(CONTAINERFILE.format(base=base) + more)
        name = f"localhost/wink-workspace/tests-settings-{os.getpid()}-{len(names)}:latest"
        podman("build", "--quiet", "--network=none", "--layers=false", f"--tag={name}", str(folder))
        names.append(name)
        return name

    yield build
    for name in names:
        subprocess.run(
            ["podman", "rmi", "--force", name],
            env=dict(engine_environment.variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )


@pytest.fixture(scope="module")
def sandbox(
    built: Callable[..., str], python_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PodmanSandbox]:
    place = sandbox_place(tmp_path_factory.mktemp("sandbox"))
    config = PodmanConfig(image=built(python_image), env={"FROM_CONFIG": "1"})
    with closing(PodmanSandbox(place, config=config)) as sandbox:
        yield sandbox


def output(sandbox: PodmanSandbox, command: str, **options: object) -> str:
    result = sandbox.run(ExecRequest(argv=("/bin/sh", "-c", command), **options))
    assert result.exit_code == 0, result
    return result.stdout.head.decode()


@pytest.mark.behaviour(105)
def test_the_images_variables_apply_and_the_configurations_win(sandbox: PodmanSandbox) -> None:
    assert output(sandbox, "greet") == "good day\n"
    assert output(sandbox, 'echo "$PATH:$LANG:${EMPTY-unset}:$FROM_CONFIG"') == (
        "/opt/tools:/usr/bin:/bin:de_DE.UTF-8::1\n"
    )
    assert output(sandbox, "echo $GREETING", env={"GREETING": "hello"}) == "hello\n"
    code = "import os; print(os.environ['GREETING'])"
    result = sandbox.evaluate(PythonRequest(code=code))
    assert result.stdout.head == b"good day\n"


@pytest.mark.behaviour(105)
def test_the_user_of_an_image_and_the_variables_that_describe_it_do_not_apply(
    sandbox: PodmanSandbox,
) -> None:
    assert output(sandbox, "id -u; echo $HOME $USER $LOGNAME $TMPDIR $TERM") == (
        "1000\n/tmp agent agent /tmp dumb\n"
    )


@pytest.mark.behaviour(105)
def test_the_runner_does_not_use_the_path_or_the_variables_of_an_image(
    sandbox: PodmanSandbox,
) -> None:
    """The image has another ``python3`` first on its PATH; the runner is the trusted one."""
    assert output(sandbox, "python3") == "forged\n"
    assert not sandbox.report.holes
    assert len(sandbox.report.probes) > 15  # those of the warm runner


@pytest.mark.behaviour(105)
def test_commands_start_in_the_images_directory_if_the_workspace_has_it(
    sandbox: PodmanSandbox,
) -> None:
    files = sandbox._context.files
    assert output(sandbox, "pwd") == "/workspace\n"
    output(sandbox, "mkdir -p part other")
    assert output(sandbox, "pwd") == "/workspace/part\n"
    assert sandbox.evaluate(PythonRequest(code="import os; os.getcwd()")).stdout.head == (
        b"'/workspace/part'\n"
    )
    assert output(sandbox, "pwd", cwd="other") == "/workspace/other\n"
    assert output(sandbox, "rmdir part && ln -s other part", cwd="/workspace") == ""
    assert (files / "part").is_symlink()
    assert output(sandbox, "pwd") == "/workspace\n"


def test_an_image_without_python_is_refused_with_what_to_use(
    built: Callable[..., str], python_image: str, tmp_path: Path
) -> None:
    image = built(python_image, "USER 0\nRUN rm -f /usr/bin/python3*\n")
    with (
        closing(
            PodmanSandbox(sandbox_place(tmp_path), config=PodmanConfig(image=image))
        ) as sandbox,
        pytest.raises(SandboxUnavailableError, match=f"{image} has no Python") as caught,
    ):
        sandbox.start()
    assert "Python 3.8 or newer" in caught.value.hint


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("", "."),
        ("/", "."),
        ("/workspace", "."),
        ("/workspace/a/b", "a/b"),
        ("/workspaces", "."),
        ("/go", "."),
        ("/workspace/../etc", "."),
        ("relative", "."),
    ],
)
def test_only_a_directory_of_the_workspace_is_used(directory: str, expected: str) -> None:
    assert ImageSettings.parse([], directory).directory == expected


def test_malformed_and_reserved_variables_of_an_image_are_ignored() -> None:
    listed = ["A=1", "=x", "", "NO_VALUE", "B=a=b", "C=\0", "PATH=", *(f"{n}=x" for n in RESERVED)]
    settings = ImageSettings.parse(listed, "/")
    assert settings.env == {"A": "1", "NO_VALUE": "", "B": "a=b"}
    assert settings.variables({"A": "2"}, {"A": "3"})["A"] == "3"
    assert settings.variables()["PATH"].startswith("/usr/local/sbin:")
