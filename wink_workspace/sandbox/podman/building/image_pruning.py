"""Deletes images and caches of builds that have not been used for a long time.

Rule 1: only images are deleted that builds made: those of projects and their layers, and those of
older recipes. One with another name, too, is kept.
Rule 2: the engine deletes images, without force, so it refuses to delete one of a container.
Rule 3: the last use is that of builds: they change the time of what they find in the cache, and
``ImageStore.note_use`` records it for images.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.sandbox.image_store import PruneReport, SandboxImage, StoredItem

from .image_names import LAYER, is_second_name, project_name
from .images import RECIPES, UNFINISHED, ImageStore, delete_tree, recipe

_OURS: Final = re.compile(
    rf"localhost/wink-workspace/(layer|project-[0-9a-f]{{16}}|({'|'.join(RECIPES)})(-base)?):[^:/]+"
)
_ARCHIVE: Final = re.compile(rf"({'|'.join(RECIPES)})-[0-9a-f]{{16}}\.tar")
_BLOCK_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class _Layers:
    """An image of the store: the digests of its layers, the lowest first, and their size."""

    id: str
    size_bytes: int
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What may be deleted: an image with all of its names, or a file or directory of the cache.

    Attributes:
        item: What the report has of it.
        protection: Why it is not deleted; empty if it may be.
        names: The names of the image.
        layers: The layers of the image; ``None`` for a path of the cache.
    """

    item: StoredItem
    protection: str = ""
    names: tuple[str, ...] = ()
    layers: _Layers | None = None


class ImagePruner:
    """Finds and deletes what was not used for a long time.

    Args:
        store: The images and the cache.
    """

    def __init__(self, store: ImageStore) -> None:
        self._store = store

    def prune(
        self,
        *,
        older_s: float,
        keep_bytes: int | None,
        with_current: bool,
        dry_run: bool,
        now_s: float,
    ) -> PruneReport:
        """See ``SandboxImages``; *now_s* is the time in seconds since 1970."""
        limits = (now_s - older_s, keep_bytes, with_current)
        if dry_run:
            return self._pruned(*limits, dry_run=True)
        with self._store.lock():
            return self._pruned(*limits, dry_run=False)

    def _pruned(
        self, used_before_s: float, keep_bytes: int | None, with_current: bool, *, dry_run: bool
    ) -> PruneReport:
        known = self._layers()
        candidates = [*self._images(known, with_current=with_current), *self._cached()]
        chosen = _chosen(candidates, known, used_before_s, keep_bytes)
        kept = [each for each in chosen if each.protection]
        removed = list[_Candidate]()
        for each in chosen:
            if not each.protection:
                failure = "" if dry_run else self._remove(each)
                if failure:
                    kept.append(replace(each, protection=failure))
                else:
                    removed.append(each)
        return PruneReport(
            tuple(each.item for each in removed),
            tuple(replace(each.item, kept_because=each.protection) for each in kept),
            _freed(removed, known),
        )

    def _layers(self) -> dict[str, _Layers]:
        """The layers of every image in the store, by the image's id."""
        ids = set(self._store.programs.podman("image", "ls", "--all", "-q", "--no-trunc").split())
        if not ids:
            return {}
        form = "{{.Id}} {{.Size}}{{range .RootFS.Layers}} {{.}}{{end}}"
        shown = self._store.programs.podman("image", "inspect", "--format", form, *sorted(ids))
        found = dict[str, _Layers]()
        for line in shown.splitlines():
            identity, size, *digests = line.split()
            found[identity] = _Layers(identity, int(size), tuple(digests))
        return found

    def _images(self, known: dict[str, _Layers], *, with_current: bool) -> Iterator[_Candidate]:
        usable = {recipe(name).reference for name in RECIPES}
        listed = self._store.programs.podman(
            *("ps", "--all", "--external", "--no-trunc", "--format", "{{.ImageID}} {{.Names}}")
        )
        containers = dict(line.split(maxsplit=1) for line in listed.splitlines() if " " in line)
        by_id = dict[str, list[SandboxImage]]()
        for image in self._store.by_name().values():
            by_id.setdefault(image.id, []).append(image)
        for identity, images in by_id.items():
            names = tuple(sorted(image.reference for image in images))
            is_ours = all(_OURS.fullmatch(name) for name in names) and usable.isdisjoint(names)
            if not is_ours or identity not in known:
                continue
            protection = ""
            if identity in containers:
                protection = f"the container {containers[identity]} uses it"
            elif not with_current and any(_is_current(image) for image in images):
                protection = f"it is the image of {images[0].source}"
            used_s = max(images[0].created_s, *map(self._store.used_s, names))
            item = StoredItem(names[0], "image", images[0].size_bytes, used_s)
            yield _Candidate(item, protection, names, known[identity])

    def _cached(self) -> Iterator[_Candidate]:
        cache = self._store.cache
        current = {f"{name}-{recipe(name).digest}.tar" for name in RECIPES}
        for folder in ("fetched", "requests", "steps"):
            for path in sorted((cache / folder).glob("*")):
                if not path.name.startswith(UNFINISHED):
                    yield _cached(path, f"{folder}/{path.name}")
        for path in sorted(cache.glob("*.tar")):
            if _ARCHIVE.fullmatch(path.name) and path.name not in current:
                yield _cached(path, path.name)

    def _remove(self, candidate: _Candidate) -> str:
        """Delete it; returns why that failed."""
        if candidate.layers is None:
            delete_tree(self._store.cache / candidate.item.name)
            return ""
        try:
            self._store.programs.podman("rmi", *candidate.names)
        except SandboxUnavailableError as error:
            with suppress(SandboxUnavailableError):  # the engine removed all names but one
                self._store.programs.podman("tag", candidate.layers.id, *candidate.names)
            return error.message
        self._store.forget_use(candidate.names)
        return ""


