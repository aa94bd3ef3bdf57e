"""``export`` and ``import`` from the command line."""

from __future__ import annotations

import json

from cli_user import CliUser


def test_export_and_import_carry_a_workspace_to_another_state_directory(user: CliUser) -> None:
    name = user("new", user.source).split(":")[0]
    user("fork", name, "try-2")
    file = user.tmp_path / "w.bundle"
    assert user("export", name, file).startswith(f"{file}: 1 commit, ")
    found = json.loads(user("export", name, file, "--json"))
    assert found["file_bytes"] == file.stat().st_size
    assert found["n_commits"] == 1
    shown = user("import", file, "--source", user.source)
    assert shown.endswith(": 1 entry, 1 fork\n")
    info = json.loads(user("import", file, "--json", "--mode", "copy"))
    assert info["mode"] == "copy"
    assert user("log", info["id"]) == user("log", name)


def test_export_and_import_name_what_is_wrong(user: CliUser) -> None:
    name = user("new", user.source).split(":")[0]
    file = user.tmp_path / "w.bundle"
    user("export", f"{name}/none", file, fails=1)
    assert "there is no fork 'none'" in user.err
    assert not file.exists()
    file.write_bytes(b"no bundle")
    user("import", file, fails=1)
    assert "is not a bundle of a workspace" in user.err
    user("export", name, file)
    user("import", file, "--max-size", "10", fails=1)
    assert "over the limit" in user.err
