"""Limits of an evaluation, and the isolation layers that it requires."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar, Final

from wink_workspace.errors import UsageError
from wink_workspace.sandbox.backends import SandboxConfig

from .layers import LAYERS, REQUIRED_LAYERS

_MIB: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class AstevalConfig(SandboxConfig):
    """Limits of each evaluation, and the isolation layers that it requires.

    Attributes:
        timeout_s: After this time an evaluation is killed. It starts when the code is sent.
        memory_bytes: Memory that it may use in addition to that of the interpreter.
        output_bytes: How much it may print on both streams together; more ends it.
        value_chars: How much of a value's ``repr`` is returned.
        code_chars: Longest code.
        file_calls: How often it may open, read or write a file.
        file_bytes: Largest file that it may read.
        write_bytes: Largest single write, unless the filesystem's limit is lower.
        transfer_bytes: How much it may read and write in total.
        start_timeout_s: Time limit for starting the server, and for isolating each evaluation.
        use_numpy: Whether numpy is available, without its functions that read or write files.
            ``None``: if it is installed.
        required_layers: Names of ``LAYERS``. If one is missing, every evaluation is refused.
        backend: What evaluates the code. The isolation is the same for both.
    """

    backend: ClassVar[str] = "asteval"

    timeout_s: float = 5.0
    memory_bytes: int = 256 * _MIB
    output_bytes: int = 65_536
    value_chars: int = 10_000
    code_chars: int = 50_000
    file_calls: int = 10_000
    file_bytes: int = 4 * _MIB
    write_bytes: int = _MIB
    transfer_bytes: int = 64 * _MIB
    start_timeout_s: float = 20.0
    use_numpy: bool | None = False
    required_layers: frozenset[str] = field(default=REQUIRED_LAYERS)

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self)):
            value: object = getattr(self, name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
                raise UsageError(f"{name} is {value}", hint="Use a positive number.")
        unknown = sorted(self.required_layers - LAYERS.keys())
        if unknown:
            raise UsageError(
                f"{', '.join(unknown)}: no such layer", hint=f"The layers are {', '.join(LAYERS)}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonConfig(AstevalConfig):
    """Limits for Python itself: all of the language, and most of the standard library.

    Its code is guarded by the isolation alone, and not by asteval's rules for attributes.
    """

    backend: ClassVar[str] = "python"

    use_numpy: bool | None = None
