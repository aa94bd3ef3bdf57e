"""What of a project's requirements reaches pip on the host: names, versions, markers and hashes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from wink_workspace.errors import UsageError
from wink_workspace.sandbox.podman.requirements import (
    build_requirements,
    files_read_with,
    read_requirements,
)
from wink_workspace.sandbox.podman.source_files import SourceFiles

HASH = "sha256:" + "a" * 64


def project(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_txt", ".txt").replace("_toml", ".toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def lines(folder: Path, path: str = "requirements.txt") -> list[str]:
    return list(read_requirements(folder, path).lines)


def test_names_versions_markers_hashes_and_comments_are_read(tmp_path: Path) -> None:
    text = f"""\
# a comment
requests [socks] >= 2.8 , < 3   # with an extra
tomli ; python_version < "3.11" and sys_platform == 'linux'
attrs==23.1.0 \\
    --hash={HASH} \\
    --hash={HASH}
zope.interface ~= 6.0
--require-hashes
"""
    assert lines(project(tmp_path, requirements_txt=text)) == [
        "requests [socks] >= 2.8 , < 3",
        "tomli ; python_version < \"3.11\" and sys_platform == 'linux'",
        f"attrs==23.1.0 --hash={HASH} --hash={HASH}",
        "zope.interface ~= 6.0",
    ]


def test_files_that_a_file_names_are_read_once_and_constraints_are_kept_apart(
    tmp_path: Path,
) -> None:
    project(
        tmp_path,
        requirements_txt="-r more/dev.txt\n-c constraints.txt\na\n",
        more__dev_txt="-r ../requirements.txt\nb\n",
        constraints_txt="c<2\n",
    )
    found = read_requirements(tmp_path, "requirements.txt")
    assert sorted(found.lines) == ["a", "b"]
    assert found.constraints == ("c<2",)


ATTACKS = [
    "--index-url https://evil.invalid/simple",
    "-i https://evil.invalid/simple",
    "--extra-index-url=https://evil.invalid/simple",
    "--find-links /etc",
    "-f https://evil.invalid",
    "--trusted-host evil.invalid",
    "--no-binary :all:",
    "--config-settings a=b",
    "git+https://evil.invalid/x.git#egg=x",
    "-e git+ssh://evil.invalid/x.git#egg=x",
    "x @ https://evil.invalid/x.whl",
    "x @ file:///etc/passwd",
    "https://evil.invalid/x.whl",
    "file:///etc/passwd",
    "/etc/passwd",
    "../outside",
    "./local",
    "-e ./local",
    "x==${SECRET_TOKEN}",
    'x ; python_version < "${SECRET_TOKEN}"',
    "${SECRET_TOKEN}",
    "x --global-option=build_ext",
    "x==1 --hash=md5:1",
    "-r ../../secrets.txt",
    "-r /etc/passwd",
    "-r https://evil.invalid/requirements.txt",
    "x\x1b[2J",
]


@pytest.mark.parametrize("line", ATTACKS)
def test_a_line_that_would_do_more_is_refused_with_its_place(tmp_path: Path, line: str) -> None:
    project(tmp_path, requirements_txt=f"fine\n{line}\n")
    with pytest.raises(UsageError) as caught:
        read_requirements(tmp_path, "requirements.txt")
    assert "requirements.txt, line 2" in caught.value.message or "https:/" in caught.value.message


@pytest.mark.parametrize("line", [each for each in ATTACKS if not each.startswith("-")])
@pytest.mark.parametrize("table", ["project.dependencies", "dependency-groups.dev", "build"])
def test_a_project_file_is_checked_likewise(tmp_path: Path, line: str, table: str) -> None:
    listed = "'''" + line.replace("\x1b", "?") + "'''"
    text = {
        "project.dependencies": f"[project]\nname='p'\ndependencies=[{listed}]",
        "dependency-groups.dev": f"[dependency-groups]\ndev=[{listed}]",
        "build": f"[build-system]\nrequires=[{listed}]",
    }[table]
    project(tmp_path, pyproject_toml=text)
    with pytest.raises(UsageError, match="is not a requirement"):
        read_requirements(tmp_path, "pyproject.toml")
        build_requirements(tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").symlink_to("/etc/hostname")
    with pytest.raises(UsageError, match="is a link"):
        read_requirements(tmp_path, "requirements.txt")


PYPROJECT = """\
[build-system]
requires = ["flit_core<4"]

[project]
name = "My.Project"
dependencies = ["a>=1"]

