"""Overrides: when they apply, warnings if they do not, and how they are stored."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from wink_workspace.errors import OverridesError
from wink_workspace.prompt import (
    LocalPromptOverridesStore,
    MarkdownSection,
    Prompt,
    PromptOverrides,
    Section,
    SectionOverride,
    Tool,
    ToolContext,
    ToolExample,
    ToolOverride,
    ToolResult,
)


@dataclass(frozen=True)
class Params:
    name: str = "Ada"


@dataclass(frozen=True)
class Lookup:
    entity: str = field(metadata={"description": "Global identifier"})
    depth: int = field(default=2, metadata={"description": "How far to follow"})


def handle(params: Lookup, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None)


LOOK = ToolExample(description="Look up Ada", input=Lookup("ada"), output=None)


def lookup(**options: Any) -> Tool[Lookup, None]:
    return Tool[Lookup, None](
        **{"name": "lookup", "description": "Looks up.", "handler": handle, **options}
    )


def guide(**options: Any) -> MarkdownSection[Params]:
    return MarkdownSection[Params](
        **{"title": "Guide", "template": "Hello ${name}.", "tools": [lookup()], **options}
    )


def prompt(section: Section[Any] | None = None, store: Any = None, tag: str = "latest") -> Prompt:
    return Prompt(
        ns="examples/tooling",
        key="p",
        name="p",
        sections=[Section("Top", children=[section or guide()])],
        overrides_store=store,
        overrides_tag=tag,
    )


def overrides(of: Prompt, **changes: Any) -> PromptOverrides:
    """New texts for the guide and its tool, with the present hashes of *of*."""
    section, tool = of.descriptor.section("top.guide"), of.descriptor.tool("lookup")
    assert section is not None
    assert tool is not None
    made = PromptOverrides(
        ns=of.ns,
        key=of.key,
        sections={
            "top.guide": SectionOverride(
                expected_hash=section.content_hash, body="\n  Welcome, ${name}!\n"
            )
        },
        tools={
            "lookup": ToolOverride(
                expected_hash=tool.content_hash,
                description="Finds entities.",
                param_descriptions={"depth": "Levels of references"},
            )
        },
    )
    return replace(made, **changes)


@pytest.fixture
def store(tmp_path: Path) -> LocalPromptOverridesStore:
    return LocalPromptOverridesStore(tmp_path / "overrides")


def test_stored_overrides_replace_body_and_descriptions(store: LocalPromptOverridesStore) -> None:
    store.set(prompt().descriptor, overrides(prompt()))
    rendered = prompt(store=store).render()

    assert rendered.text == "## 1. Top\n\n### 1.1 Guide\n\nWelcome, Ada!"
    assert rendered.tools[0].description == "Finds entities."
    described = rendered.tool_param_descriptions["lookup"]
    assert described["depth"].description == "Levels of references"
    assert described["entity"].description == "Global identifier"


@pytest.mark.behaviour(10)
def test_overridden_parameter_description_reaches_the_schema_with_the_default_kept(
    store: LocalPromptOverridesStore,
) -> None:
    store.set(prompt().descriptor, overrides(prompt()))
    own = prompt().render().tool_schema("lookup")["properties"]
    new = prompt(store=store).render().tool_schema("lookup")["properties"]

    assert new["entity"] == own["entity"]
    assert new["depth"] == {
        **own["depth"],
        "description": own["depth"]["description"].replace(
            "How far to follow", "Levels of references"
        ),
    }
    assert "2" in new["depth"]["description"]


@pytest.mark.behaviour(10)
def test_overridden_type_and_default_hints_reach_the_description_and_the_schema(
    store: LocalPromptOverridesStore,
) -> None:
    made = overrides(prompt())
    hints = replace(
        made.tools["lookup"],
        param_descriptions={},
        param_types={"entity": "a UUID"},
        param_defaults={"depth": "2, enough for most"},
    )
    store.set(prompt().descriptor, replace(made, tools={"lookup": hints}))
    own: Any = prompt().render().tool_schema("lookup")["properties"]
    rendered = prompt(store=store).render()
    described = rendered.tool_param_descriptions["lookup"]
    new: Any = rendered.tool_schema("lookup")["properties"]

    assert (described["entity"].type, described["entity"].default) == ("a UUID", None)
    assert (described["depth"].type, described["depth"].default) == (
        "integer",
        "2, enough for most",
    )
    assert new["entity"] == {
        **own["entity"],
        "description": "Global identifier. Type: a UUID.",
    }
    assert new["depth"]["description"] == own["depth"]["description"].replace(
        "Default: 2", "Default: 2, enough for most"
    )
    assert rendered.tools[0].parse({"entity": "x"}) == Lookup("x", 2)


def test_default_hint_of_a_required_parameter_is_refused(
    store: LocalPromptOverridesStore,
) -> None:
    made = overrides(prompt())
    hints = replace(made.tools["lookup"], param_defaults={"entity": "none"})
    with pytest.raises(OverridesError, match="entity is required, so it has no default"):
        store.set(prompt().descriptor, replace(made, tools={"lookup": hints}))


def test_parameter_without_a_description_can_be_given_one(
    store: LocalPromptOverridesStore,
) -> None:
    @dataclass(frozen=True)
    class Bare:
        entity: str = "x"

    def bare(params: Bare, *, context: ToolContext) -> ToolResult[None]:
        return ToolResult.ok(None)

    tool = Tool[Bare, None](name="lookup", description="Looks up.", handler=bare)
    made = overrides(prompt(guide(tools=[tool])))
    tools = {"lookup": replace(made.tools["lookup"], param_descriptions={"entity": "What!"})}
    store.set(prompt(guide(tools=[tool])).descriptor, replace(made, tools=tools))
    rendered = prompt(guide(tools=[tool]), store).render()
    own = tool.provider_schema()["properties"]["entity"]["description"]

    assert rendered.tool_schema("lookup")["properties"]["entity"]["description"] == f"What! {own}"


def test_tool_override_may_keep_the_description(store: LocalPromptOverridesStore) -> None:
    made = overrides(prompt())
    tools = {"lookup": replace(made.tools["lookup"], description=None)}
    store.set(prompt().descriptor, replace(made, tools=tools))
    original = guide()
    rendered = prompt(original, store).render()

    assert rendered.tools == original.tools()
    assert rendered.tool_param_descriptions["lookup"]["depth"].description == "Levels of references"


def test_prompt_without_stored_overrides_keeps_its_own_texts(
    store: LocalPromptOverridesStore,
) -> None:
    original = guide()

    assert prompt(original, store).render() == prompt(original).render()
    assert store.resolve(prompt().descriptor) is None


def test_overrides_of_different_tags_are_separate(store: LocalPromptOverridesStore) -> None:
    store.set(prompt().descriptor, overrides(prompt(), tag="calm"))

    assert "Welcome" in prompt(store=store, tag="calm").render().text
    assert "Welcome" not in prompt(store=store).render().text


@pytest.mark.behaviour(9)
@pytest.mark.parametrize(
    ("changed", "applied", "subject"),
    [
        (guide(template="Good day ${name}."), ["lookup"], "section top.guide"),
        (guide(summary="New."), ["lookup"], "section top.guide"),
        (guide(tools=[lookup(description="Searches.")]), ["top.guide"], "tool lookup"),
        (guide(tools=[lookup(examples=(LOOK,))]), ["top.guide"], "tool lookup"),
        (guide(tools=[]), ["top.guide"], "tool lookup"),
        (guide(accepts_overrides=False), [], "section top.guide"),
        (guide(tools=[lookup(accepts_overrides=False)]), ["top.guide"], "tool lookup"),
        (guide(key="other"), ["lookup"], "section top.guide"),
    ],
)
def test_override_for_another_text_is_not_applied_and_a_warning_is_logged(
    store: LocalPromptOverridesStore,
    caplog: pytest.LogCaptureFixture,
    changed: MarkdownSection[Params],
    applied: list[str],
    subject: str,
) -> None:
    store.set(prompt().descriptor, overrides(prompt()))
    with caplog.at_level(logging.WARNING, logger="wink_workspace"):
        rendered = prompt(changed, store).render()

    assert ("Welcome" in rendered.text) == ("top.guide" in applied)
    assert ("Finds entities." in [t.description for t in rendered.tools]) == ("lookup" in applied)
    assert f"Override of {subject} in prompt examples/tooling/p (tag latest) is not" in caplog.text


@pytest.mark.behaviour(9)
def test_override_with_a_wrong_placeholder_in_the_file_is_not_applied(
    store: LocalPromptOverridesStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.set(prompt().descriptor, overrides(prompt()))
    path = store.path(prompt().descriptor)
    path.write_text(path.read_text().replace("${name}", "${nmae}"))
    rendered = prompt(store=store).render()

    assert "Hello Ada." in rendered.text
    assert "unknown placeholder '${nmae}'" in caplog.text


def test_hash_changes_with_the_parameters_of_a_tool() -> None:
    @dataclass(frozen=True)
    class Other:
        entity: str

    def other(params: Other, *, context: ToolContext) -> ToolResult[None]:
        return ToolResult.ok(None)

    tool = Tool[Other, None](name="lookup", description="Looks up.", handler=other)
    before = prompt().descriptor.tool("lookup")
    after = prompt(guide(tools=[tool])).descriptor.tool("lookup")

    assert before is not None
    assert after is not None
    assert before.content_hash != after.content_hash


def test_hashes_depend_only_on_the_content() -> None:
    descriptor = prompt().descriptor

    assert descriptor == prompt(guide(title="Other title", key="guide")).descriptor
    assert [section.path for section in descriptor.sections] == ["top", "top.guide"]
    assert [tool.section_path for tool in descriptor.tools] == ["top.guide"]
    assert all(len(part.content_hash) == 64 for part in descriptor.sections + descriptor.tools)


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        (
            guide(accepts_overrides=False),
            {},
            "section top.guide: it does not accept overrides; tool",
        ),
        (guide(tools=[lookup(accepts_overrides=False)]), {}, "tool lookup: it does not accept"),
        (guide(template="Changed."), {}, "section has changed"),
        (guide(tools=[lookup(description="Other.")]), {}, "tool has changed"),
        (
            None,
            {"sections": {"top.nope": SectionOverride(expected_hash="", body="")}},
            "section top.nope: there is no such section",
        ),
        (
            None,
            {"sections": {"top": SectionOverride(expected_hash="", body="")}},
            "section top: its body is not a template",
        ),
        (
            None,
            {"tools": {"nope": ToolOverride(expected_hash="")}},
            "tool nope: there is no such tool",
        ),
        (None, {"key": "other"}, "overrides are for examples/tooling/other/latest, not"),
    ],
)
def test_override_that_does_not_apply_is_refused_and_not_stored(
    store: LocalPromptOverridesStore,
    section: MarkdownSection[Params] | None,
    change: dict[str, Any],
    message: str,
) -> None:
    target = prompt(section).descriptor

    with pytest.raises(OverridesError, match=message):
        store.set(target, replace(overrides(prompt()), **change))

    assert not store.path(target).exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"param_descriptions": {"deep": "x", "way": "y"}}, "it has no parameter deep, way"),
        ({"description": "ä"}, "the description is not all ASCII"),
        ({"description": " "}, "the description has 0 characters"),
    ],
)
def test_invalid_tool_texts_are_refused(
    store: LocalPromptOverridesStore, change: dict[str, Any], message: str
) -> None:
    made = overrides(prompt())
    tools = {"lookup": replace(made.tools["lookup"], **change)}

    with pytest.raises(OverridesError, match=f"tool lookup: {message}"):
        store.set(prompt().descriptor, replace(made, tools=tools))


def test_body_with_a_wrong_placeholder_is_refused(store: LocalPromptOverridesStore) -> None:
    made = overrides(prompt())
    sections = {"top.guide": replace(made.sections["top.guide"], body="${nmae}")}

    with pytest.raises(OverridesError, match="unknown placeholder"):
        store.set(prompt().descriptor, replace(made, sections=sections))


def test_seed_stores_the_prompts_own_texts_once(store: LocalPromptOverridesStore) -> None:
    kept = MarkdownSection(title="Kept", template="Mine.", accepts_overrides=False)
    full = prompt(guide(children=[kept]))
    seeded = store.seed(full.descriptor)

    assert {path: o.body for path, o in seeded.sections.items()} == {"top.guide": "Hello ${name}."}
    assert seeded.tools["lookup"].description == "Looks up."
    assert seeded.tools["lookup"].param_descriptions["depth"] == "How far to follow"
    assert prompt(guide(children=[kept]), store).render().text == full.render().text


def test_seed_keeps_stored_overrides(store: LocalPromptOverridesStore) -> None:
    made = overrides(prompt())
    store.set(prompt().descriptor, made)

    assert store.seed(prompt().descriptor) == made == store.resolve(prompt().descriptor)


def test_deleted_overrides_no_longer_apply(store: LocalPromptOverridesStore) -> None:
    store.set(prompt().descriptor, overrides(prompt()))

    assert store.delete(prompt().descriptor) is True
    assert store.delete(prompt().descriptor) is False
    assert "Hello Ada." in prompt(store=store).render().text


@pytest.mark.parametrize(
    ("identity", "other"),
    [
        (("a/b", "c", "t"), ("a", "b/c", "t")),
        (("a", "b", "Tag"), ("a", "b", "tag")),
        (("..", "../../etc", "t"), ("..", "../etc", "t")),
        (("n" * 500, "k\0", "t"), ("n" * 501, "k\0", "t")),
    ],
)
def test_file_names_are_safe_and_differ_for_different_prompts_and_tags(
    store: LocalPromptOverridesStore,
    tmp_path: Path,
    identity: tuple[str, str, str],
    other: tuple[str, str, str],
) -> None:
    def path(ns: str, key: str, tag: str) -> Path:
        return store.path(Prompt(ns=ns, key=key, sections=[]).descriptor, tag=tag)

    assert path(*identity) != path(*other)
    assert path(*identity).parent == tmp_path / "overrides"
    assert len(path(*identity).name) < 255
    assert path(*identity).name.lower() != path(*other).name.lower()


def not_json(text: str) -> str:
    return text[:-10]


def no_object(text: str) -> str:
    return "[]"


def other_version(text: str) -> str:
    return json.dumps({**json.loads(text), "version": 99})


def other_prompt(text: str) -> str:
    return text.replace('"p"', '"q"')


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (not_json, "not valid JSON"),
        (no_object, "must be an object"),
        (other_version, "version 99, not 1"),
        (other_prompt, "overrides are for examples/tooling/q/latest"),
    ],
)
def test_damaged_file_is_an_error_that_names_the_problem(
    store: LocalPromptOverridesStore, damage: Callable[[str], str], message: str
) -> None:
    store.set(prompt().descriptor, overrides(prompt()))
    path = store.path(prompt().descriptor)
    path.write_text(damage(path.read_text()))

    with pytest.raises(OverridesError, match=message):
        prompt(store=store).render()


def test_file_in_another_encoding_is_an_error_that_names_the_file(
    store: LocalPromptOverridesStore,
) -> None:
    store.set(prompt().descriptor, overrides(prompt()))
    path = store.path(prompt().descriptor)
    path.write_bytes(b"\xff\xfe")

    with pytest.raises(OverridesError, match=path.name):
        store.resolve(prompt().descriptor)


def test_failed_write_keeps_the_old_file_and_leaves_no_temporary_one(
    store: LocalPromptOverridesStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = overrides(prompt())
    store.set(prompt().descriptor, before)

    def full_disk(path: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full_disk)
        with pytest.raises(OverridesError, match="No space left"):
            store.set(prompt().descriptor, replace(before, tools={}))

    assert store.resolve(prompt().descriptor) == before
    assert [p.name for p in store.path(prompt().descriptor).parent.iterdir()] == [
        store.path(prompt().descriptor).name
    ]
