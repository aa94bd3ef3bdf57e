"""Settings: where they come from, which source comes first, and messages about mistakes."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from project_rig import ProjectRig

from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.errors import UsageError
from wink_workspace.ledger import Retention
from wink_workspace.project import (
    KEYS,
    MountSetting,
    Settings,
    Trust,
    network_rules,
    sandbox_config,
    workspace_config,
)
from wink_workspace.sandbox import ImageRecipe, ServiceConfig
from wink_workspace.sandbox.podman import PodmanConfig, ReadOnlyMount


@pytest.mark.behaviour(101)
def test_flags_come_before_variables_before_the_project_before_the_user(
    project: ProjectRig,
) -> None:
    project.user("[budgets]\ntokens = 400\nturns = 40\n[limits]\nprocesses = 40\nprocessors = 4")
    project.write("[budgets]\ntokens = 300\nturns = 30\n[limits]\nprocesses = 30")
    project.variables = {
        "WINK_WORKSPACE_MAX_TOKENS": "200",
        "WINK_WORKSPACE_MAX_TURNS": "20",
        "WINK_WORKSPACE_PROCESSES": "",
    }
    settings = project.load(Settings(max_tokens=100)).settings
    found = (settings.max_tokens, settings.max_turns, settings.n_processes, settings.cpus)
    assert found == (100, 20, 30, 4)


def test_keys_for_one_project_in_the_users_file_come_before_its_other_keys(
    project: ProjectRig,
) -> None:
    link = project.folder / "link"
    link.symlink_to(project.source)
    project.user(
        "mounts = ['/data:/mnt/data']\n[limits]\nprocesses = 40\nprocessors = 4\n"
        f"[projects.'{link}']\nmounts = ['/cache:/mnt/cache']\n"
        f"[projects.'{link}'.limits]\nprocesses = 50\n"
        "[projects.'/elsewhere'.limits]\nprocesses = 60\n"
    )
    settings = project.load().settings
    assert (settings.n_processes, settings.cpus) == (50, 4)
    assert settings.mounts == (MountSetting("/cache", "/mnt/cache"),)


def test_every_source_can_set_the_whole_of_what_it_may(project: ProjectRig) -> None:
    project.user(
        "private = ['mirror.test']\nmodel = 'anthropic:NAME'\ncontext = 64000\neffort = 'low'\ntemperature = 0.5\nanswer = 900\nmounts = ['/a:b:/mnt/a']\n"
        "[secrets.tracker]\nhost = 'api.test:443'\nvariable = 'TRACKER_TOKEN'\n"
        "prefix = 'Bearer '\nurl-variable = 'TRACKER_URL'\n[mcp_servers.docs]\nurl = 'http://a.test'\n"
        "[retention]\ndays = 3\nsize = '1G'\n"
    )
    project.file("r.txt", "click")
    project.file("Containerfile", "FROM scratch")
    project.write(
        "sandbox = 'podman'\nnetwork = ['pypi']\n[image]\nbase = 'build'\npackages = ['gcc']\n"
        "requirements = ['r.txt']\nlock = 'r.txt'\ncontainerfile = 'Containerfile'\n"
        "set-up = ['make']\nagents = ['codex']\n[services.web]\ncommand = 'serve'\nready = 'port 80'\n"
        "[environment]\nA = 'b'\n[limits]\nmemory = '2G'\nprocessors = 2\nprocesses = 500\n"
        "disk = '8G'\ntmp = '1G'\nshm = '256M'\ntimeout = '1h'\n[budgets]\ntokens = 5\nturns = 500\ntime = '1h'\nmoney = 2.5\n"
        "[paths]\nexclude = ['data']\nderived = ['out']\n[git]\ndepth = 60\n"
    )
    settings = project.confirm().settings
    assert [each.name for each in fields(settings) if getattr(settings, each.name) is None] == []
    assert settings.services == {"web": ServiceConfig(name="web", command="serve", ready="port 80")}
    assert settings.recipe == ImageRecipe(
        base="build",
        packages=("gcc",),
        requirements=("r.txt",),
        lock="r.txt",
        containerfile="Containerfile",
        set_up=("make",),
        agents=("codex",),
    )
    variables = {"TRACKER_TOKEN": "0123456789"}
    config = sandbox_config("podman", settings, variables, image="x")
    assert config == PodmanConfig(
        image="x",
        memory_bytes=2 * 2**30,
        cpus=2,
        n_processes=500,
        workspace_bytes=8 * 2**30,
        tmp_bytes=2**30,
        shm_bytes=256 * 2**20,
        timeout_s=3600,
        longest_timeout_s=3600,
        env={**PodmanConfig().env, "A": "b"},
        mounts=(ReadOnlyMount("/a:b", "/mnt/a"),),
        network=network_rules(settings, variables),
        services=tuple(settings.services.values()),
    )
    rules = network_rules(settings, variables)
    (secret,) = rules.secrets
    assert (rules.allowed, rules.private) == (("pypi",), ("mirror.test",))
    assert (secret.value, secret.variable) == ("Bearer 0123456789", "TRACKER_URL")
    workspace = workspace_config(settings)
    assert workspace.retention == Retention(max_age_days=3, budget_bytes=2**30)
    assert (workspace.imported.exclude, workspace.imported.derived) == (("data",), ("out",))
    assert workspace.imported.git_depth == 60


def test_services_of_the_settings_can_be_started_by_their_name(project: ProjectRig) -> None:
    project.write("[services.web]\ncommand = 'serve'\nready = 'port 8000'\nwrites = ['.cache']")
    assert sandbox_config("podman", project.load().settings, {}) == PodmanConfig()
    project.confirm()
    config = sandbox_config("podman", project.load().settings, {})
    assert isinstance(config, PodmanConfig)
    (service,) = config.services
    assert service == ServiceConfig(
        name="web", command="serve", ready="port 8000", writes=(".cache",)
    )


def test_settings_that_nothing_sets_leave_all_defaults() -> None:
    assert sandbox_config("podman", Settings(), {}) == PodmanConfig()
    assert workspace_config(Settings()).retention == Retention()
    assert Settings().recipe is None


def test_image_of_a_flag_or_variable_is_used_as_it_is(project: ProjectRig) -> None:
    project.write("[image]\nbase = 'build'\nset-up = ['make']")
    project.confirm()
    assert project.load(Settings(base="mine")).settings.recipe == ImageRecipe(base="mine")
    project.variables["WINK_WORKSPACE_IMAGE"] = "yours"
    loaded = project.load()
    assert loaded.settings.recipe == ImageRecipe(base="yours")
    assert loaded.denied == ()


def test_secret_whose_variable_is_not_set_is_an_error_that_names_it(project: ProjectRig) -> None:
    project.user("[secrets.api]\nhost = 'a.test:443'\nvariable = 'NOT_SET'")
    with pytest.raises(UsageError, match="NOT_SET of the secret api is not set"):
        network_rules(project.load().settings, {})


@pytest.mark.behaviour(101)
@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("memory = '2G'", "limits.memory"),
        ("[limits]\nmemroy = '2G'", "limits.memory"),
        ("[limits]\nprocs = 2", "limits.processes"),
        ("[image]\nset_up = ['x']", "image.set-up"),
        ("setup = ['x']", "image.set-up"),
        ("netwrok = []", "network"),
        ("[service.web]\ncommand = 'x'", "services"),
        ("[env]\nA = 'b'", "environment"),
        ("[budget]\ntokens = 5", "budgets"),
        ("max_tokens = 5", "budgets.tokens"),
        ("[path]\nexclude = []", "paths"),
    ],
)
def test_unknown_key_is_an_error_that_names_the_nearest_one(
    project: ProjectRig, text: str, nearest: str
) -> None:
    project.write(text)
    assert f"the nearest is {nearest}" in project.problem()


def test_every_mistake_is_listed_with_its_line(project: ProjectRig) -> None:
    project.user("# mine\n[limits]\nmemory = '2 gigabytes'\nprocesses = 'many'\n\n[image]\nx = 1\n")
    problem = project.problem()
    assert re.findall(r"line (\d+): ", problem) == ["3", "4", "7"]
    assert "config.toml" in problem
    assert "Write a size such as 500M or 20G" in problem


@pytest.mark.parametrize(
    "text",
    ["[image]\nlock = 'uv.lock'", "[image]\nrequirements = ['r.txt']", "projects = 1"],
)
def test_users_file_is_refused_with_the_line_of_what_it_cannot_set(
    project: ProjectRig, text: str
) -> None:
    project.user(text)
    assert re.search(r"config\.toml, line \d+: ", project.problem())


def test_variable_that_cannot_be_used_is_an_error_that_names_it(project: ProjectRig) -> None:
    for name, value in (("MEMORY", "much"), ("PROCESSORS", "nan"), ("NETWORK", "evil")):
        project.variables = {f"WINK_WORKSPACE_{name}": value}
        with pytest.raises(UsageError, match=f"WINK_WORKSPACE_{name}: "):
            project.own()
    project.variables = {"WINK_WORKSPACE_NETWORK": "pypi, npm"}
    assert project.own().network == ("pypi", "npm")


def test_source_that_no_longer_exists_has_the_settings_of_the_user(project: ProjectRig) -> None:
    project.user("[limits]\nprocesses = 40")
    project.source.rmdir()
    assert project.load().settings.n_processes == 40


def test_summary_is_one_line_and_empty_without_a_file(project: ProjectRig) -> None:
    assert project.load().summary() == ""
    project.write("[budgets]\ntokens = 5\nturns = 300\n[image]\nset-up = ['" + "x" * 500 + "']")
    summary = project.load().summary()
    assert "\n" not in summary
    assert summary.startswith("wink-workspace.toml: budgets.tokens applied. not confirmed")
    assert "line 3: budgets.turns = 300; line 5: image.set-up" in summary
    assert len(summary) < 400


@pytest.mark.behaviour(99)
def test_no_key_that_gives_access_to_the_host_can_be_set_by_a_project() -> None:
    only_user = {".".join(key.path) for key in KEYS.values() if key.trust is Trust.USER}
    assert {"mounts", "secrets", "private", "model", "mcp_servers"} <= only_user
    at_once = {".".join(key.path) for key in KEYS.values() if key.trust is Trust.ADD}
    assert at_once == {"paths.exclude"}


def test_every_variable_is_of_one_key(tmp_path: Path) -> None:
    variables = [key.variable for key in KEYS.values() if key.variable]
    assert len(set(variables)) == len(variables) > 10
    assert {key.path for key in KEYS.values()} == {key.path for key in set(KEYS.values())}


def test_value_of_a_secret_is_redacted_whatever_its_variable_is_called(
    project: ProjectRig,
) -> None:
    project.user("[secrets.api]\nhost = 'a.test:443'\nvariable = 'TRACKER_AUTH'")
    project.variables = {"TRACKER_AUTH": "hunter22-hunter22", "OTHER": "hunter22-plain"}
    context = CommandContext(project.environment, project.load().settings)
    assert context.redact("hunter22-hunter22 hunter22-plain") == "[TRACKER_AUTH] hunter22-plain"


@pytest.mark.behaviour(140)
def test_each_setting_that_applies_says_where_it_is_from(project: ProjectRig) -> None:
    project.user("network = ['npm', 'pypi']\nmodel = 'test:name'\n[environment]\nA = '1'\n")
    project.write("network = ['pypi']\n[environment]\nB = '2'\n[budgets]\nturns = 5\ntokens = 7\n")
    project.variables = {"WINK_WORKSPACE_MAX_TOKENS": "200"}
    assert project.load(Settings(sandbox="podman")).origins == {
        "sandbox": "an option",
        "network": "wink-workspace.toml, line 1",
        "environment": "config.toml",
        "max_tokens": "WINK_WORKSPACE_MAX_TOKENS",
        "max_turns": "wink-workspace.toml, line 5",
        "model": "config.toml",
    }
    (project.source / "wink-workspace.toml").unlink()
    assert project.load().origins["network"] == "config.toml"