[project.optional-dependencies]
socks = ["PySocks"]
dev = ["my-project[socks]", "b"]
docs = ["sphinx"]

[dependency-groups]
tests = ["c", {include-group = "more"}, "a>=1"]
more = ["d", {include-group = "tests"}]
docs = ["sphinx"]

[tool.other]
date = 2024-01-01
"""


def test_a_project_file_gives_its_dependencies_and_those_of_its_tests(tmp_path: Path) -> None:
    project(tmp_path, pyproject_toml=PYPROJECT, requirements_txt="-e .[socks]\ne\n")
    assert lines(tmp_path, "pyproject.toml") == ["a>=1", "b", "c", "d"]
    assert lines(tmp_path) == ["a>=1", "PySocks", "e"]
    assert build_requirements(tmp_path) == ("flit_core<4",)


METADATA = """\
Metadata-Version: 2.1
Name: p
Requires-Dist: a<4,>=2
Requires-Dist: PySocks!=1.5.7,>=1.5.6; extra == "socks"
Requires-Dist: win ; python_version < "3" and extra == 'socks'
Requires-Dist: docs; extra == "docs"

Requires-Dist: not-this
"""


def test_a_source_distribution_states_the_dependencies_of_a_project_without_them(
    tmp_path: Path,
) -> None:
    project(tmp_path, requirements_txt="-e .[socks]\n", pyproject_toml="[tool.x]\n")
    assert lines(tmp_path) == []
    (tmp_path / "PKG-INFO").write_text(METADATA)
    wanted = ["a<4,>=2", "PySocks!=1.5.7,>=1.5.6", 'win ; python_version < "3"']
    assert lines(tmp_path) == wanted
    assert lines(tmp_path, "pyproject.toml") == ["a<4,>=2"]
    (tmp_path / "PKG-INFO").write_text("Requires-Dist: x @ file:///etc/passwd\n")
    with pytest.raises(UsageError, match="PKG-INFO"):
        lines(tmp_path)


def test_the_build_of_a_project_without_a_build_system_needs_setuptools(tmp_path: Path) -> None:
    assert build_requirements(tmp_path) == ()
    (tmp_path / "setup.py").touch()
    assert build_requirements(tmp_path) == ("setuptools", "wheel")
    project(tmp_path, pyproject_toml="[project]\nname='p'\n")
    assert build_requirements(tmp_path) == ("setuptools", "wheel")


def test_what_a_backend_asks_for_while_it_builds_is_fetched_too(tmp_path: Path) -> None:
    for requires, needed in (
        ("['hatchling>=1', 'hatch-vcs']", ("hatchling>=1", "hatch-vcs", "editables")),
        ("['setuptools<70', 'wheel']", ("setuptools<70", "wheel")),
        ("['flit_core']", ("flit_core",)),
    ):
        project(tmp_path, pyproject_toml=f"[build-system]\nrequires = {requires}\n")
        assert build_requirements(tmp_path) == needed


UV_LOCK = f"""\
version = 1
[[package]]
name = "app"
version = "0.1.0"
source = {{ editable = "." }}
dependencies = [
    {{ name = "always", extra = ["fast"] }},
    {{ name = "colour", marker = "sys_platform == 'win32' and python_version < '3.9'" }},
]
[package.dev-dependencies]
dev = [{{ name = "tester" }}, {{ name = "app", extra = ["more"] }}]
docs = [{{ name = "unused" }}]
[package.optional-dependencies]
more = [{{ name = "extra" }}]
other = [{{ name = "unused" }}]

[[package]]
name = "always"
version = "1.0"
source = {{ registry = "https://index.invalid/simple" }}
dependencies = [{{ name = "shared", marker = "os_name == 'nt'" }}]
sdist = {{ url = "https://index.invalid/always.tar.gz", hash = "{HASH}" }}
wheels = [{{ url = "https://index.invalid/always.whl", hash = "{HASH}" }}]
[package.optional-dependencies]
fast = [{{ name = "speedup" }}]
slow = [{{ name = "unused" }}]

[[package]]
name = "colour"
version = "2.0"
source = {{ registry = "https://index.invalid/simple" }}
dependencies = [{{ name = "shared" }}, {{ name = "deep" }}]

[[package]]
name = "deep"
version = "3.0"
source = {{ registry = "https://index.invalid/simple" }}
dependencies = [{{ name = "colour" }}]

[[package]]
name = "shared"
version = "4.0"
source = {{ registry = "https://index.invalid/simple" }}

