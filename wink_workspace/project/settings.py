"""The settings: every key of ``wink-workspace.toml``, its type, and what a project may do with it.

One object holds the settings of one source, such as the user's file, or of all sources together.
``None`` means that the source does not set the key. Each field names its ``Key``; documentation,
parsing, precedence and trust all follow from it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from wink_workspace import serde
from wink_workspace.errors import UsageError, WinkError
from wink_workspace.filesystem import parse_path

from .toml_file import KeyPath, key_text

if TYPE_CHECKING:
    from wink_workspace.sandbox import ImageRecipe, ServiceConfig


# ------------------------------------------------------------------------------------------ units


_SIZE_TEXT: Final = re.compile(r"([0-9]{1,15})\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_TIME_TEXT: Final = re.compile(
    r"(?:([0-9]{1,6})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?", re.ASCII
)


def parse_size(text: str) -> int:
    """The number of bytes in a size such as ``500M`` or ``20GiB``, in powers of 1,024.

    Raises:
        UsageError: If it is not a size, or zero.
    """
    found = _SIZE_TEXT.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise UsageError(f"{text!r} is not a size", hint="Write a size such as 500M or 20G.")
    return int(found[1]) * 1_024 ** " KMGT".index(found[2].upper() or " ")


def parse_seconds(text: str) -> float:
    """The number of seconds in a time such as ``90s``, ``30m``, ``1h30m`` or ``7d``.

    Raises:
        UsageError: If it is not a time, or zero.
    """
    found = _TIME_TEXT.fullmatch(text.strip())
    days, hours, minutes, seconds = (
        (int(part or 0) for part in found.groups()) if found else (0, 0, 0, 0)
    )
    total = days * 86_400 + hours * 3600 + minutes * 60 + seconds
    if not total:
        raise UsageError(f"{text!r} is not a time", hint="Write it as 90s, 30m or 1h30m.")
    return float(total)


# --------------------------------------------------------------------------------------- settings


EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "max")
_MOST: Final = 2**53
_MOST_ITEMS: Final = 500
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_T = TypeVar("_T")


class Trust(Enum):
    """What a project's own file may do with a key; the value describes it for people."""

    USER = "not allowed"
    CONFIRM = "after you confirmed it"
    LOWER = "a lower value at once, a higher one after you confirmed it"
    SUBSET = "what your own file lists at once, anything else after you confirmed it"
    ADD = "at once, in addition to yours"
    NONE = '`"none"` at once, any other after you confirmed it'


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A service that commands use with a secret that they never see; see ``SecretHost``.

    Attributes:
        host: The one ``host:port`` that gets the secret.
        variable: The environment variable of yours that has its value.
        header: The header that gets it.
        prefix: What stands before the value in the header, such as ``Bearer `` with its space.
        url_variable: The environment variable of commands that is set to the URL inside.
    """

    host: str
    variable: str
    header: str = "Authorization"
    prefix: str = ""
    url_variable: str = field(default="", metadata={"alias": "url-variable"})


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A foreign MCP server whose tools ``run`` offers to the model; see ``McpSection``.

    Attributes:
        command: Starts the server.
        url: Or, where it is reached by HTTP.
        env: The environment of the process, by variable.
        variables: The environment variables of yours that it gets, too; it gets no others.
        headers: For every HTTP request.
        token_variable: The environment variable of yours whose value is sent as a bearer token.
        tools: The wanted tools by their name at the server; all when omitted.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    token_variable: str = field(default="", metadata={"alias": "token-variable"})
    tools: tuple[str, ...] | None = None

    @property
    def variables_of_user(self) -> tuple[str, ...]:
        """The environment variables of the user whose values the server gets."""
        return (*self.variables, *((self.token_variable,) if self.token_variable else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServiceTable:
    """A table of ``services``; see ``ServiceConfig``."""

    command: str
    ready: str = ""
    writes: tuple[str, ...] = ()
    port: int | None = None
    cwd: str = "."


@dataclass(frozen=True, slots=True)
class MountSetting:
    """A host directory or file ``source`` that commands can read at ``target``; both absolute."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}:{self.target}"


