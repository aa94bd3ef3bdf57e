"""Projects whose tests run in a sandbox and on this machine, and the programs that they need."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from loopback import package_registries

PYTEST = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
C_PROJECT = {
    "sum.c": '#include <stdio.h>\nint main(void) { printf("%d\\n", 40 + 2); return 0; }\n',
    "Makefile": ("sum: sum.c\n\t$(CC) -o $@ $<\ntest: sum\n\ttest `./sum` = 42\n\t@echo ok sum\n"),
}
NODE_PROJECT = {
    "package.json": json.dumps(
        {
            "name": "p",
            "version": "1.0.0",
            "scripts": {"test": "node --test"},
            "dependencies": {"once": "1.4.0"},
        }
    ),
    "test.js": """\
const test = require("node:test"), assert = require("node:assert"), once = require("once");
let calls = 0;
const call = once(() => ++calls);
test("once", () => { call(); call(); assert.equal(calls, 1); });
test("sum", () => assert.equal(40 + 2, 42));
""",
}
GO_PROJECT = {
    "go.mod": "module example.test/sums\n\ngo 1.19\n",
    "sums.go": "package sums\n\nfunc Total(a, b int) int { return a + b }\n",
    "sums_test.go": """\
package sums

import (
\t"net/http"
\t"net/http/httptest"
\t"testing"
)

func TestTotal(t *testing.T) {
\tif Total(40, 2) != 42 {
\t\tt.Fail()
\t}
}

func TestServer(t *testing.T) {
\tserver := httptest.NewServer(http.NotFoundHandler())
\tdefer server.Close()
\tif answer, err := http.Get(server.URL); err != nil || answer.StatusCode != 404 {
\t\tt.Fail()
\t}
}
""",
}
RUST_PROJECT = {
    "Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": """\
pub fn total(numbers: &[i64]) -> i64 {
    numbers.iter().sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn adds() {
        assert_eq!(super::total(&[40, 2]), 42);
    }
}
""",
}


def write(source: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)


def unpack(name: str, source: Path, folder: Path) -> None:
    """Put a source distribution of PyPI into *source*."""
    options = ("--quiet", "--no-deps", "--no-binary=:all:", f"--dest={folder}")
    with package_registries():
        subprocess.run(
            [sys.executable, "-m", "pip", "download", *options, name],
            check=True,
            capture_output=True,
            timeout=600,
        )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    shutil.copytree(folder / archive.name.removesuffix(".tar.gz"), source, dirs_exist_ok=True)


def unpack_debian(name: str, source: Path, folder: Path) -> None:
    """Put the source package of Debian, with its patches, into *source*."""
    (folder / "lists/partial").mkdir(parents=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    archive = f"deb-src [signed-by={keys}] http://deb.debian.org/debian bookworm main\n"
    (folder / "sources.list").write_text(archive)
    options = [f"Dir::Etc::sourcelist={folder}/sources.list", "Dir::Etc::sourceparts=/dev/null"]
    options += [f"Dir::State::lists={folder}/lists", f"Dir::Cache={folder}"]
    apt = ["apt-get", "-q", *(word for each in options for word in ("-o", each))]
    apt += ["-o", "APT::Sandbox::User=root"]
    with package_registries():
        for words in (["update"], ["source", name]):
            subprocess.run([*apt, *words], cwd=folder, check=True, capture_output=True, timeout=600)
    (found,) = folder.glob(f"{name}-*/")
    shutil.copytree(found, source, dirs_exist_ok=True)


def make_venv(
    venv: Path, source: Path, packages: Iterable[str], *, python: str = sys.executable
) -> None:
    """A virtual environment of this machine with *packages* and an editable project."""
    with package_registries():
        for command in (
            [python, "-m", "venv", str(venv)],
            [f"{venv}/bin/pip", "install", "-q", "--no-deps", *packages],
            [f"{venv}/bin/pip", "install", "-q", "--no-deps", "-e", str(source)],
        ):
            subprocess.run(command, check=True, capture_output=True, timeout=600)


def passed_lines(printed: str) -> set[str]:
    """The tests that passed, by the output of ``make``, Node's runner, Go or Cargo, without times."""
    found = re.findall(
        r"^ *(?:# Subtest.*|ok .*|--- PASS: \S+|test .* \.\.\. ok)", printed, re.MULTILINE
    )
    return {re.sub(r"[\d.]+ *m?s\b", "", line).strip() for line in found}


DEBIAN = {"go": ("golang-go",), "cargo": ("cargo",)}
"""The packages with the programs that this machine need not have, by program."""


def unpacked(root: Path, *packages: str) -> dict[str, str]:
    """Where to find programs and libraries of Debian packages, which are not installed.

    Below *root* are those packages that the machine lacks, with what they depend on.
    """
    downloads = root / "downloads"
    (downloads / "partial").mkdir(parents=True)
    options = ["-q", "-y", "--download-only", "--no-install-recommends", "-o", "Debug::NoLocking=1"]
    options += ["-o", "APT::Sandbox::User=root", "-o", f"Dir::Cache::archives={downloads}"]
    if packages:
        with package_registries():
            subprocess.run(
                ["apt-get", *options, "install", *packages],
                check=True,
                capture_output=True,
                timeout=600,
            )
    for archive in downloads.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, root], check=True, timeout=60)
    libraries = [str(each) for each in root.glob("usr/lib/*-linux-gnu*")]
    return {
        "PATH": f"{root}/usr/bin:/usr/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": ":".join(libraries),
    }


def npm(folder: Path, *arguments: str) -> None:
    """Run npm on this machine with the registry that it is configured for."""
    with package_registries():
        subprocess.run(
            ["npm", "--no-audit", "--no-fund", *arguments], cwd=folder, check=True, timeout=600
        )
