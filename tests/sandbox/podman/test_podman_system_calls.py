"""The seccomp list: what is removed from the engine's list, and that the rest stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wink_workspace.sandbox.commands import system_calls
from wink_workspace.sandbox.commands.system_calls import narrowed, narrowed_list

ENGINES: dict[str, Any] = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]}],
    "syscalls": [
        {"names": ["read", "mount", "clone", "clone3"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": []},
    ],
}


def rules(names: str) -> list[dict[str, Any]]:
    return [rule for rule in narrowed_list(ENGINES)["syscalls"] if names in rule["names"]]


def test_harmless_system_calls_stay_allowed() -> None:
    assert rules("read") == [{"names": ["read"], "action": "SCMP_ACT_ALLOW"}]


@pytest.mark.parametrize("name", ["mount", "unshare", "bpf", "keyctl", "io_uring_setup"])
def test_dangerous_system_calls_are_refused(name: str) -> None:
    (rule,) = rules(name)
    assert rule["action"] == "SCMP_ACT_ERRNO"


def test_clone_is_limited_to_flags_without_namespaces_and_clone3_is_removed() -> None:
    assert rules("clone3") == []
    assert {rule["args"][0]["index"] for rule in rules("clone")} == {0, 1}
    assert all(rule["args"][0]["op"] == "SCMP_CMP_MASKED_EQ" for rule in rules("clone"))


def test_only_socket_families_confined_by_a_network_namespace_are_allowed() -> None:
    families = {rule["args"][0]["value"] for rule in rules("socket")}
    assert families == {1, 2, 10, 16}
    assert all(rule["args"] for rule in rules("socket")), (
        "no socket family is allowed without a condition"
    )


def test_system_calls_of_32_bit_programs_are_not_allowed() -> None:
    assert narrowed_list(ENGINES)["archMap"] == [
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []}
    ]


def test_the_narrowed_list_is_written_to_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "seccomp.json"
    installed.write_text(json.dumps(ENGINES))
    # The real files are in /usr and /etc.
    monkeypatch.setattr(system_calls, "_INSTALLED", (tmp_path / "none", installed))
    with narrowed() as file:
        assert file is not None
        assert json.loads(file.read_bytes()) == narrowed_list(ENGINES)
    assert not file.exists()


def test_without_an_installed_list_the_engine_uses_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The real files are in /usr and /etc.
    monkeypatch.setattr(system_calls, "_INSTALLED", (tmp_path / "none",))
    with narrowed() as file:
        assert file is None
