"""The cache of the proxy: which files it stores, who gets them, and what it never stores."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from proxy_machine import ProxyMachine, http, status_of

from wink_workspace.sandbox.network_proxy.package_cache import PackageCache
from wink_workspace.sandbox.network_proxy.proxy_requests import Fetch
from wink_workspace.sandbox.network_proxy.routes import RouteTable

FILE = bytes(range(256)) * 40
SHA256 = hashlib.sha256(FILE).hexdigest()
SHA512 = f"sha512-{base64.b64encode(hashlib.sha512(FILE).digest()).decode()}"
SHA1 = f"x-checksum-sha1: {hashlib.sha1(FILE).hexdigest()}"

# name: the host of the registry, an index (path and text), a file, and a header of the file
REGISTRIES: dict[str, tuple[str, tuple[str, str], str, str]] = {
    "pages of Python": (
        "pypi",
        ("/root/simple/x/", f'<a href="../../files/x-1.whl#sha256={SHA256}">x</a>'),
        "/root/files/x-1.whl",
        "",
    ),
    "JSON of Python": (
        "pypi",
        ("/root/simple/x/", json.dumps({"files": [{"hashes": {"sha256": SHA256}}]})),
        "/root/files/x-1.tar.gz",
        "",
    ),
    "npm": (
        "npm",
        ("/@a%2fx", json.dumps({"versions": {"1.0.0": {"dist": {"integrity": SHA512}}}})),
        "/@a/x/-/x-1.0.0.tgz",
        "",
    ),
    "cargo": (
        "crates",
        ("/api/index/so/me/some", json.dumps({"vers": "1.0.0", "cksum": SHA256}) + "\n{}\n"),
        "/api/v1/crates/some/1.0.0/download",
        "",
    ),
    "Maven": ("maven", ("/maven2/a/b/maven-metadata.xml", ""), "/maven2/a/b/1/b-1.jar", SHA1),
}


@pytest.fixture(scope="module")
def machine() -> Iterator[ProxyMachine]:
    with closing(ProxyMachine()) as machine:
        yield machine


@pytest.fixture
def folder(machine: ProxyMachine, tmp_path: Path) -> Path:
    """The directory of the cache, which no proxy has used."""
    machine.reset(cache=tmp_path / "packages")
    return tmp_path / "packages"


def serve(machine: ProxyMachine, case: str, content: bytes = FILE) -> tuple[str, str]:
    """Serve a registry; returns the URLs of its index and file inside."""
    name, (index, text), file, header = REGISTRIES[case]
    found = {index: http(text), file: http(content, *filter(None, [header]))}
    machine.answers[f"{name}.test"] = lambda head: found[head.split()[1].decode()]
    return f"http://{name}.wink.internal{index}", f"http://{name}.wink.internal{file}"


def fetched(machine: ProxyMachine, *urls: str) -> bytes:
    """The body at the last of the URLs, which are read in order."""
    answers = [machine.get(url) for url in urls]
    assert {status_of(each) for each in answers} == {200}
    return answers[-1].partition(b"\r\n\r\n")[2]


def restart(machine: ProxyMachine, folder: Path) -> None:
    """Another container: its proxy has seen no index yet."""
    machine.reset(cache=folder)


@pytest.mark.parametrize("case", REGISTRIES)
def test_a_file_whose_digest_was_stated_is_fetched_once_for_all_containers(
    machine: ProxyMachine, folder: Path, case: str
) -> None:
    index, file = serve(machine, case)
    assert fetched(machine, index, file) == FILE
    restart(machine, folder)
    assert fetched(machine, file) == FILE
    assert machine.reached.connections == 0
    (record,) = machine.requests()
    assert (record.status, record.n_sent, record.n_received) == (200, 0, 0)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("case", REGISTRIES)
def test_a_file_with_another_digest_is_passed_on_and_not_stored(
    machine: ProxyMachine, folder: Path, case: str
) -> None:
    index, file = serve(machine, case, FILE + b"x")
    for _ in range(2):
        assert fetched(machine, index, file) == FILE + b"x"
    assert machine.reached.connections == 4
    assert not folder.exists()


def test_a_file_of_which_no_index_was_seen_is_not_stored(
    machine: ProxyMachine, folder: Path
) -> None:
    _, file = serve(machine, "npm")
    assert fetched(machine, file) == FILE
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("pypi", "/root/simple/x/"),
        ("npm", "/x.tgz"),
        ("npm", "/-/x"),
        ("crates", "/api/index/do/wn/download"),
        ("go", "/example.test/x/@v/v1.0.0.zip"),
        ("maven", "/maven2/a/b/maven-metadata.xml"),
        ("maven", "/maven2/a/b/1-SNAPSHOT/b-1-SNAPSHOT.jar"),
    ],
)
def test_what_may_change_is_not_stored_although_its_digest_was_stated(
    machine: ProxyMachine, folder: Path, name: str, path: str
) -> None:
    """An author of a package can state any digest in her index: also that of another index."""
    stating, _ = serve(machine, "pages of Python")
    fetched(machine, stating)
    machine.answers[f"{name}.test"] = lambda _: http(FILE, SHA1)
    assert fetched(machine, f"http://{name}.wink.internal{path}") == FILE
    assert not folder.exists()


def test_a_part_of_a_file_is_neither_stored_nor_given_from_the_cache(
    machine: ProxyMachine, folder: Path
) -> None:
    index, file = serve(machine, "npm")
    partial = http(FILE, status="206 Partial Content")
    whole = machine.answers["npm.test"]
    machine.answers["npm.test"] = lambda head: partial if b"range" in head else whole(head)
    fetched(machine, index)
    for _ in range(2):
        assert status_of(machine.get(file, "Range: bytes=0-9")) == 206
        assert not list(folder.glob("*"))
    fetched(machine, file)
    assert status_of(machine.get(file, "Range: bytes=0-9")) == 206


@pytest.mark.parametrize("cut", ["a shorter length", "no length"])
def test_a_file_that_does_not_have_the_length_of_its_head_is_not_stored(
    machine: ProxyMachine, folder: Path, cut: str
) -> None:
    index, file = serve(machine, "npm")
    fetched(machine, index)
    answer = http(FILE, length=False) if cut == "no length" else http(FILE + b"x")[:-1]
    machine.answers["npm.test"] = lambda _: answer
    machine.get(file)
    assert not folder.exists()


def test_a_damaged_file_is_fetched_again_and_replaced(machine: ProxyMachine, folder: Path) -> None:
    index, file = serve(machine, "cargo")
    fetched(machine, index, file)
    (stored,) = folder.iterdir()
    stored.write_bytes(b"damaged")
    assert fetched(machine, file) == FILE
    assert stored.read_bytes() == FILE


def test_a_file_that_was_read_with_credentials_is_not_given_without_them(
    machine: ProxyMachine, folder: Path
) -> None:
    index, file = serve(machine, "pages of Python")
    fetched(machine, index, file)
    machine.registries["pypi"] = (replace(machine.registries["pypi"][0], authorization=""),)
    machine.proxy._routes = RouteTable(machine.rules, machine.registries)
    n_connections = machine.reached.connections
    assert fetched(machine, file) == FILE
    assert machine.reached.connections == n_connections + 1


def test_a_registry_without_tls_is_not_stored(machine: ProxyMachine, folder: Path) -> None:
    index, file = serve(machine, "Maven")
    plain = replace(machine.registries["maven"][0], scheme="http", port=machine.plain_port)
    machine.registries["maven"] = (plain,)
    machine.proxy._routes = RouteTable(machine.rules, machine.registries)
    assert fetched(machine, index, file) == FILE
    assert not folder.exists()


def test_a_directory_that_cannot_be_written_fails_no_request(
    machine: ProxyMachine, folder: Path
) -> None:
    folder.write_text("a file")
    index, file = serve(machine, "npm")
    assert fetched(machine, index, file) == FILE


def test_the_files_that_were_not_used_longest_are_removed_first(
    machine: ProxyMachine, tmp_path: Path
) -> None:
    cache = PackageCache(tmp_path / "packages", most_bytes=250)
    route = machine.routes.find("maven.wink.internal", "/maven2/")
    assert route is not None
    files = [Fetch(route, f"/maven2/{n}.jar", True) for n in range(3)]
    for n, file in enumerate(files):
        if n == 2:  # two are old, and the older one was used just now
            for path in (tmp_path / "packages").iterdir():
                os.utime(path, (1, 1) if path.read_bytes()[:1] == b"0" else (2, 2))
            assert cache.find(files[0]) == b"0" * 100
        data = b"%d" % n * 100
        headers = {"content-length": "100", "x-checksum-sha1": hashlib.sha1(data).hexdigest()}
        with cache.taking(file, 200, headers) as take:
            take(data[:50])
            take(data[50:])
    assert [cache.find(each) is not None for each in files] == [True, False, True]