# Kinds of values


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of values.

    Attributes:
        words: What to write, for people.
        type_: The type of the value in TOML.
        convert: Makes the setting of it; raises ``UsageError`` for what cannot be used.
        from_text: Makes the value in TOML from the text of an environment variable.
    """

    words: str
    type_: object
    convert: Callable[[Any], Any] = lambda value: value
    from_text: Callable[[str], object] = lambda text: text


def _checked_text(text: str) -> str:
    if not text.strip() or not text.replace("\n", "").isprintable():
        raise UsageError(f"{text!r} is empty or has control characters", hint="Write plain text.")
    return text


def _checked_texts(texts: tuple[str, ...]) -> tuple[str, ...]:
    if len(texts) > _MOST_ITEMS:
        raise UsageError(f"there are {len(texts):,} values", hint=f"Use at most {_MOST_ITEMS}.")
    return tuple(map(_checked_text, texts))


def _checked_path(text: str) -> str:
    return str(parse_path(_checked_text(text)))


def _positive(number: float) -> float:
    if not (math.isfinite(number) and 0 < number < _MOST):
        raise UsageError(f"{number:g} is not a positive number", hint="Use a positive number.")
    return number


def _checked_temperature(number: float) -> float:
    if not 0 <= number <= 2:
        raise UsageError(f"{number:g} is not a temperature", hint="Use a number from 0 to 2.")
    return number


def _checked_effort(text: str) -> str:
    if text not in EFFORTS:
        raise UsageError(f"{text!r} is not an effort", hint=f"Use one of {', '.join(EFFORTS)}.")
    return text


def _depth(number: int) -> int:
    from wink_workspace.workspace import ImportConfig

    return ImportConfig(git_depth=number).git_depth


def _days(number: float) -> float:
    from wink_workspace.ledger import Retention

    return Retention(max_age_days=_positive(number)).max_age_days


def _size(value: int | str) -> int:
    return cast("int", _positive(parse_size(value) if isinstance(value, str) else value))


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _number(text: str) -> float:
    try:
        return int(text) if text.strip().isdecimal() else float(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a number", hint="Use a number such as 2.") from error


def _checked_network(entries: tuple[str, ...]) -> tuple[str, ...]:
    from wink_workspace.sandbox import NetworkRules

    return NetworkRules(allowed=_checked_texts(entries)).allowed


def _checked_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    from wink_workspace.sandbox import NetworkRules

    return NetworkRules(private=_checked_texts(hosts)).private


def _mounts(texts: tuple[str, ...]) -> tuple[MountSetting, ...]:
    mounts: list[MountSetting] = []
    for text in _checked_texts(texts):
        source, _, target = text.rpartition(":")
        if not (source.startswith("/") and target.startswith("/")):
            raise UsageError(
                f"{text!r} is not a mount", hint="Write it as /host/path:/path/in/the/sandbox."
            )
        mounts.append(MountSetting(source, target))
    return tuple(mounts)


def _checked_recipe(packages: tuple[str, ...]) -> tuple[str, ...]:
    from wink_workspace.sandbox import ImageRecipe

    return ImageRecipe(packages=_checked_texts(packages)).packages


def _checked_agents(agents: tuple[str, ...]) -> tuple[str, ...]:
    from wink_workspace.sandbox import ImageRecipe

    return ImageRecipe(agents=_checked_texts(agents)).agents


def _patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    from wink_workspace.workspace import ImportConfig

    return ImportConfig(exclude=_checked_texts(patterns)).exclude


def _variables(table: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in _frozen(table).items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise UsageError(
                f"{name!a} cannot be an environment variable, or its value has a NUL",
                hint="Use letters, digits and '_' in names.",
            )
    return _frozen(table)


def _services(table: Mapping[str, _ServiceTable]) -> Mapping[str, ServiceConfig]:
    from wink_workspace.sandbox import ServiceConfig

    return _frozen(
        {
            name: ServiceConfig(
                name=name,
                command=each.command,
                ready=each.ready,
                writes=each.writes,
                port=each.port,
                cwd=each.cwd,
            )
            for name, each in table.items()
        }
    )


def _frozen(table: Mapping[str, _T]) -> Mapping[str, _T]:
    if len(table) > _MOST_ITEMS:
        raise UsageError(f"there are {len(table):,} entries", hint=f"Use at most {_MOST_ITEMS}.")
    return MappingProxyType(dict(table))


_TEXT: Final = _Kind("text", str, _checked_text)
_TEXTS: Final = _Kind("list of texts", tuple[str, ...], _checked_texts, _listed)
_PATH: Final = _Kind("path in the source", str, _checked_path)
_PATHS: Final = _Kind(
    "list of paths in the source",
    tuple[str, ...],
    lambda paths: tuple(map(_checked_path, _checked_texts(paths))),
    _listed,
)
_COUNT: Final = _Kind("whole number", int, _positive, _number)
_DEPTH: Final = _Kind("whole number; 0 for none", int, _depth, _number)
_NUMBER: Final = _Kind("number", float, _positive, _number)
_TEMPERATURE: Final = _Kind("number from 0 to 2", float, _checked_temperature, _number)
_EFFORT: Final = _Kind(", ".join(f'`"{each}"`' for each in EFFORTS), str, _checked_effort)
_DAYS: Final = _Kind("number", float, _days, _number)
_MONEY: Final = _Kind("number", float, lambda value: Decimal(str(_positive(value))), _number)
_SIZE: Final = _Kind('size: `"512M"`, `"2G"`', int | str, _size)
_TIME: Final = _Kind('time: `"90s"`, `"1h30m"`', str, parse_seconds)
_PACKAGES: Final = _Kind("list of packages", tuple[str, ...], _checked_recipe, _listed)
_AGENTS: Final = _Kind("list of agent programs", tuple[str, ...], _checked_agents, _listed)
_NETWORK: Final = _Kind("list of registries and hosts", tuple[str, ...], _checked_network, _listed)
_HOSTS: Final = _Kind("list of hosts", tuple[str, ...], _checked_hosts)
_MOUNTS: Final = _Kind("list of mounts", tuple[str, ...], _mounts)
_PATTERNS: Final = _Kind("list of patterns", tuple[str, ...], _patterns)
_VARIABLES: Final = _Kind("table of texts", dict[str, str], _variables)
_SERVICES: Final = _Kind("table of services", dict[str, _ServiceTable], _services)
_SECRETS: Final = _Kind("table of secrets", dict[str, Secret], _frozen)
_SERVERS: Final = _Kind("table of servers", dict[str, McpServer], _frozen)


# Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key.

    Attributes:
        path: Its parts: ``("limits", "memory")`` for ``limits.memory``.
        kind: Which values it takes, in words.
        trust: What a project's own file may do with it.
        about: What it sets, in one sentence.
        variable: The environment variable that sets it, too.
        is_file: Whether its values are files in the source, to which a confirmation is bound. Only
            a project's file can set such a key.
        limit: The field of a sandbox's configuration that has the default.
    """

    path: KeyPath
    value: _Kind
    trust: Trust
    about: str
    variable: str | None = None
    is_file: bool = False
    limit: str | None = None

    @property
    def kind(self) -> str:
        """Which values it takes."""
        return self.value.words

    def parse(self, value: object) -> object:
        """The setting for a value from TOML.

        Raises:
            UsageError: If it cannot be used; for one inside of a table, ``ParseError``.
        """
        return self.value.convert(serde.parse(self.value.type_, value, what=key_text(self.path)))

    def parse_text(self, text: str) -> object:
        """The setting for the text of the environment variable; raises ``UsageError``."""
        try:
            return self.parse(self.value.from_text(text))
        except WinkError as error:
            raise UsageError(f"{self.variable}: {error.message}", hint=error.hint) from error


