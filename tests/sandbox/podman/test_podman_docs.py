"""Pages of the documentation that need containers work as written."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell_pages import blocks_of, run_shell, shell_of

pytestmark = [pytest.mark.xdist_group("podman"), pytest.mark.usefixtures("python_image")]

PAGE = "docs/howto/untrusted-code.md"


def test_the_page_on_untrusted_code_works_in_a_container(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = shell_of(PAGE, "## In a container").replace(
        "wink-workspace image build", "# it is there:"
    )
    printed = run_shell(shell_of(PAGE, "## In isolated Python") + commands, home, capsys)
    assert "sorted.csv" in printed
    assert sorted(each.name for each in (home / "data").iterdir()) == ["sales.csv"]


@pytest.mark.usefixtures("home")
def test_the_program_on_that_page_prints_what_the_command_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (program,) = blocks_of(PAGE, "python")
    exec(compile(program, PAGE, "exec", dont_inherit=True), {})
    assert capsys.readouterr().out == "south,32\nnorth,10\n\n"


def test_the_script_of_the_page_on_agent_programs_works_and_is_undone(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = shell_of("docs/howto/agent-programs.md", "# Run an agent program")
    printed = run_shell(commands, home, capsys)
    assert "The typo is fixed." in printed
    assert '+print("hello")' in printed
    assert (home / "typo" / "app.py").read_text() == 'print("helo")\n'
