"""An index of Python packages and a registry of npm on loopback, with packages of a test."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class PackageServer:
    """Serves what is added to it; ``asked`` are the requests, and ``find`` the bodies, by default in ``answers``."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, bytes] = {}
        self.find: Callable[[str], bytes | None] = lambda path: self.answers.get(path)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(f"{self.command} {self.path}")
                body = outer.find(self.path.replace("%2f", "/"))
                self.send_response(404 if body is None else 200)
                kind = "text/html" if self.path.startswith("/simple/") else "application/json"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            do_POST = do_GET  # noqa: N815 - the name that http.server wants

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def variables(self) -> Mapping[str, str]:
        """What leads pip and npm of this machine to this server."""
        return {
            "PIP_INDEX_URL": f"{self.address}/simple/",
            "PIP_CONFIG_FILE": "/dev/null",
            "npm_config_registry": f"{self.address}/npm/",
        }

    def add_python(self, name: str, files: Mapping[str, str], *, sdist: bool = False) -> None:
        """Add version 1.0 of a Python package, as a wheel or as a source distribution."""
        plain = name.replace("-", "_")
        info = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        if sdist:
            file = f"{plain}-1.0.tar.gz"
            content = packed({**files, "PKG-INFO": info}, f"{plain}-1.0")
        else:
            file = f"{plain}-1.0-py3-none-any.whl"
            about = {
                "METADATA": info,
                "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
                "RECORD": "",
            }
            about = {f"{plain}-1.0.dist-info/{key}": text for key, text in about.items()}
            memory = io.BytesIO()
            with zipfile.ZipFile(memory, "w") as wheel:
                for path, text in {**files, **about}.items():
                    wheel.writestr(path, text)
            content = memory.getvalue()
        self.answers[f"/files/{file}"] = content
        digest = hashlib.sha256(content).hexdigest()
        page = f'<!DOCTYPE html><a href="{self.address}/files/{file}#sha256={digest}">{file}</a>'
        self.answers[f"/simple/{name}/"] = page.encode()

    def add_node(
        self, name: str, files: Mapping[str, str], **manifest: object
    ) -> dict[str, object]:
        """Add version 1.0.0 of a Node package; returns its entry of a lock file."""
        about = {"name": name, "version": "1.0.0", **manifest}
        content = packed({**files, "package.json": json.dumps(about)}, "package")
        path = f"/npm/{name}/-/{name.rpartition('/')[2]}-1.0.0.tgz"
        self.answers[path] = content
        digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
        dist = {"tarball": self.address + path, "integrity": f"sha512-{digest}"}
        self.answers[f"/npm/{name}"] = json.dumps(
            {
                "name": name,
                "dist-tags": {"latest": "1.0.0"},
                "versions": {"1.0.0": {**about, "dist": dist}},
            }
        ).encode()
        script = {"hasInstallScript": True} if "scripts" in manifest else {}
        resolved = f"https://registry.npmjs.org/{path.removeprefix('/npm/')}"
        return {
            "version": "1.0.0",
            "resolved": resolved,
            "integrity": dist["integrity"],
            **script,
            **{key: each for key, each in manifest.items() if key != "scripts"},
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def package_server() -> Generator[PackageServer]:
    """A server until the end of the block."""
    server = PackageServer()
    try:
        yield server
    finally:
        server.close()


def packed(files: Mapping[str, str], top: str) -> bytes:
    """A compressed archive of *files* below the directory *top*; each is executable."""
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz") as tar:
        for name, text in files.items():
            file = tarfile.TarInfo(f"{top}/{name}")
            file.size, file.mode = len(text.encode()), 0o755
            tar.addfile(file, io.BytesIO(text.encode()))
    return memory.getvalue()