def _key(
    name: str,
    value: _Kind,
    trust: Trust,
    about: str,
    *,
    variable: str | None = None,
    is_file: bool = False,
    limit: str | None = None,
) -> Any:  # Any: the field has the type that the class declares
    key = Key(
        path=tuple(name.split(".")),
        value=value,
        trust=trust,
        about=about,
        variable=variable,
        is_file=is_file,
        limit=limit,
    )
    return field(default=None, metadata={"key": key})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings, from one source or merged from all; ``docs/configuration.md`` describes each.

    ``temperature`` is a number without a unit.
    """

    sandbox: str | None = _key(
        "sandbox",
        _TEXT,
        Trust.NONE,
        "Where `run` and `mcp` let code run; `auto` by default.",
        variable="WINK_WORKSPACE_SANDBOX",
    )
    base: str | None = _key(
        "image.base",
        _TEXT,
        Trust.CONFIRM,
        "The image of the sandbox: one of ours, such as `python`, or one in the engine's store.",
        variable="WINK_WORKSPACE_IMAGE",
    )
    packages: tuple[str, ...] | None = _key(
        "image.packages", _PACKAGES, Trust.CONFIRM, "Debian packages to add to the image."
    )
    requirements: tuple[str, ...] | None = _key(
        "image.requirements",
        _PATHS,
        Trust.CONFIRM,
        "Files with Python requirements.",
        is_file=True,
    )
    lock: str | None = _key(
        "image.lock",
        _PATH,
        Trust.CONFIRM,
        "A lock file: requirements with hashes, `uv.lock`, `package-lock.json`, `pnpm-lock.yaml`"
        " or `yarn.lock`.",
        is_file=True,
    )
    containerfile: str | None = _key(
        "image.containerfile",
        _PATH,
        Trust.CONFIRM,
        "A Containerfile; its image is the base.",
        is_file=True,
    )
    set_up: tuple[str, ...] | None = _key(
        "image.set-up", _TEXTS, Trust.CONFIRM, "Shell commands that run last in the image's build."
    )
    agents: tuple[str, ...] | None = _key(
        "image.agents",
        _AGENTS,
        Trust.CONFIRM,
        "Agent programs for `run --agent`, from npm: `claude-code`, `codex`, `opencode`.",
    )
    network: tuple[str, ...] | None = _key(
        "network",
        _NETWORK,
        Trust.SUBSET,
        "What commands can reach: `pypi`, `npm`, `crates`, `go`, `maven`, `debian`, or `host:port`."
        " Empty: no network.",
        variable="WINK_WORKSPACE_NETWORK",
    )
    private: tuple[str, ...] | None = _key(
        "private", _HOSTS, Trust.USER, "Hosts of `network` that may have a private address."
    )
    secrets: Mapping[str, Secret] | None = _key(
        "secrets",
        _SECRETS,
        Trust.USER,
        "Headers for one host each, by name; the value never enters the sandbox.",
    )
    mounts: tuple[MountSetting, ...] | None = _key(
        "mounts",
        _MOUNTS,
        Trust.USER,
        "Host directories that commands can read: `/host/path:/target`.",
    )
    services: Mapping[str, ServiceConfig] | None = _key(
        "services", _SERVICES, Trust.CONFIRM, "Programs that run beside the calls, by name."
    )
    environment: Mapping[str, str] | None = _key(
        "environment", _VARIABLES, Trust.CONFIRM, "Environment variables of commands."
    )
    memory_bytes: int | None = _key(
        "limits.memory",
        _SIZE,
        Trust.LOWER,
        "Memory of all commands together.",
        variable="WINK_WORKSPACE_MEMORY",
        limit="memory_bytes",
    )
    cpus: float | None = _key(
        "limits.processors",
        _NUMBER,
        Trust.LOWER,
        "Processor time, as a number of processors.",
        variable="WINK_WORKSPACE_PROCESSORS",
        limit="cpus",
    )
    n_processes: int | None = _key(
        "limits.processes",
        _COUNT,
        Trust.LOWER,
        "Most processes and threads of a command.",
        variable="WINK_WORKSPACE_PROCESSES",
        limit="n_processes",
    )
    workspace_bytes: int | None = _key(
        "limits.disk",
        _SIZE,
        Trust.LOWER,
        "Largest size of the workspace.",
        variable="WINK_WORKSPACE_DISK",
        limit="workspace_bytes",
    )
    tmp_bytes: int | None = _key(
        "limits.tmp", _SIZE, Trust.LOWER, "Size of /tmp of commands.", limit="tmp_bytes"
    )
    shm_bytes: int | None = _key(
        "limits.shm", _SIZE, Trust.LOWER, "Size of /dev/shm of commands.", limit="shm_bytes"
    )
    timeout_s: float | None = _key(
        "limits.timeout",
        _TIME,
        Trust.LOWER,
        "Time limit of a command that sets none.",
        variable="WINK_WORKSPACE_TIMEOUT",
        limit="timeout_s",
    )
    max_tokens: int | None = _key(
        "budgets.tokens",
        _COUNT,
        Trust.LOWER,
        "Tokens after which a run ends; 5,000,000 by default.",
        variable="WINK_WORKSPACE_MAX_TOKENS",
    )
    max_turns: int | None = _key(
        "budgets.turns",
        _COUNT,
        Trust.LOWER,
        "Turns of the model after which a run ends; 200 by default.",
        variable="WINK_WORKSPACE_MAX_TURNS",
    )
    deadline_s: float | None = _key(
        "budgets.time",
        _TIME,
        Trust.LOWER,
        "Time after which a run ends; 2 hours by default.",
        variable="WINK_WORKSPACE_DEADLINE",
    )
    max_cost_usd: Decimal | None = _key(  # noqa: RUF009 - as for the other keys; it returns a field
        "budgets.money",
        _MONEY,
        Trust.LOWER,
        "US dollars, at list prices, after which a run ends; no limit by default.",
        variable="WINK_WORKSPACE_MAX_COST",
    )
    exclude: tuple[str, ...] | None = _key(
        "paths.exclude", _PATTERNS, Trust.ADD, "Paths that a new workspace does not copy."
    )
    derived: tuple[str, ...] | None = _key(
        "paths.derived", _PATTERNS, Trust.CONFIRM, "Paths that are copied and not recorded."
    )
    git_depth: int | None = _key(
        "git.depth",
        _DEPTH,
        Trust.LOWER,
        "How many generations of the source's commits git in a sandbox sees.",
        variable="WINK_WORKSPACE_GIT_DEPTH",
    )
    keep_days: float | None = _key(
        "retention.days",
        _DAYS,
        Trust.USER,
        "Maximum age of entries and discards, up to 36,500.",
        variable="WINK_WORKSPACE_KEEP_DAYS",
    )
    keep_bytes: int | None = _key(
        "retention.size",
        _SIZE,
        Trust.USER,
        "Disk space that the history of a workspace may use.",
        variable="WINK_WORKSPACE_KEEP_BYTES",
    )
    model: str | None = _key(
        "model",
        _TEXT,
        Trust.USER,
        "`PROVIDER:NAME` of the model of `run`.",
        variable="WINK_WORKSPACE_MODEL",
    )
    mcp_servers: Mapping[str, McpServer] | None = _key(
        "mcp_servers",
        _SERVERS,
        Trust.USER,
        "MCP servers whose tools `run` offers to the model, by name.",
    )
    effort: str | None = _key(
        "effort",
        _EFFORT,
        Trust.USER,
        "How much the model of `run` reasons; its own default otherwise.",
        variable="WINK_WORKSPACE_EFFORT",
    )
    temperature: float | None = _key(
        "temperature",
        _TEMPERATURE,
        Trust.USER,
        "Sampling temperature of the model of `run`; its own default otherwise.",
        variable="WINK_WORKSPACE_TEMPERATURE",
    )
    answer_tokens: int | None = _key(
        "answer",
        _COUNT,
        Trust.USER,
        "Most tokens of one answer of the model of `run`; its own default otherwise.",
        variable="WINK_WORKSPACE_ANSWER",
    )
    context_tokens: int | None = _key(
        "context",
        _COUNT,
        Trust.USER,
        "Tokens of the model's context window; by default what is known of the model.",
        variable="WINK_WORKSPACE_CONTEXT",
    )

    def over(self, other: Settings) -> Settings:
        """These settings, and those of *other* for keys that are not set here."""
        unset: dict[str, Any] = {  # Any: each field has its own type
            each.name: getattr(other, each.name)
            for each in fields(self)
            if getattr(self, each.name) is None
        }
        return replace(self, **unset)

    @property
    def of_model(self) -> dict[str, object]:
        """The settings of a model adapter, in the names of pydantic-ai's ``ModelSettings``."""
        given = {
            "thinking": False if self.effort == "none" else self.effort,
            "temperature": self.temperature,
            "max_tokens": self.answer_tokens,
        }
        return {name: value for name, value in given.items() if value is not None}

    @property
    def recipe(self) -> ImageRecipe | None:
        """The image to build or use; ``None`` if no key sets one.

        Raises:
            UsageError: If a value cannot be used.
        """
        given: dict[str, Any] = {  # Any: each has its own type
            "base": self.base,
            "packages": self.packages,
            "requirements": self.requirements,
            "lock": self.lock,
            "containerfile": self.containerfile,
            "set_up": self.set_up,
            "agents": self.agents,
        }
        given = {name: value for name, value in given.items() if value}
        if not given:
            return None
        from wink_workspace.sandbox import ImageRecipe

        return ImageRecipe(**given)


def _keys() -> Iterator[tuple[str, Key]]:
    for each in fields(Settings):
        yield each.name, each.metadata["key"]


KEYS: Final[Mapping[str, Key]] = MappingProxyType(dict(_keys()))
"""Each field of ``Settings`` with its key, in the order of the documentation."""

_BY_PATH: Final = {key.path: name for name, key in KEYS.items()}


def key_of(path: KeyPath) -> str | None:
    """The field of ``Settings`` that *path* sets; ``None`` if it is not a key."""
    return _BY_PATH.get(path)
