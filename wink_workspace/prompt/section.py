"""Sections: parts of a prompt, each with the tools, policies and resources that it explains.

Rule 1: a section knows its children, but not its position. Paths, numbers and param values come
from the prompt, so one section may be part of several prompts.
Rule 2: a section is immutable, and rendering it changes nothing.
Rule 3: a section is checked when it is built; errors name its key.

A subclass with tools of its own passes them to ``super().__init__``; one that keeps state in the
session registers its reducers in ``install``.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypedDict, Unpack, cast

from typing_extensions import TypeVar

from wink_workspace.errors import PromptValidationError

from ._bindings import checked_resources
from ._generics import Specialised, type_arguments, type_name
from ._template import Template
from .policy import ToolPolicy
from .tool import Tool
from .visibility import SectionVisibility

if TYPE_CHECKING:
    from wink_workspace.session import Session, SessionProtocol


P = TypeVar("P", default=None)
P_contra = TypeVar("P_contra", contravariant=True, default=None)
T = TypeVar("T")


class _OfSession(Protocol):
    """A predicate of the session; None outside of a session."""

    def __call__(self, *, session: SessionProtocol | None) -> bool: ...


class _OfParamsAndSession(Protocol[P_contra]):
    """A predicate of params and session."""

    def __call__(self, params: P_contra, /, *, session: SessionProtocol | None) -> bool: ...


EnabledPredicate: TypeAlias = (
    Callable[[], bool] | Callable[[P], bool] | _OfSession | _OfParamsAndSession[P]
)
"""The functions that can decide whether a section is enabled."""

_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class SectionOptions(TypedDict, Generic[P], total=False):
    """The keyword arguments of every section, without ``tools``; see ``Section``."""

    key: str | None
    params: type[P] | None
    default_params: P | None
    children: Sequence[Section[Any]]
    enabled: EnabledPredicate[P] | None
    summary: str | None
    visibility: SectionVisibility
    policies: Sequence[ToolPolicy]
    resources: Mapping[type[Any], object] | None
    required_resources: Sequence[type[Any]]
    accepts_overrides: bool


class Section(Specialised, Generic[P]):
    """A heading without text; ``MarkdownSection`` adds the text.

    Args:
        title: The heading, one line.
        key: Identifies the section among its siblings: 1 to 64 of ``a-z0-9_-``. Derived from the
            title when omitted.
        params: The dataclass whose fields the section's texts may use, when it is not given
            as ``Section[Params]``.
        default_params: Used when the prompt has no value of that type.
        tools: The tools that the section explains.
        children: Sections below this one.
        enabled: Whether the section and the sections below it are rendered. Called with the
            params if it has a positional parameter without default, and with ``session=``
            if it has a parameter of that name (None outside a session).
        summary: The text while the section is closed; a template like the body.
        visibility: How the section is shown until it is changed in the session.
        policies: Checked before each call of a tool of this section or of one below it.
        resources: Type to instance, or to a ``Binding``.
        required_resources: Types that the prompt must bind, here or elsewhere, before it can be
            rendered with this section enabled.
        accepts_overrides: Whether a store may replace the section's text and its tools'
            descriptions.

    Raises:
        PromptValidationError: If an argument is wrong; names the key and the argument.
    """

    def __init__(
        self,
        title: str,
        *,
        key: str | None = None,
        params: type[P] | None = None,
        default_params: P | None = None,
        tools: Sequence[Tool[Any, Any]] = (),
        children: Sequence[Section[Any]] = (),
        enabled: EnabledPredicate[P] | None = None,
        summary: str | None = None,
        visibility: SectionVisibility = SectionVisibility.FULL,
        policies: Sequence[ToolPolicy] = (),
        resources: Mapping[type[Any], object] | None = None,
        required_resources: Sequence[type[Any]] = (),
        accepts_overrides: bool = True,
    ) -> None:
        self.title: Final = _checked_title(title)
        self.key: Final = _checked_key(key, self.title)
        self.params_type: Final = self._checked_params_type(params)
        self.default_params: Final = self._checked_default(default_params)
        self._tools = self._all_of(Tool, "tools", tools)
        self.children: Final = self._all_of(Section, "children", children)
        self._enabled = self._checked_predicate(enabled)
        self.summary: Final = summary
        self._summary = None if summary is None else self._parsed(summary, "summary")
        self.visibility: Final = self._checked_visibility(visibility)
        self.policies: Final = self._all_of(ToolPolicy, "policies", policies)
        self.resources: Final = checked_resources(resources or {}, section_path=(self.key,))
        self.required_resources: Final = tuple(required_resources)
        self.accepts_overrides: Final = accepts_overrides

    @property
    def template(self) -> str | None:
        """The text that an override may replace; None if the body is not a template."""
        return None

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The names that the section's texts may use: the fields of its params."""
        type_ = cast("Any", self.params_type)
        return () if type_ is None else tuple(field.name for field in dataclasses.fields(type_))

    def tools(self) -> tuple[Tool[Any, Any], ...]:
        """The section's own tools in the order declared, without those of its children."""
        return self._tools

    def body(self, params: P | None, *, override: str | None = None) -> str:  # noqa: ARG002 - for subclasses
        """The text below the heading.

        Args:
            params: A value of ``params_type``.
            override: A template to use instead of the section's own.

        Raises:
            PromptValidationError: If *override* has wrong placeholders.
        """
        return ""

    def summary_text(self, params: P | None) -> str:
        """The text while the section is closed; empty without a summary."""
        return "" if self._summary is None else self._summary.fill(params)

    @property
    def fallback_params(self) -> P | None:
        """The params if none are bound: ``default_params``, or the type's own defaults.

        None without defaults or params.
        """
        if self.default_params is not None or self.params_type is None:
            return self.default_params
        needs_values = any(
            field.init
            and field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
            for field in dataclasses.fields(cast("Any", self.params_type))
        )
        return None if needs_values else self.params_type()

    @property
    def enabled_by_params(self) -> bool:
        """Whether ``is_enabled`` needs the params."""
        return self._enabled is not None and self._enabled.takes_params

    def is_enabled(self, params: P | None, *, session: SessionProtocol | None = None) -> bool:
        """Whether the section and the sections below it are rendered."""
        return self._enabled is None or self._enabled(params, session)

    def install(self, session: Session) -> None:
        """Register reducers in *session*; may be called again. Does nothing here."""

    def _parsed(self, text: str, field: str) -> Template:
        return Template.parse(text, self.placeholders, section_path=(self.key,), field=field)

    def _wrong(self, message: str, field: str, *, hint: str) -> PromptValidationError:
        return PromptValidationError(message, section_path=(self.key,), field=field, hint=hint)

    def _checked_params_type(self, given: type[P] | None) -> type[P] | None:
        arguments = type_arguments(type(self), Section) or (NoneType,)
        declared: object = None if arguments[0] is NoneType else arguments[0]
        chosen: object = declared if given is None else given
        if declared not in (None, chosen):
            raise self._wrong(
                f"params={type_name(chosen)} contradicts [{type_name(declared)}]",
                "params",
                hint="Pass the type only once.",
            )
        is_dataclass = isinstance(chosen, type) and dataclasses.is_dataclass(chosen)
        if chosen is not None and not is_dataclass:
            name = type_name(cast("object", chosen))
            raise self._wrong(
                f"{name} is not a dataclass",
                "params",
                hint="Use a class decorated with @dataclass(frozen=True).",
            )
        return cast("type[P] | None", chosen)

    def _checked_default(self, default: P | None) -> P | None:
        given = type(cast("object", default))
        if default is not None and given is not self.params_type:
            raise self._wrong(
                f"the default is a {given.__name__}, but the section's params are "
                + type_name(self.params_type or NoneType),
                "default_params",
                hint="Pass a value of the params' type, and that type as `params=`.",
            )
        return default

    def _all_of(self, type_: type[T], field: str, given: Sequence[T]) -> tuple[T, ...]:
        for item in given:
            if not isinstance(item, type_):
                raise self._wrong(
                    f"{item!r} is not a {type_.__name__}",
                    field,
                    hint=f"Make it a {type_.__name__}, or remove it.",
                )
        return tuple(given)

    def _checked_predicate(self, function: EnabledPredicate[P] | None) -> _Predicate | None:
        if function is None:
            return None
        predicate = _Predicate.of(function) if callable(cast("object", function)) else None
        if predicate is None:
            raise self._wrong(
                f"{function!r} is not a function of nothing, of the params, or of a keyword"
                " 'session'",
                "enabled",
                hint="Write it as `lambda: …`, `lambda params: …` or `lambda *, session: …`.",
            )
        if predicate.takes_params and self.params_type is None:
            raise self._wrong(
                "the predicate takes params but the section has none",
                "enabled",
                hint="Give the section a params type, or write a predicate without arguments.",
            )
        return predicate

    def _checked_visibility(self, visibility: SectionVisibility) -> SectionVisibility:
        if visibility not in SectionVisibility.__members__.values():
            raise self._wrong(
                f"{visibility!r} is not a SectionVisibility",
                "visibility",
                hint=f"Use one of {', '.join(SectionVisibility)}.",
            )
        if visibility == SectionVisibility.SUMMARY and self.summary is None:
            raise self._wrong(
                "the visibility is SUMMARY, but the section has no summary",
                "visibility",
                hint="Give the section a summary.",
            )
        return SectionVisibility(visibility)


