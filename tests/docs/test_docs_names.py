"""All that the documentation names exists: paths, links, commands, options, variables."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from docs_commands import invocations, unknown_commands, unknown_targets_and_extras
from docs_links import broken_links, missing_paths
from docs_names import FOREIGN, cited, find, unknown_names, words
from docs_pages import PAGES, ROOT, Page, sample

from wink_workspace.sandbox.inside import network_probes, probes, workspace_probes

pytestmark = pytest.mark.xdist_group("frameworks")  # what they look up is collected once

CITED = re.compile(r"\b([\w/.-]+\.py)::(\w+(?:\.\w+)*)")


def wrong_citations(page: Page) -> list[str]:
    found = CITED.findall(page.text)
    return [f"{page.name}: {file}::{name}" for file, name in found if not cited(file, name)]


def unknown_variables(page: Page) -> list[str]:
    found = re.findall(r"\bWINK_[A-Z_]*[A-Z]\b", page.text)
    return [f"{page.name}: no code reads {name}" for name in found if name not in words()]


CHECKS = (
    broken_links,
    missing_paths,
    unknown_commands,
    unknown_names,
    unknown_targets_and_extras,
    unknown_variables,
    wrong_citations,
)


@pytest.mark.parametrize("check", CHECKS)
def test_every_page_passes(check: Callable[[Page], list[str]]) -> None:
    assert [problem for page in PAGES for problem in check(page)] == []


def test_pages_include_all_documentation_and_the_checks_find_names_in_them() -> None:
    names = {page.name for page in PAGES}
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "images/README.md"} <= names
    for folder in ("docs", "docs/design", "examples"):
        here = {str(path.relative_to(ROOT)) for path in (ROOT / folder).iterdir() if path.is_file()}
        assert here <= names, folder
    assert sum(len(page.spans) for page in PAGES) > 500
    assert sum(len(page.links) for page in PAGES) > 20
    assert sum(len(list(invocations(page))) for page in PAGES) > 30
    assert sum(len(CITED.findall(page.text)) for page in PAGES) > 20


def test_allowed_foreign_names_are_still_in_use() -> None:
    text = "\n".join(re.sub(r"\s+", " ", page.text) for page in PAGES)
    assert [name for name in sorted(FOREIGN) if name not in text] == []


@pytest.mark.parametrize(
    ("text", "check", "problem"),
    [
        ("[a](docs/none.md)", broken_links, "no file docs/none.md"),
        ("[a](#none)", broken_links, "no heading #none"),
        ("[a](README.md#none)", broken_links, "no heading README.md#none"),
        ("[a]: docs/none.md", broken_links, "no file docs/none.md"),
        ("`tests/none`", missing_paths, "there is no tests/none"),
        ("`ledger/none.py`", missing_paths, "there is no ledger/none.py"),
        ("`wink-workspace none 3f1`", unknown_commands, "no command 'none'"),
        ("`wink-workspace log 3f1 --none`", unknown_commands, "log has no option --none"),
        ("`wink-workspace image build --none`", unknown_commands, "has no option --none"),
        ("`log --none`", unknown_commands, "log has no option --none"),
        ("`--none`", unknown_commands, "no command has the option --none"),
        ("```sh\nA=1 wink-workspace run \\\n  --none  # why\n```", unknown_commands, "--none"),
        ("`make none`", unknown_targets_and_extras, "no target none"),
        ("```sh\npip install '.[mcp,none]'\n```", unknown_targets_and_extras, "no extra none"),
        ("`WINK_NONE=1`", unknown_variables, "no code reads WINK_NONE"),
        ("wink_workspace/errors.py::None_", wrong_citations, "errors.py::None_"),
        ("tests/docs/test_docs_names.py::test_none", wrong_citations, "::test_none"),
        ("`wink_workspace/session/session.py::Session.none`", wrong_citations, "Session.none"),
        ("`wink_workspace.none`", unknown_names, "there is no wink_workspace.none"),
        ("`NoneSuch`", unknown_names, "NoneSuch is not public"),
        ("`Workspace.none`", unknown_names, "no attribute 'none'"),
        ("`workspace.info.none`", unknown_names, "attribute 'none'"),
        ("`session.none()`", unknown_names, "no attribute 'none'"),
        ("`Workspace.open(id, none=…)`", unknown_names, "takes no argument 'none'"),
        ("`none_such(1)`", unknown_names, "nothing public is called 'none_such'"),
        ("`none_such=`", unknown_names, "no public function takes this argument"),
        ('`none_such="x"`', unknown_names, "no public function takes 'none_such'"),
        ("`none_such`", unknown_names, "not a name of the package"),
    ],
)
def test_a_page_with_a_wrong_name_is_reported(
    text: str, check: Callable[[Page], list[str]], problem: str
) -> None:
    assert any(problem in found for found in check(sample(text)))


def test_a_name_is_found_wherever_it_is_defined() -> None:
    assert find("wink_workspace.errors.WinkError.code")
    assert cited("tests/docs/test_docs_names.py", "CHECKS")
    assert cited("wink_workspace/session/session.py", "Session.snapshot")


def test_architecture_page_cites_names_in_at_least_five_files() -> None:
    (page,) = (page for page in PAGES if page.name == "docs/architecture.md")
    assert len({file for file, _ in CITED.findall(page.text)}) >= 5


def test_security_page_has_the_right_number_of_container_probes() -> None:
    n_inside = len(probes.PROBES)
    n_mount = len(workspace_probes.PROBES)
    (page,) = (page for page in PAGES if page.name == "docs/security.md")
    text = " ".join(page.text.split())
    n_all = n_inside + n_mount + 1
    assert f"{n_all} probes are made before the first command" in text, "and one by the host"
    assert f"{n_inside + 1} of the container, before it has the workspace, and {n_mount} of" in text
    n_network = len(network_probes.PROBES)
    assert f"{n_network + 1} more probes are made of a network list" in text, "and one by the host"
