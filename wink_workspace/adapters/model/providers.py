"""A model by its name, with key and address from an ``Environment``.

OpenAI's and Anthropic's settings are handed over one by one. All other providers read the
process's environment themselves, each in its own way; that is pydantic-ai's business.
"""

from __future__ import annotations

from typing import Any

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model, parse_model_id
from pydantic_ai.providers import Provider, infer_provider

from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError

__all__ = ["model_named"]

_OPENAI = ("openai", "openai-chat", "openai-responses")


def model_named(name: str, environment: Environment) -> Model:
    """The model *name*, ``provider:model``.

    Raises:
        UsageError: If there is no such provider, its library is not installed, or its key is
            not set.
    """
    provider, model = parse_model_id(name)
    if not provider or not model:
        raise UsageError(
            f"{name!r} names no model", hint="Write provider:model, such as anthropic:NAME."
        )
    try:
        return infer_model(name, lambda which: _provider(which, environment))
    except UsageError:  # of ours, and a ValueError, too
        raise
    except UserError as error:
        raise UsageError(
            f"the model {name!r} cannot be used: {_first_line(error)}",
            hint="Give the provider what it asks for, or name another model.",
        ) from None
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"the model {name!r} cannot be used: {_first_line(error)}",
            hint="Check the provider's name, and that its library is installed.",
        ) from None


def _provider(which: str, environment: Environment) -> Provider[Any]:
    if which in _OPENAI:
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIProvider(
            api_key=_key(environment, "OPENAI_API_KEY"),
            base_url=environment.variables.get("OPENAI_BASE_URL"),
        )
    if which == "anthropic":
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicProvider(
            api_key=_key(environment, "ANTHROPIC_API_KEY"),
            base_url=environment.variables.get("ANTHROPIC_BASE_URL"),
        )
    return infer_provider(which)


def _key(environment: Environment, variable: str) -> str:
    key = environment.variables.get(variable)
    if not key:
        raise UsageError(f"{variable} is not set", hint=f"Put the key into {variable}.")
    return key


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0].rstrip(".")
