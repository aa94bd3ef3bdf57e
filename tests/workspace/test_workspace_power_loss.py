"""Losses of power: at many instants, what is on the disk is copied without sync, and opened.

The disk is an ext4 file system in a loop device, with ``commit=1``. At an instant the writer is
stopped. For most instants an unrelated file is synced: that makes ext4 write all metadata, as it
does every 5 seconds by default, but not the contents of files that were written meanwhile, which
the kernel writes after 30 seconds. So this is the state between the two times, which is the hardest
one, without waiting and without a change of ``vm.dirty_expire_centisecs``. An instant counts only
if two copies of the disk, one after the other, are equal.
"""

from __future__ import annotations

import filecmp
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from power_loss_writer import NAMES, content

HERE = Path(__file__).parent
N_INSTANTS = 390
"""How many instants a writer has at least."""
N_COPIES = 5
"""How often an instant is copied, until two copies are equal."""


@contextmanager
def disk_in(folder: Path) -> Generator[tuple[Path, Path]]:
    """The image of a disk, and where it is mounted; it has a source."""
    image, disk = folder / "image", folder / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(48 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    mounted = subprocess.run(
        ["mount", "-o", "loop,commit=1", image, disk], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a loop device cannot be mounted: {mounted.stderr.strip()}")
    try:
        (disk / "source").mkdir()
        for name in NAMES:
            (disk / "source" / name).write_bytes(content(name, 0))
        (disk / "canary").touch()
        subprocess.run(["sync", "-f", disk], check=True)
        yield image, disk
    finally:
        subprocess.run(["umount", disk], check=True)


def copied(image: Path, to: Path) -> bool:
    """Copy a disk as it is; whether it did not change meanwhile."""
    other = to.with_suffix(".again")
    for target in (to, other):
        subprocess.run(["cp", "--sparse=always", image, target], check=True)
    is_equal = filecmp.cmp(to, other, shallow=False)
    other.unlink()
    return is_equal


def commit_metadata(disk: Path) -> None:
    """Let ext4 write all metadata: an fsync commits the journal, with the changes of others."""
    fd = os.open(disk / "canary", os.O_WRONLY)
    os.pwrite(fd, os.urandom(8), 0)
    os.fsync(fd)
    os.close(fd)


@contextmanager
def program(name: str, *arguments: object, private: bool = False) -> Generator[Any]:
    prefix = ["unshare", "--mount", "--propagation", "private"] if private else []
    process = subprocess.Popen(
        [*prefix, sys.executable, HERE / name, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def losses(
    folder: Path, mode: str, durability: str, *, first: int, every: int
) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """The disk at each instant, and what was acknowledged until then."""
    acknowledged = list[dict[str, Any]]()
    with ExitStack() as opened:
        image, disk = opened.enter_context(disk_in(folder))
        arguments = (disk, mode, durability, first, every)
        writer = opened.enter_context(program("power_loss_writer.py", *arguments))
        os.set_blocking(writer.stdout.fileno(), False)
        text = ""
        for n in range(10_000):
            _, status = os.waitpid(writer.pid, os.WUNTRACED)
            while piece := os.read(writer.stdout.fileno(), 65_536) if _has(writer.stdout) else b"":
                text += piece.decode()
            acknowledged = [json.loads(line) for line in text.splitlines()]
            if not os.WIFSTOPPED(status):
                writer.returncode = os.waitstatus_to_exitcode(status)
                assert acknowledged[-1]["what"] == "ended"
                return
            if n % 4:
                commit_metadata(disk)
            copy = folder / f"loss-{n}"
            if any(copied(image, copy) for _ in range(N_COPIES)):
                yield copy, acknowledged
            copy.unlink()
            os.kill(writer.pid, signal.SIGCONT)


def _has(stream: Any) -> bool:
    import select

    return bool(select.select([stream], [], [], 0)[0])


def assert_no_loss_opens_wrong(
    folder: Path, mode: str, durability: str, *, first: int, every: int
) -> int:
    n_counted = 0
    wrong: list[str] = []
    with program("power_loss_checker.py", folder / "disk", private=True) as checker:
        for copy, acknowledged in losses(folder, mode, durability, first=first, every=every):
            is_durable = durability == "durable"
            request = {"image": str(copy), "acknowledged": acknowledged, "durable": is_durable}
            checker.stdin.write(json.dumps(request) + "\n")
            checker.stdin.flush()
            if problem := json.loads(checker.stdout.readline()):
                wrong.append(f"instant {copy.name}, after {acknowledged[-1:]}: {problem}")
            n_counted += 1
    assert not wrong, f"{len(wrong)} of {n_counted}: " + "\n".join(wrong)
    return n_counted


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a loop device")
FORMS = [
    *(("copy", "default"), ("overlay", "durable"), ("overlay", "default")),
    *(("in_place", "default"), ("copy", "durable"), ("in_place", "durable")),
]


@needs_root
@pytest.mark.share(1)
@pytest.mark.parametrize(("mode", "durability"), FORMS[:4])
def test_a_workspace_opens_right_after_a_loss_of_power(
    tmp_path: Path, mode: str, durability: str
) -> None:
    """By default the newest calls may be lost; durable, nothing that was acknowledged is.

    Each form has at least 5 instants.
    """
    position = FORMS.index((mode, durability))
    every = N_INSTANTS // 6
    first = position * every // 5
    assert assert_no_loss_opens_wrong(tmp_path, mode, durability, first=first, every=every) >= 5


@needs_root
@pytest.mark.soak
@pytest.mark.parametrize(("mode", "durability"), FORMS)
def test_a_workspace_opens_right_after_a_loss_of_power_at_any_instant(
    tmp_path: Path, mode: str, durability: str
) -> None:
    """The six forms have at least 300 instants together."""
    assert assert_no_loss_opens_wrong(tmp_path, mode, durability, first=0, every=5) >= 50