[[package]]
name = "tester"
version = "5.0"
source = {{ registry = "https://index.invalid/simple" }}
dependencies = [{{ name = "app" }}]

[[package]]
name = "extra"
version = "7.0"
source = {{ registry = "https://index.invalid/simple" }}

[[package]]
name = "speedup"
version = "8.0"
source = {{ registry = "https://index.invalid/simple" }}

[[package]]
name = "unused"
version = "6.0"
source = {{ registry = "https://index.invalid/simple" }}
"""


def test_a_lock_of_uv_gives_exact_versions_for_tests_with_the_markers_on_the_way_to_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "uv.lock").write_text(UV_LOCK)
    windows = "(sys_platform == 'win32' and python_version < '3.9')"
    found = read_requirements(tmp_path, "uv.lock")
    assert found.lines == ()  # the lock is complete, so pip looks for no dependencies
    assert list(found.locked) == [
        f"always==1.0 --hash={HASH} --hash={HASH}",
        f"colour==2.0 ; {windows}",
        f"deep==3.0 ; {windows}",
        "extra==7.0",
        f"shared==4.0 ; (os_name == 'nt') or {windows}",
        "speedup==8.0",
        "tester==5.0",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (UV_LOCK.replace('registry = "https://index.invalid/simple"', 'git = "x"'), "an index"),
        (UV_LOCK.replace('name = "tester"\nversion', "name = 1\nversion"), "uv.lock"),
        (UV_LOCK.replace('"5.0"', '"5.0 @ https://evil.invalid/x.whl"'), "is not a requirement"),
        ("package = 1", "uv.lock"),
        ("[", "is not TOML"),
    ],
)
def test_a_lock_from_elsewhere_or_of_another_form_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "uv.lock").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_requirements(tmp_path, "uv.lock")


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"requirements\.txt cannot be read"):
        read_requirements(tmp_path, "requirements.txt")
    (tmp_path / "requirements.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not text"):
        read_requirements(tmp_path, "requirements.txt")


# What is read, and how often


def test_files_and_groups_that_include_others_twice_are_each_read_once(tmp_path: Path) -> None:
    for n in range(45):
        (tmp_path / f"{n}.txt").write_text(f"-r {n + 1}.txt\n-c {n + 1}.txt\n-r {n + 1}.txt\n")
    (tmp_path / "45.txt").write_text("click")
    groups = [
        f"g{n} = [{{include-group = 'g{n + 1}'}}, {{include-group = 'g{n + 1}'}}]"
        for n in range(60)
    ]
    text = "\n".join(["[dependency-groups]", "test = [{include-group = 'g0'}]", *groups])
    (tmp_path / "groups.toml").write_text(f"{text}\ng60 = ['attrs']\n")
    found = read_requirements(tmp_path, "0.txt")
    assert (found.lines, found.constraints) == (("click",), ("click",))
    assert lines(tmp_path, "groups.toml") == ["attrs"]


@pytest.mark.behaviour(142)
def test_a_build_reads_only_what_was_confirmed(tmp_path: Path) -> None:
    project(tmp_path, a_txt="-r b.txt\n", b_txt="click\n", c_txt="attrs\n")
    digests = {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in ("a.txt", "b.txt")
    }
    files = SourceFiles(tmp_path, digests)
    assert read_requirements(files, "a.txt").lines == ("click",)
    with pytest.raises(UsageError, match=r"c\.txt is not what was confirmed"):
        read_requirements(files, "c.txt")
    (tmp_path / "b.txt").write_text("evil\n")
    with pytest.raises(UsageError, match=r"b\.txt is not what was confirmed"):
        read_requirements(files, "a.txt")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    project(tmp_path, requirements_txt="-r pipe\n")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="pipe cannot be read"):
        read_requirements(tmp_path, "requirements.txt")


@pytest.mark.parametrize("separator", ["\r", "\u2028", "\x0c", "\x85", "\x1e"])
def test_every_file_that_is_read_is_listed_whatever_ends_a_line(
    tmp_path: Path, separator: str
) -> None:
    text = f"click  # a comment{separator}-r hidden.lock\n"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8", newline="")
    (tmp_path / "hidden.lock").write_text("-e .\n")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\ndependencies = ['evil']\n")
    assert "evil" in lines(tmp_path, "a.txt")
    assert files_read_with("a.txt", text.encode()) == (("hidden.lock",), ())
    assert files_read_with("hidden.lock", b"-e .\n") == ((), ("pyproject.toml", "PKG-INFO"))
