"""Names of paths that hold no source: secrets, and what programs can make again.

Patterns are lines of a ``.gitignore``; upper and lower case differ.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CACHE_NAMES", "DERIVED_NAMES", "PUBLIC_NAMES", "SECRET_NAMES"]

CACHE_NAMES: Final = (
    *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"),
    ".parcel-cache",
)
"""What programs make again at any time, by name."""

DERIVED_NAMES: Final = (
    *CACHE_NAMES,
    *("node_modules", ".venv", ".tox", ".nox", ".gradle", ".terraform", ".next", ".nuxt", ".turbo"),
    ".wink-agent",  # the home of an agent program that runs in the workspace
)
"""What programs can make again, by name."""

SECRET_NAMES: Final = (
    *(".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.keystore", "*.jks"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".pypirc", ".npmrc"),
)
"""Files that hold secrets, by name."""

PUBLIC_NAMES: Final = (".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults")
"""Match ``SECRET_NAMES``, but by convention hold no secret."""