class MarkdownSection(Section[P]):
    """A section whose body is a Markdown template: ``MarkdownSection[Params](title=…, …)``.

    Args:
        title: The heading.
        template: The body; it is dedented. ``${field}`` gives a field of the params, ``$${`` a
            literal ``${``; any other dollar stays a dollar.
        tools: The tools that the section explains.
        options: As for ``Section``.

    Raises:
        PromptValidationError: If a placeholder in *template* is malformed, or not a field of the
            params.
    """

    def __init__(
        self,
        title: str,
        template: str,
        *,
        tools: Sequence[Tool[Any, Any]] = (),
        **options: Unpack[SectionOptions[P]],
    ) -> None:
        super().__init__(title, tools=tools, **options)
        self._template = self._parsed(template, "template")

    @property
    def template(self) -> str:
        """The body with its placeholders."""
        return self._template.text

    def body(self, params: P | None, *, override: str | None = None) -> str:
        """The template filled with the fields of *params*; see ``Section.body``."""
        template = self._template if override is None else self._parsed(override, "template")
        return template.fill(params)


class TextSection(MarkdownSection[P]):
    """As ``MarkdownSection``, with other argument names: ``TextSection(title=…, body=…)``."""

    def __init__(
        self,
        title: str,
        body: str,
        *,
        tools: Sequence[Tool[Any, Any]] = (),
        **options: Unpack[SectionOptions[P]],
    ) -> None:
        super().__init__(title, body, tools=tools, **options)


