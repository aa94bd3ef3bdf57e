"""Configuration of a Bubblewrap sandbox. Every field has a default, and its name has the unit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar, Final

from wink_workspace.errors import UsageError
from wink_workspace.sandbox.commands.command_config import CommandConfig

_TOOLS: Final = """
    /opt /nix /snap /home/linuxbrew/.linuxbrew ~/.local/bin ~/.local/lib ~/.local/pipx/venvs
    ~/.local/share/pipx/venvs ~/.pyenv ~/.local/share/uv/python ~/.local/share/uv/tools
    ~/.virtualenvs ~/.local/share/virtualenvs ~/.cache/pypoetry/virtualenvs
    ~/.local/share/hatch/env ~/.rye/py ~/.rye/shims ~/miniconda3 ~/anaconda3 ~/miniforge3
    ~/mambaforge ~/micromamba ~/.conda/envs ~/.pixi/bin ~/.pixi/envs ~/.nvm ~/.volta ~/.fnm
    ~/.local/share/fnm ~/.local/share/pnpm ~/.local/share/mise ~/.asdf ~/.npm-global/bin
    ~/.npm-global/lib ~/.yarn/bin ~/.bun/bin ~/.deno/bin ~/.cache/ms-playwright ~/.cache/puppeteer
    ~/.rustup ~/.cargo/bin ~/.cargo/registry ~/.cargo/git ~/go/bin ~/go/pkg ~/.local/go
    ~/.sdkman/candidates ~/.jenv ~/.m2/repository ~/.gradle/caches ~/.gradle/wrapper ~/Android/Sdk
    ~/.nuget/packages ~/.rbenv ~/.rvm ~/.gem/ruby ~/.local/share/gem/ruby ~/.composer/vendor
    ~/.config/composer/vendor ~/.ghcup ~/.cabal/bin ~/.cabal/packages ~/.cabal/store
    ~/.stack/programs ~/.stack/snapshots ~/.opam ~/.elan ~/.juliaup/bin ~/.julia/juliaup
    ~/.julia/packages ~/.julia/artifacts ~/.pub-cache/hosted ~/.mix
"""
TOOLS: Final = tuple(_TOOLS.split())
"""Where programs and their caches usually are; no file with credentials is below."""

_GIB: Final = 1_073_741_824


@dataclass(frozen=True, slots=True, kw_only=True)
class BubblewrapConfig(CommandConfig):
    """What commands see of this machine, and their limits.

    It has the attributes of ``CommandConfig``, some with other defaults, and:

    Attributes:
        tools: Directories with programs and caches that commands can read, if they exist: absolute
            paths, or paths below the user's home, which begin with ``~/``.
    """

    backend: ClassVar[str] = "bubblewrap"

    cpus: float = 4.0
    memory_bytes: int = 4 * _GIB
    n_processes: int = 1_024
    file_bytes: int = 4 * _GIB
    tmp_bytes: int = _GIB
    shm_bytes: int = _GIB // 4
    tools: tuple[str, ...] = TOOLS

    def __post_init__(self) -> None:
        CommandConfig.__post_init__(self)  # slots=True makes another class, so super() fails
        for path in self.tools:
            parts = PurePosixPath(path).parts
            is_system = parts[:1] == ("/",) and (len(parts) < 2 or parts[1] in _RESERVED)
            if (
                "\0" in path
                or len(parts) < 2
                or parts[0] not in ("/", "~")
                or ".." in parts
                or is_system
            ):
                raise UsageError(
                    f"{path!r} cannot be a directory of tools",
                    hint="Use the absolute path of a directory with programs, or one that begins"
                    " with ~/, without '..'.",
                )


_RESERVED: Final = ("dev", "etc", "proc", "run", "sys", "tmp", "workspace")
