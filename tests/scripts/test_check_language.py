"""``scripts/check_language`` finds retired terms, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
import script_files

ROOT = Path(__file__).parents[2]
TERMS = """# Language

## Retired terms

| Retired | Use instead | Where | Except |
|---|---|---|---|
| `rampart`, `ramparts` | isolation | both | `rampart clock` |
| `castle guard` | check | both | |
| `=Row` | branch | identifiers | |
| `is nix` | is not | prose | `there is nix` |
| `row` | branch | both in `src/history.py` | |
"""


@pytest.fixture(scope="session", name="script")
def _script() -> ModuleType:
    return script_files.script("check_language")


def found_in(
    script: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    name: str = "src/code.py",
) -> list[str]:
    """What the script reports about one file, as ``line: finding``."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "retired_terms.md").write_text(TERMS, encoding="utf-8")
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    status = script.main(["--root", str(tmp_path)])
    found = [line.split(":", 1) for line in capsys.readouterr().out.splitlines()]
    assert status == bool(found)
    assert all(at == name for at, _ in found)
    return [re.sub(r": use .*", "", rest) for _, rest in found]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("_RAMPART_S = 1\n", "1: name '_RAMPART_S'"),
        ("class RampartReport: ...\n", "1: name 'RampartReport'"),
        ("\ndef f(old_rampart): ...\n", "2: name 'old_rampart'"),
        ("def f(self):\n    self.ramparts = 1\n", "2: name 'ramparts'"),
        ("import os as rampart\n", "1: name 'rampart'"),
        ("try: ...\nexcept OSError as rampart: ...\n", "2: name 'rampart'"),
        ("match f():\n    case [rampart, *_]: ...\n", "2: name 'rampart'"),
        ("CASTLE_GUARD = 1\n", "1: name 'CASTLE_GUARD'"),
        ("class _Row: ...\n", "1: name '_Row'"),
        ('"""A rampart."""\n', '1: "rampart"'),
        ('"""A\n\nrampart\'s height."""\n', '3: "rampart"'),
        ("é = 'é'; x = 1  # a Rampart\n", '1: "Rampart"'),
        ("# a castle\n# guard\n", '1: "castle guard"'),
        ("raise ValueError('behind the rampart')\n", '1: "rampart"'),
        ("x = f'{rampart} behind the rampart'\n", '1: "rampart"'),
        ("x = f('it is '\n      'nix here')\n", '1: "is nix"'),
        ("x = 1  # see ``RampartReport``\n", "1: name 'RampartReport'"),
        ("def test_wall_is_nix(): ...\n", "1: name 'test_wall_is_nix'"),
    ],
)
def test_use_in_python_is_reported_with_its_line(
    script: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    found: str,
) -> None:
    assert found_in(script, tmp_path, capsys, text) == [found]


@pytest.mark.parametrize(
    "text",
    [
        "x = os.rampart(castle=1)\n",  # names of others
        "trampart = ramparting = rows = row = 1\n",  # other words, and terms of other files
        "x = {'rampart': 1}\n",  # one word is a key, not prose
        "x = f'the {rampart} of {old.rampart!r}'\n",
        "# the rampart clock, where there is nix\n",
        "# ``this is nix``\n",
        "# a castle\nx = 1  # guard\n",
        "is_nix = 1\n",
        '"""A row and a rows."""\n',
    ],
)
def test_what_is_not_a_retired_term_is_not_reported(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert found_in(script, tmp_path, capsys, text) == []


def test_term_of_certain_files_is_reported_there(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '"""A row."""\n\nrow_name = 1\n'
    found = found_in(script, tmp_path, capsys, text, "src/history.py")
    assert found == ['1: "row"', "3: name 'row_name'"]


def test_markdown_is_searched_outside_of_code_and_for_names_in_it(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "# A rampart\n[x](rampart.md) `RampartReport`\n```sh\nrampart\n```\n"
    text += "```python\nrampart = 'rampart'  # of ramparts\n```\nramparts\n"
    assert found_in(script, tmp_path, capsys, text, "src/page.md") == [
        '1: "rampart"',
        "2: name 'RampartReport'",
        '7: "ramparts"',
        "7: name 'rampart'",
        '9: "ramparts"',
    ]


def test_strings_of_tests_are_data_and_their_docstrings_are_prose(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '"""A rampart."""\n\nx = "behind the rampart"\n'
    assert found_in(script, tmp_path, capsys, text, "tests/test_x.py") == ['1: "rampart"']


def test_names_of_files_are_searched(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = found_in(script, tmp_path, capsys, "", "src/rampart.py")
    assert found == ["1: file name 'rampart.py'"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("rampart = 1  # language: allow, the name that libx has\n", []),
        ("# language: allow, the name that libx has\nrampart = 1\n", []),
        ("x = '''see the\nrampart\n'''  # language: allow, quotes a book\n", []),
        ("rampart = 1  # language: allow\n", ["1: allowance without a reason"]),
        ("rampart = 1  # language: allow, it\n", ["1: allowance without a reason"]),
        ("x = 1  # language: allow, the name that libx has\n", ["1: allowance without a use"]),
        ("# language: allow, the name of libx\nx = 1\nrampart = 1\n", None),
    ],
)
def test_allowance_permits_its_line_and_needs_a_reason_and_a_use(
    script: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    found: list[str] | None,
) -> None:
    expected = ["3: name 'rampart'", "1: allowance without a use"] if found is None else found
    reported = [
        re.sub(r": (give one|delete it)", "", each)
        for each in found_in(script, tmp_path, capsys, text)
    ]
    assert reported == expected


def test_count_prints_a_number_for_each_term_and_succeeds(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found_in(script, tmp_path, capsys, "rampart = 1  # ramparts, a rampart\n")
    assert script.main(["--root", str(tmp_path), "--count", str(tmp_path / "src")]) == 0
    assert capsys.readouterr().out.split() == ["2", "rampart", "1", "ramparts", "3", "in", "all"]
    assert script.main(["--root", str(tmp_path), "--count", str(tmp_path / "docs")]) == 0
    assert capsys.readouterr().out.split() == ["0", "in", "all"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("| `a` | b | both |", "4 cells"),
        ("| `a` | b | everywhere | |", "both, identifiers or prose"),
        ("| `=a` | b | both | |", "exact identifier"),
    ],
)
def test_invalid_row_is_an_error(
    script: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    row: str,
    message: str,
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "retired_terms.md").write_text(TERMS + row + "\n", encoding="utf-8")
    assert script.main(["--root", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_table_of_retired_terms_can_be_read(script: ModuleType) -> None:
    terms = script.read_terms((ROOT / "scripts" / "retired_terms.md").read_text(encoding="utf-8"))
    texts = [(term.text, term.places) for term in terms]
    assert len(texts) > 100, "the table has lost rows"
    assert len(set(texts)) == len(texts)
    for term in terms:
        assert term.replacement.removeprefix("use ")
        assert all((ROOT / place).exists() for place in term.places), term
