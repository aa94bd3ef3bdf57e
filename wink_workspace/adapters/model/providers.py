"""Models by name, with key and address from an ``Environment``.

The settings of OpenAI and Anthropic are passed explicitly. For all other providers, pydantic-ai
reads the environment of the process.
"""

from __future__ import annotations

from typing import Any

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model, parse_model_id
from pydantic_ai.profiles import merge_profile
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers import Provider, infer_provider

from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError

_COMPLETE_STREAMS = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
_OPENAI = ("openai", "openai-chat", "openai-responses")


def resolve_model(name: str, environment: Environment) -> Model:
    """Return the model *name*, ``provider:model``.

    Raises:
        UsageError: If the provider is unknown, its library is not installed, or its key is not
            set.
    """
    provider, model = parse_model_id(name)
    if not provider or not model:
        raise UsageError(
            f"{name!r} is not the name of a model",
            hint="Write provider:model, such as anthropic:NAME.",
        )
    try:
        found = infer_model(name, lambda provider_name: _provider(provider_name, environment))
    except UsageError:  # it is also a ValueError
        raise
    except UserError as error:
        raise UsageError(
            f"cannot use the model {name!r}: {_first_line(error)}",
            hint="Set what the provider requires, or name another model.",
        ) from None
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"cannot use the model {name!r}: {_first_line(error)}",
            hint="Check the provider's name and that its library is installed.",
        ) from None
    # Without this, the library takes a stream that was cut for a complete answer.
    if provider != "snowflake":  # it sends no last event for some models
        found.profile = merge_profile(found.profile, _COMPLETE_STREAMS)
    return found


def _provider(name: str, environment: Environment) -> Provider[Any]:
    if name in _OPENAI:
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIProvider(
            api_key=_key(environment, "OPENAI_API_KEY"),
            base_url=environment.variables.get("OPENAI_BASE_URL"),
        )
    if name == "anthropic":
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicProvider(
            api_key=_key(environment, "ANTHROPIC_API_KEY"),
            base_url=environment.variables.get("ANTHROPIC_BASE_URL"),
        )
    return infer_provider(name)


def _key(environment: Environment, variable: str) -> str:
    key = environment.variables.get(variable)
    if not key:
        raise UsageError(f"{variable} is not set", hint=f"Set {variable} to the key.")
    return key


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0].rstrip(".")
