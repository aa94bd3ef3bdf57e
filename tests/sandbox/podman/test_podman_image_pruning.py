"""What ``image prune`` deletes and keeps, in a store and a cache that the tests made."""

from __future__ import annotations

import io
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from wink_workspace.cli import main
from wink_workspace.environment import Environment
from wink_workspace.sandbox import PruneReport
from wink_workspace.sandbox.podman.building.image_names import LAYER, project_name
from wink_workspace.sandbox.podman.building.image_pruning import ImagePruner
from wink_workspace.sandbox.podman.building.images import (
    RECIPE_LABEL,
    SOURCE_LABEL,
    ImageStore,
    recipe,
)

DAY_S = 86_400.0
OLD_BYTES, NEW_BYTES = 300_000, 100_000


class Store:
    """An engine's store and a cache in a directory of the test."""

    def __init__(self, folder: Path, environment: Environment) -> None:
        self.folder = folder
        conf = folder / "storage.conf"
        conf.write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
        )
        self.variables = {
            "CONTAINERS_STORAGE_CONF": str(conf),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        variables = {**environment.variables, **self.variables}
        self.images = ImageStore(replace(environment, variables=variables))
        self.podman = self.images.programs.podman
        root = self.podman("info", "--format", "{{.Store.GraphRoot}}").strip()
        assert root == f"{folder}/graph", "the images of this machine must not be pruned"
        self.now_s = 0.0
        """A time after everything in the store: 40 days after its newest image."""

    def add(self, *names: str, size: int, source: Path | None = None) -> None:
        """Import an image with one layer."""
        archive = self.folder / "image.tar"
        with tarfile.open(archive, "w") as tar:
            file = tarfile.TarInfo(names[0].replace("/", "-"))
            file.size = size
            tar.addfile(file, io.BytesIO(bytes(size)))
        changes = [f"--change=LABEL {RECIPE_LABEL}=1"]
        changes += [f"--change=LABEL {SOURCE_LABEL}={source}"] if source else []
        self.podman("import", "--quiet", *changes, str(archive), names[0])
        self.tag(*names)

    def tag(self, *names: str) -> None:
        if names[1:]:
            self.podman("tag", *names)
        image = self.images.find(names[0])
        assert image is not None
        self.now_s = max(self.now_s, image.created_s + 40 * DAY_S)

    def build(self, *names: str, base: str, source: Path) -> None:
        """Add an empty layer to an image, as the build of a project does."""
        context = self.folder / "context"
        context.mkdir(exist_ok=True)
        (context / "Containerfile").write_text(f"FROM {base}\nCOPY Containerfile /\n")
        label = f"--label={SOURCE_LABEL}={source}"
        self.podman("build", "-q", "--layers=false", "--tag", names[0], label, str(context))
        self.tag(*names)

    def add_cached(self, name: str, *, size: int, days_ago: float, now_s: float) -> Path:
        path = self.images.cache / name / "content"
        path.parent.mkdir(parents=True)
        path.write_bytes(os.urandom(size))
        os.utime(path.parent, times=(now_s - days_ago * DAY_S,) * 2)
        return path.parent

    def prune(
        self,
        *,
        days: float = 30,
        keep_bytes: int | None = None,
        with_current: bool = False,
        dry_run: bool = False,
    ) -> PruneReport:
        return ImagePruner(self.images).prune(
            older_s=days * DAY_S,
            keep_bytes=keep_bytes,
            with_current=with_current,
            dry_run=dry_run,
            now_s=self.now_s,
        )

    def names(self) -> set[str]:
        return set(self.images.by_name())


@pytest.fixture
def store(tmp_path: Path, environment: Environment) -> Store:
    return Store(tmp_path, environment)


def names(report: PruneReport) -> set[str]:
    return {item.name for item in report.removed}


@pytest.mark.behaviour(202)
def test_images_that_no_build_has_used_are_deleted_except_those_of_projects_and_containers(
    store: Store, tmp_path: Path
) -> None:
    existing, gone = tmp_path / "existing", tmp_path / "gone"
    existing.mkdir()
    mine, other = project_name(existing), project_name(gone)
    store.add(f"{LAYER}:below", size=OLD_BYTES)
    store.build(f"{mine}:2", f"{mine}:current", base=f"{LAYER}:below", source=existing)
    store.add(f"{mine}:1", size=OLD_BYTES, source=existing)
    store.add(f"{LAYER}:unused", size=OLD_BYTES)
    store.add(f"{other}:1", f"{other}:current", size=OLD_BYTES, source=gone)
    store.add(f"{other}:2", f"{other}:recipe-2", size=OLD_BYTES, source=gone)
    store.podman("create", "--network=none", "--name=user", f"{other}:2", "/none")
    store.add(f"{other}:3", size=OLD_BYTES, source=gone)
    store.images.note_use(f"{other}:3")
    note = store.images.cache / "used" / f"{other.rpartition('/')[2]}-3"
    os.utime(note, times=(store.now_s, store.now_s))
    store.add(recipe("node").reference, size=OLD_BYTES)
    store.add("localhost/wink-workspace/node:0", size=OLD_BYTES)
    store.add(f"{other}:4", "localhost/name-of-a-user:1", size=OLD_BYTES, source=gone)
    store.add("localhost/wink-workspace/of-a-user:1", size=OLD_BYTES)
    before = store.names()

    planned = store.prune(dry_run=True)
    assert store.names() == before
    done = store.prune()

    old = {f"{mine}:1", f"{LAYER}:unused", f"{other}:1", "localhost/wink-workspace/node:0"}
    assert names(done) == old
    assert store.names() == before - old - {f"{other}:current"}
    assert done.freed_bytes >= 4 * OLD_BYTES
    assert {item.name: item.kept_because for item in done.kept} == {
        f"{other}:2": "the container user uses it",
        f"{mine}:2": f"it is the image of {existing}",
    }
    assert planned == done

    # With --all also the image of the project, and then the layer below it.
    assert names(store.prune(with_current=True)) == {f"{mine}:2", f"{LAYER}:below"}
    assert store.podman("image", "ls", "-q", "--filter=dangling=true") == ""
    assert store.podman("ps", "--all", "--format={{.Names}}").split() == ["user"]


@pytest.mark.behaviour(202)
def test_an_image_that_the_engine_does_not_delete_keeps_its_names_and_is_reported(
    store: Store, tmp_path: Path
) -> None:
    name = project_name(tmp_path / "gone")
    store.add(f"{name}:1", f"{name}:current", size=OLD_BYTES, source=tmp_path / "gone")
    before = store.names()
    # A container that is made after the list of containers was read.
    real, programs = store.images.programs.find("podman"), tmp_path / "programs"
    programs.mkdir()
    (programs / "podman").write_text(
        f'#!/bin/sh\n[ "$1" = ps ] && exit\n[ "$1" = rmi ] &&'
        f" {real} create --network=none --name=late {name}:1 /none >/dev/null\n"
        f'exec {real} "$@"\n'
    )
    (programs / "podman").chmod(0o755)
    variables = store.images.programs.environment.variables
    path = f"{programs}:{variables['PATH']}"
    store.images = ImageStore(Environment(variables={**variables, "PATH": path}))
    done = store.prune()
    assert not done.removed
    assert done.freed_bytes == 0
    assert "image is in use by a container" in done.kept[0].kept_because
    assert store.names() == before


@pytest.mark.behaviour(202)
def test_the_least_recently_used_is_deleted_until_the_rest_has_the_wanted_size(
    store: Store,
) -> None:
    store.now_s = 1_800_000_000.0
    made = {
        name: store.add_cached(name, size=size, days_ago=days, now_s=store.now_s)
        for name, size, days in (
            ("steps/new", NEW_BYTES, 1),
            ("fetched/python-middle", NEW_BYTES, 2),
            ("steps/old", OLD_BYTES, 3),
        )
    }
    outside = store.folder / "outside"
    outside.write_text("stays")
    (made["steps/old"] / "link").symlink_to(store.folder)
    os.utime(made["steps/old"], times=(store.now_s - 3 * DAY_S,) * 2)
    done = store.prune(keep_bytes=3 * NEW_BYTES)
    assert names(done) == {"steps/old"}
    assert OLD_BYTES <= done.freed_bytes < 2 * OLD_BYTES
    assert [name for name, path in made.items() if path.exists()] == [
        "steps/new",
        "fetched/python-middle",
    ]
    assert outside.read_text() == "stays"
    assert names(store.prune(days=1.5)) == {"fetched/python-middle"}


@pytest.mark.behaviour(202)
def test_the_command_shows_what_would_go_and_deletes_archives_of_older_recipes(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in store.variables.items():
        monkeypatch.setenv(name, value)
    python = recipe("python")
    old, current = (
        store.images.cache / f"python-{digest}.tar" for digest in ("0" * 16, python.digest)
    )
    current.parent.mkdir(parents=True)
    for path in (old, current):
        path.write_bytes(bytes(2 * 1_048_576))
        os.utime(path, times=(1.6e9, 1.6e9))
    assert main(["image", "prune", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert old.name in shown
    assert current.name not in shown
    assert shown.endswith("1 item; would free at least 2 MiB\n")
    assert old.exists()
    assert main(["image", "prune", "--older", "7d", "--keep-size", "1G", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert not report["dry_run"]
    assert [item["name"] for item in report["removed"]] == [old.name]
    assert (old.exists(), current.exists()) == (False, True)
    assert main(["image", "prune", "--older", "soon"]) != 0
    assert "'soon' is not a time" in capsys.readouterr().err
