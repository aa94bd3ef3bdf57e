"""The services that were started in a branch, in a file beside its files.

With it a service can be started again by its name, a fork starts the services that its parent had,
and a recovery knows which paths a service was changing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from wink_workspace import serde
from wink_workspace.errors import SandboxError, WinkError

from .services import ServiceConfig

_log = logging.getLogger(__name__)

_HINT: Final = "Free disk space, or make its directory writable, and start the service again."

State = Literal["stopped", "running", "inherited"]
"""``inherited``: it ran in the parent when this branch was forked, and has not been started yet."""


@dataclass(frozen=True, slots=True)
class _Remembered:
    config: ServiceConfig
    state: State


class RememberedServices:
    """The services of one branch; *file* is ``None`` if nothing is remembered.

    A file that is damaged or of another version counts as empty. If it cannot be written, the end
    of a service is logged instead: one that is recorded as running may have ended.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def get(self, name: str) -> ServiceConfig | None:
        """The service as it was last started; ``None`` if it never was."""
        return next((each.config for each in self._read() if each.config.name == name), None)

    def writes(self) -> tuple[str, ...]:
        """The paths that running services may change; after a crash, those that were running."""
        return tuple(
            path for each in self._read() if each.state == "running" for path in each.config.writes
        )

    def started(self, config: ServiceConfig) -> None:
        """Record that a service runs.

        Raises:
            SandboxError: If the file cannot be written: a rollback would not leave the paths of
                the service alone.
        """
        others = [each for each in self._read() if each.config.name != config.name]
        try:
            self._write([*others, _Remembered(config, "running")])
        except OSError as error:
            raise SandboxError(
                f"the service {config.name} cannot be recorded: {error}", hint=_HINT
            ) from error

    def stopped(self, name: str) -> None:
        """Record that a service does not run; it can be started again by its name."""
        self._set("stopped", [name])

    def all_stopped(self) -> None:
        """Record that none runs: the process that had them has ended."""
        self._set("stopped", [each.config.name for each in self._read() if each.state == "running"])

    def take_inherited(self) -> tuple[ServiceConfig, ...]:
        """What a new fork has to start; the next call returns nothing."""
        found = tuple(each.config for each in self._read() if each.state == "inherited")
        self._set("stopped", [config.name for config in found])
        return found

    def copy_to(self, file: Path, *, running: Collection[str]) -> None:
        """Let a fork have these services; it starts those that are *running*."""
        known = [
            replace(each, state="inherited" if each.config.name in running else "stopped")
            for each in self._read()
        ]
        if known:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            RememberedServices(file)._write(known)  # noqa: SLF001 - an object of this class

    def _set(self, state: State, names: Iterable[str]) -> None:
        changed = set(names)
        known = self._read()
        if changed.isdisjoint(each.config.name for each in known):
            return
        newer = [
            replace(each, state=state) if each.config.name in changed else each for each in known
        ]
        try:
            self._write(newer)
        except OSError as error:
            listed = ", ".join(sorted(changed))
            _log.warning("The state of the services %s cannot be recorded: %s", listed, error)

    def _read(self) -> list[_Remembered]:
        if self._file is None:
            return []
        try:
            content = self._file.read_bytes()
        except OSError:
            return []
        try:
            return serde.parse_json(list[_Remembered], content)
        except WinkError:
            return []

    def _write(self, known: list[_Remembered]) -> None:
        if self._file is not None:
            temporary = self._file.with_name(f"{self._file.name}.new")
            temporary.write_text(serde.dump_json(known) + "\n", encoding="utf-8")
            temporary.replace(self._file)