class ToolsSection(MarkdownSection[P]):
    """Tools under a heading of their own, with or without a text.

    Args:
        title: The heading.
        tools: The tools; the text does not list them.
        description: The body, a template; empty when omitted.
        options: As for ``Section``.
    """

    def __init__(
        self,
        title: str,
        tools: Sequence[Tool[Any, Any]],
        description: str | None = None,
        **options: Unpack[SectionOptions[P]],
    ) -> None:
        super().__init__(title, description or "", tools=tools, **options)


@dataclass(frozen=True, slots=True)
class _Predicate:
    """A function that decides whether a section is enabled, and the arguments it takes."""

    function: Callable[..., bool]
    takes_params: bool
    takes_session: bool

    @classmethod
    def of(cls, function: Callable[..., bool]) -> _Predicate | None:
        """Read the signature; None if there is none, or if it requires other arguments."""
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:
            return None
        required = [
            parameter
            for parameter in parameters
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            and parameter.name != "session"
        ]
        if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY for p in required):
            return None
        return cls(
            function,
            takes_params=bool(required),
            takes_session=any(parameter.name == "session" for parameter in parameters),
        )

    def __call__(self, params: object, session: SessionProtocol | None) -> bool:
        positional = (params,) if self.takes_params else ()
        by_name = {"session": session} if self.takes_session else {}
        return bool(self.function(*positional, **by_name))


def _checked_title(title: str) -> str:
    stripped = title.strip()
    if not stripped or len(stripped.splitlines()) > 1:
        raise PromptValidationError(f"{title!r} is not a title", hint="Use one line of text.")
    return stripped


def _checked_key(key: str | None, title: str) -> str:
    if key is None:
        plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
        key = re.sub(r"[^a-z0-9]+", "-", plain)[:64].strip("-")
    if not _KEY.fullmatch(key):
        raise PromptValidationError(
            f"{key!r} is not a valid key",
            section_path=(title,),
            field="key",
            hint="Use 1 to 64 of a-z, 0-9, '_' and '-', starting with a letter or digit.",
        )
    return key