def _cached(path: Path, name: str) -> _Candidate:
    size = sum(each.lstat().st_blocks * _BLOCK_BYTES for each in _below(path))
    return _Candidate(StoredItem(name, "cache", size, path.lstat().st_mtime))


def _below(path: Path) -> Iterator[Path]:
    """The path, and everything below it; links are not followed."""
    yield path
    for folder, directories, files in os.walk(path):
        yield from (Path(folder, name) for name in (*directories, *files))


def _is_current(image: SandboxImage) -> bool:
    """Whether it is found for a project whose directory may exist."""
    name = image.reference.rpartition(":")[0]
    if not image.source or not is_second_name(image.reference):
        return False
    source = Path(image.source)
    try:
        source.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # it cannot be examined
    return name == project_name(source)


def _chosen(
    candidates: Iterable[_Candidate],
    known: dict[str, _Layers],
    used_before_s: float,
    keep_bytes: int | None,
) -> list[_Candidate]:
    """What the limits choose, the least recently used first, with what is protected of it."""
    candidates = list(candidates)
    open_ids = {each.layers.id for each in candidates if each.layers and not each.protection}
    kept = [each for each in known.values() if each.id not in open_ids]
    chosen, total = list[_Candidate](), 0
    newest_first = sorted(candidates, key=lambda each: each.item.used_s, reverse=True)
    # A layer is decided after all that may be built on it.
    for each in sorted(newest_first, key=lambda each: each.item.name.startswith(f"{LAYER}:")):
        is_old = each.item.used_s < used_before_s
        if each.protection:
            chosen += [each] if is_old else []
            continue
        if _is_needed(each, kept):
            continue
        size = _own_bytes(each.layers, kept, known) if each.layers else each.item.size_bytes
        if is_old or (keep_bytes is not None and total + size > keep_bytes):
            chosen.append(each)
            continue
        total += size
        if each.layers:
            kept.append(each.layers)
    return sorted(chosen, key=lambda each: each.item.used_s)


def _is_needed(candidate: _Candidate, kept: Sequence[_Layers]) -> bool:
    """Whether it is a layer of an image that is kept, so that its deletion frees nothing."""
    if candidate.layers is None or not candidate.item.name.startswith(f"{LAYER}:"):
        return False
    digests = candidate.layers.digests
    return any(each.digests[: len(digests)] == digests for each in kept)


def _own_bytes(image: _Layers, others: Iterable[_Layers], known: dict[str, _Layers]) -> int:
    """At least how many bytes *image* has in layers that *others* do not have."""
    n_shared = max((_n_shared(image.digests, each.digests) for each in others), default=0)
    shared = image.digests[:n_shared]
    if not shared:
        return image.size_bytes
    # The smallest image with these layers: their own size is not known to the engine.
    return image.size_bytes - min(
        each.size_bytes for each in known.values() if each.digests[:n_shared] == shared
    )


def _n_shared(first: Sequence[str], second: Sequence[str]) -> int:
    pairs = zip(first, second, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _freed(removed: Iterable[_Candidate], known: dict[str, _Layers]) -> int:
    """At least how many bytes the deletion frees: layers of other images stay."""
    removed = list(removed)
    images = sorted(
        (each.layers for each in removed if each.layers), key=lambda each: len(each.digests)
    )
    gone = {each.id for each in images}
    counted = [each for each in known.values() if each.id not in gone]
    total = sum(each.item.size_bytes for each in removed if each.layers is None)
    for image in images:
        total += _own_bytes(image, counted, known)
        counted.append(image)
    return total
