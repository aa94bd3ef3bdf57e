"""The content of registries for loopback servers: sparse indexes of crates, Go's proxy and checksum
database, and Maven repositories. It is made from directories with sources, as Debian's packages have.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from proxy_machine import Answer, http

DATABASE = "sum.test"
"""The name of the checksum database."""
_WHEN = "2026-01-01T00:00:00Z"


def answers(find: Callable[[str], bytes | None]) -> Answer:
    """A server of what *find* finds at a path without its first ``/``."""

    def answer(head: bytes) -> bytes:
        path = head.split(b" ", 2)[1].decode().removeprefix("/")
        content = find(path)
        return http(b"", status="404 Not Found") if content is None else http(content)

    return answer


# Crates


def crate_files(origin: str, sources: Iterable[Path]) -> dict[str, bytes]:
    """The files of a registry below ``api/``, from directories of crates."""
    files = {"api/index/config.json": json.dumps({"dl": f"{origin}/api/v1/crates"}).encode()}
    for folder in sources:
        manifest = tomllib.loads((folder / "Cargo.toml").read_text())
        name, version = manifest["package"]["name"], manifest["package"]["version"]
        packed = _packed(folder, f"{name}-{version}")
        files[f"api/v1/crates/{name}/{version}/download"] = packed
        line = {
            "name": name,
            "vers": version,
            "deps": _dependencies(manifest),
            "cksum": hashlib.sha256(packed).hexdigest(),
            "features": manifest.get("features", {}),
            "yanked": False,
        }
        short = {1: "1", 2: "2", 3: f"3/{name[0]}"}
        place = short.get(len(name), f"{name[:2]}/{name[2:4]}")
        files[f"api/index/{place}/{name}"] = json.dumps(line).encode() + b"\n"
    return files


def _dependencies(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    tables = {None: manifest, **manifest.get("target", {})}
    for target, table in tables.items():
        for key, kind in (("dependencies", "normal"), ("build-dependencies", "build")):
            for name, given in table.get(key, {}).items():
                each = {"version": given} if isinstance(given, str) else given
                found.append(
                    {
                        "name": name,
                        "req": each.get("version", "*"),
                        "features": each.get("features", []),
                        "optional": each.get("optional", False),
                        "default_features": each.get("default-features", True),
                        "target": target,
                        "kind": kind,
                        "package": each.get("package"),
                    }
                )
    return found


def _packed(folder: Path, name: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(folder, name)
    return packed.getvalue()


# Go


def go_files(modules: Mapping[str, Path | None]) -> tuple[dict[str, bytes], dict[str, bytes], str]:
    """The files of a proxy and of its checksum database, and the key of the latter.

    Args:
        modules: The directory of each ``PATH@VERSION``; ``None`` for a module without packages.
    """
    proxy: dict[str, bytes] = {}
    records: dict[str, bytes] = {}
    for module, folder in modules.items():
        path, _, version = module.partition("@")
        names = [] if folder is None else _module_names(folder)
        contents = {name: (folder / name).read_bytes() for name in names if folder is not None}
        mod = contents.get("go.mod") or f"module {path}\n".encode()
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, content in contents.items():
                archive.writestr(f"{module}/{name}", content)
        base = f"{path}/@v/{version}"
        proxy[f"{base}.info"] = json.dumps({"Version": version, "Time": _WHEN}).encode()
        proxy[f"{base}.mod"], proxy[f"{base}.zip"] = mod, packed.getvalue()
        whole = {f"{module}/{name}": content for name, content in contents.items()}
        records[module] = (
            f"{path} {version} {_h1(whole)}\n{path} {version}/go.mod {_h1({'go.mod': mod})}\n"
        ).encode()
    return proxy, *_database(records)


def required(go_mod: str) -> set[str]:
    """The ``PATH@VERSION`` that a ``go.mod`` requires."""
    found = re.findall(r'^(?:require)?\s*"?([\w.-]+\.\w+/[^\s"]+)"? (v\S+)', go_mod, re.MULTILINE)
    return {f"{path}@{version}" for path, version in found}


def _module_names(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def _h1(contents: Mapping[str, bytes]) -> str:
    """The hash of Go's ``dirhash.Hash1``."""
    lines = (f"{hashlib.sha256(each).hexdigest()}  {name}\n" for name, each in contents.items())
    whole = "".join(sorted(lines, key=lambda line: line[66:])).encode()
    return "h1:" + base64.b64encode(hashlib.sha256(whole).digest()).decode()


def _database(records: Mapping[str, bytes]) -> tuple[dict[str, bytes], str]:
    """A checksum database of fewer than 256 records, and its key; see go.dev/ref/mod."""
    signer = Ed25519PrivateKey.generate()
    key = b"\1" + signer.public_key().public_bytes_raw()
    name = hashlib.sha256(DATABASE.encode() + b"\n" + key).digest()[:4]
    leaves = [hashlib.sha256(b"\0" + record).digest() for record in records.values()]
    head = base64.b64encode(_root(leaves)).decode()
    tree = f"go.sum database tree\n{len(leaves)}\n{head}\n"
    signature = base64.b64encode(name + signer.sign(tree.encode())).decode()
    note = f"{tree}\n\N{EM DASH} {DATABASE} {signature}\n".encode()
    files = {"latest": note}
    for number, (module, record) in enumerate(records.items()):
        files[f"lookup/{module}"] = b"%d\n%s\n%s" % (number, record, note)
    files[f"tile/8/0/000.p/{len(leaves)}"] = b"".join(leaves)
    return files, f"{DATABASE}+{name.hex()}+{base64.b64encode(key).decode()}"


def _root(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    at = 1
    while at * 2 < len(leaves):
        at *= 2
    return hashlib.sha256(b"\1" + _root(leaves[:at]) + _root(leaves[at:])).digest()


# Maven


def maven_files(root: Path) -> Callable[[str], bytes | None]:
    """Finds the files below ``maven2/`` in a directory with the layout of a repository."""

    def find(path: str) -> bytes | None:
        name, is_sum, _ = path.removeprefix("maven2/").partition(".sha1")
        file = root / name
        if not file.is_file():
            return None
        content = file.read_bytes()
        return hashlib.sha1(content).hexdigest().encode() if is_sum else content

    return find
