"""Sandboxes for code that is not trusted, and the report of their isolation.

``Sandbox`` is the protocol; ``SANDBOXES`` has the backends by name. Importing this package loads
no backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .auto_choice import SandboxChoice, choose_sandbox
    from .backends import (
        AUTO_SANDBOX,
        DEFAULT_SANDBOX,
        NO_SANDBOX,
        SANDBOXES,
        SandboxBackend,
        SandboxConfig,
        SandboxContext,
        SandboxFactory,
        SandboxRegistry,
    )
    from .image_store import (
        AGENT_NAMES,
        ImageRecipe,
        PruneReport,
        SandboxImage,
        SandboxImages,
        SandboxImageState,
        StoredItem,
    )
    from .isolation_report import Finding, IsolationReport, Layer, Probe
    from .network import NetworkLimits, NetworkRequest, NetworkRules, SecretHost
    from .remembered_services import RememberedServices
    from .sandbox_protocol import (
        CapturedOutput,
        ExecRequest,
        ExecResult,
        OutputObserver,
        PythonRequest,
        Sandbox,
        StreamName,
    )
    from .services import (
        ServiceAddress,
        ServiceConfig,
        ServiceLog,
        Services,
        ServiceState,
        ServiceStatus,
    )

__all__ = [
    "AGENT_NAMES",
    "AUTO_SANDBOX",
    "DEFAULT_SANDBOX",
    "NO_SANDBOX",
    "SANDBOXES",
    "CapturedOutput",
    "ExecRequest",
    "ExecResult",
    "Finding",
    "ImageRecipe",
    "IsolationReport",
    "Layer",
    "NetworkLimits",
    "NetworkRequest",
    "NetworkRules",
    "OutputObserver",
    "Probe",
    "PruneReport",
    "PythonRequest",
    "RememberedServices",
    "Sandbox",
    "SandboxBackend",
    "SandboxChoice",
    "SandboxConfig",
    "SandboxContext",
    "SandboxFactory",
    "SandboxImage",
    "SandboxImageState",
    "SandboxImages",
    "SandboxRegistry",
    "SecretHost",
    "ServiceAddress",
    "ServiceConfig",
    "ServiceLog",
    "ServiceState",
    "ServiceStatus",
    "Services",
    "StoredItem",
    "StreamName",
    "choose_sandbox",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
