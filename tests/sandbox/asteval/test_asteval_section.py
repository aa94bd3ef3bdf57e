"""``AstevalSection``: Python as a tool; its effects are part of the call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import SmallWorkspace, executor_of, small_workspace

from wink_workspace import serde
from wink_workspace.adapters import ModelTurn, ScriptedAdapter
from wink_workspace.errors import UsageError
from wink_workspace.filesystem import Filesystem, MemoryFilesystem
from wink_workspace.prompt import Prompt, Tool, ToolExample
from wink_workspace.resources import Binding
from wink_workspace.runtime import ToolCall
from wink_workspace.sandbox.asteval import AstevalConfig, AstevalSandbox
from wink_workspace.sections import (
    AstevalParams,
    AstevalResult,
    AstevalSection,
    PlanningToolsSection,
    VfsToolsSection,
)
from wink_workspace.session import Session
from wink_workspace.workspace import Workspace

FILES = {"README.md": "", "src/app.py": "def main():\n    print('hello')\n    return 0\n"}
SECTION = AstevalSection()
(TOOL,) = SECTION.tools()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[AstevalSandbox]:
    made = AstevalSandbox(AstevalConfig(timeout_s=2.0))
    yield made
    made.close()


@pytest.fixture
def agent(sandbox: AstevalSandbox) -> Iterator[SmallWorkspace]:
    with small_workspace(
        sections=[AstevalSection(sandbox), VfsToolsSection()], files=FILES
    ) as opened:
        yield opened


def value_of(agent: SmallWorkspace, code: str, **more: object) -> AstevalResult:
    outcome = agent.call("evaluate_python", code=code, **more)
    assert outcome.result.success, outcome.text
    assert isinstance(outcome.result.value, AstevalResult)
    return outcome.result.value


@pytest.mark.parametrize("example", TOOL.examples, ids=lambda example: example.description)
def test_an_example_gives_the_stated_output(
    agent: SmallWorkspace, example: ToolExample[AstevalParams, AstevalResult]
) -> None:
    outcome = agent.call("evaluate_python", serde.dump_json(example.input))
    assert outcome.result.success, outcome.text
    assert outcome.result.value == example.output


def test_the_tool_describes_its_parameters_and_the_text_states_limits() -> None:
    assert isinstance(TOOL, Tool)
    assert all(parameter.description for parameter in TOOL.param_descriptions().values())
    text = SECTION.body(None)
    assert "5 seconds" in text
    assert "256 MiB" in text


def test_the_answer_has_value_output_and_used_files(
    agent: SmallWorkspace,
) -> None:
    code = "n = len(read_text('src/app.py'))\nprint('counted')\nwrite_text('n.txt', str(n))\nn"
    outcome = agent.call("evaluate_python", code=code, reads=["src"], writes=["n.txt"])
    assert outcome.text.splitlines() == [
        "value: 44", "printed: counted", "n = 44", "read src/app.py", "wrote n.txt",
    ]  # fmt: skip


def test_several_output_lines_are_shown_below_a_heading(agent: SmallWorkspace) -> None:
    assert agent.call("evaluate_python", code="print('a\\nb')").text == "printed:\na\nb"


def test_an_evaluation_without_value_and_output_is_reported_as_such(agent: SmallWorkspace) -> None:
    assert agent.call("evaluate_python", code="pass").text == "no value, and nothing was printed"


def test_a_result_reports_its_duration_and_isolation_layers(
    agent: SmallWorkspace,
) -> None:
    result = value_of(agent, "1 + 1")
    assert result.duration_s > 0
    assert {"seccomp", "limits", "closed-descriptors"} <= set(result.layers)
    assert not {"seccomp", "limits"} & set(result.missing_layers)


def test_effects_are_part_of_the_call_and_can_be_undone_by_the_journal(
    agent: SmallWorkspace,
) -> None:
    value_of(agent, "write_text('made.txt', 'x')", writes=["made.txt"])
    assert agent.filesystem.read_text("made.txt").text == "x"
    assert agent.records[-1].success


@pytest.mark.behaviour(22)
@pytest.mark.parametrize(
    "ending",
    ["1 / 0", "while True: pass", "[0] * 10**10", "while True: print('x' * 1000)", "open('no')"],
)
def test_an_evaluation_that_fails_after_three_writes_leaves_none(
    agent: SmallWorkspace, ending: str
) -> None:
    before = agent.state()
    writes = "".join(f"write_text('{name}', 'x')\n" for name in ("a", "b", "src/app.py"))
    code = f"read_text('src/app.py')\n{writes}{ending}"
    outcome = agent.call(
        "evaluate_python", code=code, reads=["src/app.py"], writes=["a", "b", "src/app.py"]
    )
    assert not outcome.result.success
    assert "restored" in outcome.text
    assert agent.state() == before


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("x = = 1", ["error: line 1:", "    x = = 1", "        ^", "SyntaxError: invalid syntax"]),
        ("y = 0\nz = 1 / y", ["error: line 2:", "    z = 1 / y", "        ^",
                              "ZeroDivisionError: division by zero"]),
    ],
)  # fmt: skip
def test_an_error_is_shown_with_its_line_and_a_caret(
    agent: SmallWorkspace, code: str, says: list[str]
) -> None:
    outcome = agent.call("evaluate_python", code=code)
    assert outcome.text.splitlines()[: len(says)] == says


@pytest.mark.parametrize(
    ("code", "word", "advice"),
    [
        ("while True: pass", "deadline: ", "Do less"),
        ("[0] * 10**10", "memory: ", "smaller parts"),
        ("while True: print('x' * 1000)", "output: ", "Print less"),
    ],
)
def test_each_excess_is_reported_with_output_and_hint(
    agent: SmallWorkspace, code: str, word: str, advice: str
) -> None:
    outcome = agent.call("evaluate_python", code=f"print('begun')\n{code}")
    assert outcome.text.startswith(word)
    assert "printed before the error:\nbegun" in outcome.text
    assert advice in outcome.text


@pytest.mark.behaviour(55)
def test_code_cannot_overwrite_an_unread_file(agent: SmallWorkspace) -> None:
    code = "write_text('src/app.py', '')"
    refused = agent.call("evaluate_python", code=code, writes=["src/app.py"])
    assert "not read yet" in refused.text
    assert agent.filesystem.read_text("src/app.py").lines


def test_code_that_reads_a_file_may_replace_it_in_the_same_call(agent: SmallWorkspace) -> None:
    code = "write_text('src/app.py', read_text('src/app.py').replace('hello', 'hi'))"
    value_of(agent, code, reads=["src/app.py"], writes=["src/app.py"])
    assert "print('hi')" in agent.filesystem.read_text("src/app.py").text


def test_declaring_a_read_without_reading_does_not_allow_overwriting(agent: SmallWorkspace) -> None:
    outcome = agent.call(
        "evaluate_python",
        code="write_text('src/app.py', '')",
        reads=["src/app.py"],
        writes=["src/app.py"],
    )
    assert "has not read it" in outcome.text
    assert not outcome.result.success


@pytest.mark.parametrize(
    ("code", "declared"),
    [
        ("write_text('a.txt', 'x')", {}),
        ("write_text('a.txt', 'x')", {"reads": ["."]}),
        ("write_text('a.txt', 'x')", {"writes": ["b.txt"]}),
        ("open('src/new.py', 'w')", {"writes": ["src"]}),
        ("read_text('src/app.py')", {}),
        ("read_text('src/app.py')", {"writes": ["src/app2.py"]}),
    ],
)
def test_an_undeclared_file_is_neither_read_nor_written(
    agent: SmallWorkspace, code: str, declared: dict[str, object]
) -> None:
    before = agent.state()
    outcome = agent.call("evaluate_python", code=code, **declared)
    assert "is not declared" in outcome.text
    assert agent.state() == before


def test_a_file_written_by_code_may_be_edited_without_reading_it(
    agent: SmallWorkspace,
) -> None:
    value_of(agent, "write_text('new.txt', 'one')", writes=["new.txt"])
    edited = agent.call("edit_file", file_path="new.txt", old_string="one", new_string="two")
    assert edited.result.success, edited.text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"code": "1", "reads": ["../secret"]}, "leads outside"),
        ({"code": "1", "writes": ["/etc/passwd"]}, "leads outside"),
        ({"code": "1", "globals": {"print": 1, "not a name": 2}}, "cannot be a name"),
        ({"code": "x" * 50_001}, "50,000"),
        ({"code": "'\ud800'"}, "valid Unicode"),
    ],
)
def test_mistakes_of_the_model_are_answered(
    agent: SmallWorkspace, arguments: dict[str, object], says: str
) -> None:
    outcome = agent.call("evaluate_python", arguments)
    assert not outcome.result.success
    assert says in outcome.text


def test_globals_are_passed_and_returned_as_json(agent: SmallWorkspace) -> None:
    given = {"rows": [{"a": 1, "b": None}, {"a": 2.5, "b": "x"}]}
    result = value_of(agent, "total = sum(r['a'] for r in rows)\n(total, rows)", globals=given)
    assert result.value_json == [3.5, given["rows"]]
    assert result.globals["total"] == "3.5"


@pytest.mark.behaviour(13)
def test_can_be_combined_with_other_sections_and_used_twice_with_prefixes(
    sandbox: AstevalSandbox,
) -> None:
    sections = [
        AstevalSection(sandbox), AstevalSection(sandbox, prefix="b_"), VfsToolsSection(),
        PlanningToolsSection(),
    ]  # fmt: skip
    with small_workspace(sections=sections) as agent:
        assert agent.call("b_evaluate_python", code="2 * 3").result.success
        assert agent.call("evaluate_python", code="2 * 3").result.success


def test_works_without_other_sections_on_files_of_its_own(sandbox: AstevalSandbox) -> None:
    files = MemoryFilesystem({"a": "x"})
    prompt = Prompt(ns="t", key="t", sections=[AstevalSection(sandbox, filesystem=files)])
    with prompt.resources:
        assert prompt.resources.get(Filesystem) is files


def test_a_sandbox_created_by_the_section_closes_with_the_prompts_resources() -> None:
    with small_workspace(sections=[AstevalSection()]) as agent:
        assert agent.call("evaluate_python", code="1 + 1").result.success
        made = agent.prompt.resources.get(AstevalSandbox)
    with pytest.raises(Exception, match="closed"):
        made.report  # noqa: B018 - the access is the test


def test_a_sandbox_together_with_a_configuration_is_refused(sandbox: AstevalSandbox) -> None:
    with pytest.raises(UsageError):
        AstevalSection(sandbox, config=AstevalConfig())


def test_without_a_filesystem_code_runs_and_files_are_refused(sandbox: AstevalSandbox) -> None:
    prompt = Prompt(ns="t", key="t", sections=[AstevalSection(sandbox, policies=())])
    session = Session()
    prompt.install(session)
    with prompt.resources:
        executor = executor_of(prompt, session)
        fine = executor.execute(ToolCall("evaluate_python", code="1"))
        refused = executor.execute(ToolCall("evaluate_python", code="open('a')", reads=["a"]))
    assert fine.result.success
    assert "no filesystem" in refused.text


@pytest.mark.behaviour(90)
def test_missing_isolation_refuses_the_call_with_the_reason() -> None:
    class NotIsolated(AstevalSandbox):
        def _check(self, layers: tuple[object, ...]) -> None:
            super()._check(())

    bound = Binding(AstevalSandbox, lambda _: NotIsolated())
    section = AstevalSection(resources={AstevalSandbox: bound})
    with small_workspace(sections=[section]) as agent:
        outcome = agent.call("evaluate_python", code="1")
    assert not outcome.result.success
    assert "seccomp" in outcome.text
    assert "are not affected" in outcome.text


def test_a_workspace_on_disk_keeps_writes_and_rolls_back_failures(
    tmp_path: Path, sandbox: AstevalSandbox
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "data.csv").write_text("a,1\nb,2\n")
    good = "import csv\nt = sum(int(r[1]) for r in csv.reader(open('data.csv')))\n"
    arguments = {"reads": ["data.csv"], "writes": ["total.txt", "gone.txt"]}
    turns = [
        ModelTurn(
            tool_calls=(
                ToolCall.of(
                    "evaluate_python",
                    {"code": good + "write_text('total.txt', str(t))", **arguments},
                    id="1",
                ),
                ToolCall.of(
                    "evaluate_python",
                    {"code": "write_text('gone.txt', 'x')\n1 / 0", **arguments},
                    id="2",
                ),
            )
        ),
        ModelTurn("done"),
    ]
    with Workspace.temporary(source) as workspace:
        prompt = Prompt(ns="t", key="t", sections=[AstevalSection(sandbox)])
        prompt.bind(resources={Filesystem: workspace.files})
        ScriptedAdapter(turns).evaluate(prompt, session=workspace.session)
        assert workspace.files.read_text("total.txt").text == "3"
        assert not workspace.files.exists("gone.txt")
        workspace.undo()
        assert not workspace.files.exists("total.txt")
