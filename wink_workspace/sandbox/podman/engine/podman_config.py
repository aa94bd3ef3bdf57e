"""Configuration of a Podman sandbox. Every field has a default, and its name has the unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from wink_workspace.errors import UsageError
from wink_workspace.sandbox.commands.command_config import CommandConfig

IMAGE_VERSION: Final = "2"
"""The version of our images; it changes with their content."""

DEFAULT_IMAGE: Final = f"localhost/wink-workspace/python:{IMAGE_VERSION}"

_MOST_WAITING: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PodmanConfig(CommandConfig):
    """The image of the container, and the limits of its commands.

    It has the attributes of ``CommandConfig``, and:

    Attributes:
        image: The image. It must be in the engine's store; images are never pulled.
        user_id: The ordinary user and group id of commands.
        runtime: The OCI runtime, such as ``runc``, ``crun`` or ``runsc``; by default the engine's
            choice, if that works here.
        n_waiting: How many containers this process keeps started and probed for the next
            workspaces or forks that it opens; 0 for none. A workspace that is a plain copy does
            not use them.
    """

    backend: ClassVar[str] = "podman"

    image: str = DEFAULT_IMAGE
    user_id: int = 1_000
    runtime: str | None = None
    n_waiting: int = 1

    def __post_init__(self) -> None:
        CommandConfig.__post_init__(self)  # slots=True makes another class, so super() fails
        if not 0 <= self.n_waiting <= _MOST_WAITING:
            raise UsageError(
                f"n_waiting is {self.n_waiting}", hint=f"Use a number from 0 to {_MOST_WAITING}."
            )
        if not self.user_id < 65_536:
            raise UsageError(
                f"user_id is {self.user_id}", hint="Use an id from 1 to 65535, such as 1000."
            )
