"""The tree of a prompt's sections: paths, inherited policies and resources, consistency checks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wink_workspace.errors import PromptValidationError

from .disclosure_tools import DISCLOSURE_TOOL_NAMES
from .policy import ReadBeforeWritePolicy, SequentialDependencyPolicy, ToolPolicy
from .section import Section


@dataclass(frozen=True, slots=True)
class SectionNode:
    """A section in the tree of a prompt.

    Attributes:
        keys: The keys from the root down to the section's own.
        section: The section.
        policies: Those of the sections above it and its own, the outermost first.
        resource_types: The types that it and the sections above it bind.
        children: The nodes below it.
    """

    keys: tuple[str, ...]
    section: Section[Any]
    policies: tuple[ToolPolicy, ...]
    resource_types: tuple[type[Any], ...]
    children: tuple[SectionNode, ...]

    @property
    def path(self) -> str:
        """The keys joined by dots."""
        return ".".join(self.keys)

    def walk(self) -> Iterator[SectionNode]:
        """The node itself and those below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


def build_nodes(
    sections: Sequence[Section[Any]],
    *,
    above: tuple[str, ...] = (),
    policies: tuple[ToolPolicy, ...] = (),
    resource_types: tuple[type[Any], ...] = (),
) -> Iterator[SectionNode]:
    """The nodes of *sections*, which are siblings below *above*, with all nodes below them.

    Raises:
        PromptValidationError: If two siblings have one key, or an item is not a section.
    """
    titles: dict[str, str] = {}
    for section in sections:
        if not isinstance(section, Section):  # pyright: ignore[reportUnnecessaryIsInstance] - users
            raise PromptValidationError(
                f"{section!r} is not a Section",
                field="sections",
                hint="Make it a section: MarkdownSection(title=…, template=…).",
            )
        keys = (*above, section.key)
        if section.key in titles:
            raise PromptValidationError(
                f"{titles[section.key]!r} and {section.title!r} have the same key",
                section_path=keys,
                field="key",
                hint="Give one of the two another key.",
            )
        titles[section.key] = section.title
        guards = (*policies, *(p for p in section.policies if p not in policies))
        types = tuple(dict.fromkeys((*resource_types, *section.resources)))
        below = build_nodes(section.children, above=keys, policies=guards, resource_types=types)
        yield SectionNode(keys, section, guards, types, tuple(below))


def refuse_shared_tool_names(nodes: Iterable[SectionNode]) -> None:
    """Refuse two tools with one name, also if they are never enabled together.

    If a section can be closed, the names of the tools that open sections are taken, too.

    Raises:
        PromptValidationError: If two tools have one name; names the tool and both sections.
    """
    all_nodes = [each for node in nodes for each in node.walk()]
    owners: dict[str, str] = {}
    if any(node.section.summary is not None for node in all_nodes):
        owners = dict.fromkeys(DISCLOSURE_TOOL_NAMES, "the prompt itself, to open sections")
    for node in all_nodes:
        for tool in node.section.tools():
            if tool.name in owners:
                raise PromptValidationError(
                    f"the name is already used by {owners[tool.name]}",
                    section_path=node.keys,
                    tool=tool.name,
                    field="name",
                    hint="Rename one of the two tools.",
                )
            owners[tool.name] = "section " + " > ".join(node.keys)


def refuse_unseen_dependencies(nodes: Iterable[SectionNode]) -> None:
    """Refuse a policy that does not see the calls of a tool that it names.

    The prompt must have each tool that the policy names, in a section with the policy or below
    one. Otherwise the policy would refuse a tool always, or never. Likewise, a
    ``ReadBeforeWritePolicy`` must know the files of a tool in its section or below.

    Raises:
        PromptValidationError: If a policy does not; names the section and the tool.
    """
    all_nodes = [each for node in nodes for each in node.walk()]
    owners = {tool.name: node for node in all_nodes for tool in node.section.tools()}
    for node in all_nodes:
        for policy in node.section.policies:
            names: set[str] = set()
            if isinstance(policy, SequentialDependencyPolicy):
                names = {*policy.dependencies}.union(*policy.dependencies.values())
            elif isinstance(policy, ReadBeforeWritePolicy):
                names = {*policy.read_tools, *policy.write_tools}
                if not names and not any(
                    callable(getattr(tool.params_type, "file_use", None))
                    for below in node.walk()
                    for tool in below.section.tools()
                ):
                    raise PromptValidationError(
                        f"the policy {policy.name!r} covers no tool here: none says which files"
                        " it uses",
                        section_path=node.keys,
                        field="policies",
                        hint="Name tools in read_tools and write_tools, give their params a"
                        " method file_use, or attach the policy above a section of file tools.",
                    )
            for name in sorted(names):
                if name not in owners:
                    close = difflib.get_close_matches(name, owners, n=1)
                    raise PromptValidationError(
                        f"the policy names {name!r}, but the prompt has no such tool",
                        section_path=node.keys,
                        field="policies",
                        hint=f"Did you mean {close[0]!r}?"
                        if close
                        else f"Correct the name; the tools are {', '.join(sorted(owners))}.",
                    )
                if policy not in owners[name].policies:
                    raise PromptValidationError(
                        f"the policy does not see {name!r}, a tool of section "
                        + " > ".join(owners[name].keys),
                        section_path=node.keys,
                        field="policies",
                        hint="Attach the policy to a section above both, or to both sections.",
                    )
