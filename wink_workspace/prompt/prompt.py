"""Prompts: a tree of sections, the values bound to it, and its rendering.

Rule 1: the whole tree is checked when the template is built: two siblings with one key, two tools
with one name, two sections that bind one type differently, a policy that does not see its tools.
Rule 2: a template never changes and may be shared; a ``Prompt`` is one use of it, with its
params and resources.
Rule 3: rendering is a pure function of the template, the params, the session's state and the
store of overrides. It publishes no event; the adapter does that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, cast, get_args, get_origin, overload

from typing_extensions import TypeVar

from wink_workspace.errors import PromptRenderError, PromptValidationError, ResourceError

from ._bindings import PromptResources, checked_resources, joined_resources
from ._generics import Specialised, type_arguments, type_name
from ._tree import (
    SectionNode,
    build_nodes,
    refuse_shared_tool_names,
    refuse_unseen_dependencies,
)
from .disclosure import VisibilityOverrides
from .rendered import RenderedPrompt, Rendering
from .section import Section
from .tool import Tool

if TYPE_CHECKING:
    from wink_workspace.session import Session, SessionProtocol

    from .overrides import PromptDescriptor, PromptOverrides, PromptOverridesStore


OutputT = TypeVar("OutputT", default=None)


class PromptTemplate(Specialised, Generic[OutputT]):
    """A checked tree of sections: ``PromptTemplate[Output](ns=…, key=…, sections=[…])``.

    ``Output`` is the type of the final answer: a dataclass or ``list`` of one; without it, or
    with None, the answer is text.

    Args:
        ns: Namespace of the prompt, such as the name of a program.
        key: Identifies the prompt within ``ns``; the name when omitted.
        name: The name for users and in records; the key when omitted.
        sections: The top-level sections.

    Raises:
        PromptValidationError: If the tree is inconsistent; names the sections concerned.
    """

    def __init__(
        self,
        *,
        ns: str = "default",
        key: str | None = None,
        name: str | None = None,
        sections: Sequence[Section[Any]] = (),
    ) -> None:
        identity = key or name
        if not ns or not identity:
            raise PromptValidationError(
                "a prompt needs a name", hint="Pass `ns` and `key`, or `name`."
            )
        self.ns: Final = ns
        self.key: Final = identity
        self.name: Final = name or identity
        self.sections: Final = tuple(sections)
        self.output_type: Final = _output_type(type(self), PromptTemplate)
        self.nodes: Final = tuple(build_nodes(self.sections))
        refuse_shared_tool_names(self.nodes)
        refuse_unseen_dependencies(self.nodes)
        self.resources: Final = joined_resources(
            (node.keys, node.section.resources) for node in self.walk()
        )

    def walk(self) -> Iterator[SectionNode]:
        """Every node of the tree, depth first."""
        for node in self.nodes:
            yield from node.walk()

    @property
    def params_types(self) -> frozenset[type[Any]]:
        """The types of params that the sections use."""
        types = (node.section.params_type for node in self.walk())
        return frozenset(type_ for type_ in types if type_ is not None)

    @cached_property
    def descriptor(self) -> PromptDescriptor:
        """The identity of the prompt and of each part that may be overridden."""
        # on use: few prompts have a store
        from .overrides import PromptDescriptor, SectionDescriptor, ToolDescriptor

        return PromptDescriptor(
            ns=self.ns,
            key=self.key,
            sections=tuple(SectionDescriptor.of(node.path, node.section) for node in self.walk()),
            tools=tuple(
                ToolDescriptor.of(node.path, node.section, tool)
                for node in self.walk()
                for tool in node.section.tools()
            ),
        )


class Prompt(Specialised, Generic[OutputT]):
    """One use of a template: ``Prompt(template).bind(params, resources={…})``.

    ``Prompt(ns=…, key=…, sections=[…])`` creates the template as well.

    Args:
        template: The template; if given, the other arguments of ``PromptTemplate`` may not be.
        ns: As for ``PromptTemplate``.
        key: As for ``PromptTemplate``.
        name: As for ``PromptTemplate``.
        sections: As for ``PromptTemplate``.
        overrides_store: Read at each rendering for texts that replace the template's.
        overrides_tag: The tag of the stored set to use.
        parts: The arguments of ``PromptTemplate``, if *template* is not given.

    Raises:
        PromptValidationError: If the tree is inconsistent.
    """

    @overload
    def __init__(
        self,
        template: PromptTemplate[OutputT],
        *,
        overrides_store: PromptOverridesStore | None = None,
        overrides_tag: str = "latest",
    ) -> None: ...
    @overload
    def __init__(
        self,
        *,
        ns: str = "default",
        key: str | None = None,
        name: str | None = None,
        sections: Sequence[Section[Any]],
        overrides_store: PromptOverridesStore | None = None,
        overrides_tag: str = "latest",
    ) -> None: ...
    def __init__(
        self,
        template: PromptTemplate[OutputT] | None = None,
        *,
        overrides_store: PromptOverridesStore | None = None,
        overrides_tag: str = "latest",
        **parts: Any,  # the arguments of PromptTemplate; the overloads name them
    ) -> None:
        output_type = _output_type(type(self), Prompt)
        if template is None:
            template = cast("Any", PromptTemplate)[output_type](**parts)
        elif parts or output_type not in (None, template.output_type):
            raise PromptValidationError(
                "both a template and parts of another template are given",
                hint="Pass a template alone, or the arguments of PromptTemplate.",
            )
        self.template: Final = cast("PromptTemplate[OutputT]", template)
        self._overrides_store = overrides_store
        self._overrides_tag = overrides_tag
        self._params: dict[type[Any], object] = {}
        self._bound: dict[type[Any], object] = {}
        self._resources = PromptResources(self.template.resources)

    @property
    def ns(self) -> str:
        """The template's namespace."""
        return self.template.ns

    @property
    def key(self) -> str:
        """The template's key."""
        return self.template.key

    @property
    def name(self) -> str:
        """The template's name."""
        return self.template.name

    @property
    def sections(self) -> tuple[Section[Any], ...]:
        """The template's top-level sections."""
        return self.template.sections

    @property
    def descriptor(self) -> PromptDescriptor:
        """The template's descriptor, to which overrides refer."""
        return self.template.descriptor

    @property
    def resources(self) -> PromptResources:
        """The resources: ``with prompt.resources:`` opens and closes them."""
        return self._resources

    def bind(self, *params: object, resources: Mapping[type[Any], object] | None = None) -> Self:
        """Bind values to the prompt; a value of a type that was bound before is replaced.

        Args:
            params: One value for each type of params that the sections use.
            resources: Type to instance (the caller closes it) or to a ``Binding``; replaces
                those of the sections.

        Returns:
            The prompt itself.

        Raises:
            PromptValidationError: If no section uses a value's type, a type is given twice, or a
                resource does not match its type.
            ResourceError: If *resources* are given while the prompt's resources are open.
        """
        by_type = self._by_type(params, PromptValidationError)
        if resources:
            self._bind_resources(checked_resources(resources))
        self._params = {**self._params, **by_type}
        return self

    def snapshot(self) -> object:
        """A token for the present params, so that a failed call can undo its bindings."""
        return self._params

    def restore(self, token: object) -> None:
        """Restore the params of *token*."""
        self._params = cast("dict[type[Any], object]", token)

    def install(self, session: Session) -> None:
        """Register the reducers of sections and policies in *session*; may be called again."""
        VisibilityOverrides.install(session)
        for node in self.template.walk():
            node.section.install(session)
            for policy in node.section.policies:
                policy.install(session)

    def tools(
        self, *params: object, session: SessionProtocol | None = None
    ) -> tuple[Tool[Any, Any], ...]:
        """The tools of all enabled sections, closed ones included, in declaration order.

        *params* and *session* are as for ``render``, but only those that decide whether a section
        is enabled are needed.
        """
        rendering = self._rendering(params, session)
        return tuple(
            tool for node in rendering.enabled(self.template.nodes) for tool in node.section.tools()
        )

    def render(
        self, *params: object, session: SessionProtocol | None = None
    ) -> RenderedPrompt[OutputT]:
        """The prompt's text and tools as they are now.

        Args:
            params: Used in this rendering instead of bound ones of the same type.
            session: Says which sections are open; without one, their own visibility is used.

        Raises:
            PromptRenderError: If an enabled section lacks its params or a required resource, no
                section uses the type of one of *params*, or two of them have one type.
            OverridesError: If the store of overrides cannot be read.
        """
        rendering = self._rendering(params, session, self._overrides())
        return rendering.prompt(self.name, self.template.nodes, self.template.output_type)

    def _rendering(
        self,
        params: tuple[object, ...],
        session: SessionProtocol | None,
        overrides: PromptOverrides | None = None,
    ) -> Rendering:
        return Rendering(
            params={**self._params, **self._by_type(params, PromptRenderError)},
            session=session,
            prompt_key=f"{self.ns}/{self.key}",
            overrides=overrides,
            resource_types=self._resources.types,
            singletons=self._resources.singletons,
        )

    def _overrides(self) -> PromptOverrides | None:
        """The stored overrides that still apply."""
        if self._overrides_store is None:
            return None
        stored = self._overrides_store.resolve(self.descriptor, tag=self._overrides_tag)
        return None if stored is None else stored.fitting(self.descriptor)

    def _bind_resources(self, resources: Mapping[type[Any], object]) -> None:
        if self._resources.is_open:
            raise ResourceError(
                "resources cannot be bound while the prompt's resources are open",
                hint="Call bind() before `with prompt.resources:`.",
            )
        if all(self._bound.get(type_) is value for type_, value in resources.items()):
            return
        self._bound |= resources
        self._resources = PromptResources({**self.template.resources, **self._bound})

    def _by_type(
        self, params: tuple[object, ...], error: type[PromptValidationError | PromptRenderError]
    ) -> dict[type[Any], object]:
        known = self.template.params_types
        by_type: dict[type[Any], object] = {}
        for value in params:
            type_ = type(value)
            if type_ not in known:
                names = ", ".join(sorted(known_type.__name__ for known_type in known))
                raise error(
                    f"no section of prompt {self.name!r} takes params of type {type_.__name__}",
                    hint=f"Types in use: {names or 'none'}. Resources go in `resources={{…}}`.",
                )
            if type_ in by_type:
                raise error(
                    f"two values of type {type_.__name__} for prompt {self.name!r}",
                    hint="Sections with one params type share one value; pass it once.",
                )
            by_type[type_] = value
        return by_type


def _output_type(cls: type, origin: type) -> Any:
    """The checked output type of *cls*; None for text."""
    arguments = type_arguments(cls, origin)
    type_ = arguments[0] if arguments else NoneType
    if type_ is NoneType:
        return None
    item = get_args(type_)[0] if get_origin(type_) is list else type_
    if not (isinstance(item, type) and dataclasses.is_dataclass(item)):
        raise PromptValidationError(
            f"{type_name(type_)} cannot be an output",
            field="output_type",
            hint="Use a dataclass, a list of one, or no type for plain text.",
        )
    return type_
