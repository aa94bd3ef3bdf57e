"""The frameworks that integrations are for: their extras, and the versions that were tested."""

from __future__ import annotations

import re
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Final

from wink_workspace.errors import MissingExtraError


@dataclass(frozen=True, slots=True)
class Framework:
    """One framework.

    Attributes:
        distribution: Its name on the package index.
        extra: Our extra that installs it.
        oldest: The oldest release series that is tested, such as ``"2.68"``.
        newest: The newest one; every release that begins with it counts as tested.
    """

    distribution: str
    extra: str
    oldest: str
    newest: str

    def is_tested(self, release: str) -> bool:
        """Whether *release*, such as ``"2.68.1"``, is in the tested range."""
        oldest, newest, given = map(_numbers, (self.oldest, self.newest, release))
        return oldest <= given and given[: len(newest)] <= newest


FRAMEWORKS: Final = {
    framework.extra: framework
    for framework in (
        Framework("pydantic-ai-slim", "pydantic-ai", "2.68", "2.68"),
        Framework("deepagents", "deepagents", "0.7.32", "0.7"),
        Framework("inspect-ai", "inspect", "0.3.285", "0.3"),
        Framework("openai-agents", "openai-agents", "0.24", "0.24"),
        Framework("mini-swe-agent", "mini-swe-agent", "2.4.6", "2.4"),
        Framework("agent-client-protocol", "acp", "0.12.1", "0.12"),
    )
}
"""By extra. The tests run with the newest series, which ``pyproject.toml`` pins in ``dev``."""


@contextmanager
def importing(extra: str) -> Generator[None]:
    """Import a framework in the block; warn once if its version was not tested.

    Raises:
        MissingExtraError: If something that the block imports is not installed.
    """
    framework = FRAMEWORKS[extra]
    try:
        yield
    except ModuleNotFoundError as error:
        name = framework.distribution
        raise MissingExtraError.of(f"the integration of {name}", extra, error.name) from error
    _check_version(framework)


@cache
def _check_version(framework: Framework) -> None:
    release = version(framework.distribution)
    if not framework.is_tested(release):
        warnings.warn(
            f"wink_workspace was tested with {framework.distribution} {framework.oldest} to "
            f"{framework.newest}, and {release} is installed; if something fails, install "
            f"'{framework.distribution}=={framework.newest}.*'",
            stacklevel=2,
        )


def _numbers(release: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version, without suffixes such as ``rc1``."""
    leading = re.match(r"\d+(\.\d+)*", release)
    return tuple(map(int, leading[0].split("."))) if leading else ()
