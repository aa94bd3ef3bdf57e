"""The configurations of a sandbox and of a workspace that follow from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wink_workspace.errors import UsageError
from wink_workspace.sandbox import SANDBOXES, NetworkRules, SandboxConfig, SecretHost
from wink_workspace.workspace import ImportConfig

from .settings import Settings

if TYPE_CHECKING:  # a server lists its tools before it loads the ledger
    from wink_workspace.mcp_client import McpSection
    from wink_workspace.workspace import WorkspaceConfig


def sandbox_config(
    name: str, settings: Settings, variables: Mapping[str, str], *, image: str | None = None
) -> SandboxConfig:
    """The configuration of the sandbox *name*.

    What this kind of sandbox does not have, such as a network, is left out.

    Args:
        name: A sandbox of the registry.
        settings: What applies.
        variables: The environment of the user, which has the values of secrets.
        image: The image; by default that of the sandbox.

    Raises:
        UsageError: If there is no such sandbox, a value cannot be used, or the variable of a secret
            is not set.
    """
    config = SANDBOXES.get(name).config()
    known = {field.name for field in fields(config)}
    wanted: dict[str, Any] = {  # Any: each field has its own type
        "image": image,
        "memory_bytes": settings.memory_bytes,
        "cpus": settings.cpus,
        "n_processes": settings.n_processes,
        "workspace_bytes": settings.workspace_bytes,
        "tmp_bytes": settings.tmp_bytes,
        "shm_bytes": settings.shm_bytes,
        "timeout_s": settings.timeout_s,
    }
    if settings.timeout_s is not None and "longest_timeout_s" in known:
        longest: float = getattr(config, "longest_timeout_s")  # noqa: B009 - not of every sandbox
        wanted["longest_timeout_s"] = max(longest, settings.timeout_s)
    if settings.environment and "env" in known:
        own: Mapping[str, str] = getattr(config, "env")  # noqa: B009 - as above
        wanted["env"] = {**own, **settings.environment}
    if settings.mounts and "mounts" in known:
        from wink_workspace.sandbox.podman import ReadOnlyMount

        wanted["mounts"] = tuple(
            ReadOnlyMount(each.source, each.target) for each in settings.mounts
        )
    if settings.services and "services" not in known and SANDBOXES.get(name).create is not None:
        raise UsageError(
            f"the sandbox {name} has no services, and the settings declare"
            f" {', '.join(settings.services)}",
            hint="Use the sandbox podman, or remove the services.",
        )
    if settings.services:
        wanted["services"] = tuple(settings.services.values())
    if rules := network_rules(settings, variables):
        wanted["network"] = rules
    given = {key: value for key, value in wanted.items() if key in known and value is not None}
    return replace(config, **given) if given else config


def network_rules(settings: Settings, variables: Mapping[str, str]) -> NetworkRules:
    """The network that commands may use; *variables* are those of the environment, by name.

    Raises:
        UsageError: If a secret's variable is not set, or a value cannot be used.
    """
    secrets: list[SecretHost] = []
    for name, each in (settings.secrets or {}).items():
        value = _value_of(each.variable, variables, f"the secret {name}")
        secrets.append(
            SecretHost(
                name=name,
                host=each.host,
                value=each.prefix + value,
                header=each.header,
                variable=each.url_variable,
            )
        )
    return NetworkRules(
        allowed=settings.network or (),
        private=settings.private or (),
        secrets=tuple(secrets),
    )


def mcp_sections(
    settings: Settings, variables: Mapping[str, str], opened: ExitStack
) -> list[McpSection]:
    """The sections of the MCP servers in the settings, which end with *opened*.

    Args:
        settings: What applies.
        variables: The environment of the user, by name.
        opened: Ends the servers.

    Raises:
        UsageError: If a value cannot be used, or a variable is not set.
        McpServerError: If a server does not start, or its tools are refused.
        MissingExtraError: If there are servers and the extra ``mcp`` is not installed.
    """
    sections: list[McpSection] = []
    for name, each in (settings.mcp_servers or {}).items():
        from wink_workspace.mcp_client import McpSection

        what = f"the MCP server {name}"
        values = {
            variable: _value_of(variable, variables, what) for variable in each.variables_of_user
        }
        env = {**each.env, **{variable: values[variable] for variable in each.variables}}
        headers = dict(each.headers)
        if each.token_variable:
            headers["Authorization"] = f"Bearer {values[each.token_variable]}"
        section = McpSection(
            name, command=each.command, url=each.url, env=env, headers=headers, tools=each.tools
        )
        sections.append(opened.enter_context(section))
    return sections


def _value_of(variable: str, variables: Mapping[str, str], what: str) -> str:
    value = variables.get(variable)
    if not value:
        raise UsageError(
            f"the variable {variable} of {what} is not set",
            hint=f"Set it, or remove {what} from your configuration.",
        )
    return value


def workspace_config(
    settings: Settings, git_links: Mapping[Path, tuple[Path, ...]] | None = None
) -> WorkspaceConfig:
    """The configuration of a workspace: what a new one copies, and how much history is kept.

    Args:
        settings: What applies.
        git_links: See ``ImportConfig``.
    """
    from wink_workspace.ledger import Retention
    from wink_workspace.workspace import WorkspaceConfig

    default = Retention()
    depth = ImportConfig().git_depth if settings.git_depth is None else settings.git_depth
    return WorkspaceConfig(
        retention=Retention(
            max_age_days=settings.keep_days or default.max_age_days,
            budget_bytes=settings.keep_bytes or default.budget_bytes,
        ),
        imported=ImportConfig(
            exclude=settings.exclude or (),
            derived=settings.derived or (),
            git_depth=depth,
            git_links=git_links or {},
        ),
    )
