"""Sandboxes for code that is not trusted, and the report of their isolation.

``Sandbox`` is the protocol; ``SANDBOXES`` has the backends by name. Importing this package loads
no backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .auto_choice import SandboxChoice as SandboxChoice
    from .auto_choice import choose_sandbox as choose_sandbox
    from .auto_choice import has_image as has_image
    from .backends import AUTO_SANDBOX as AUTO_SANDBOX
    from .backends import DEFAULT_SANDBOX as DEFAULT_SANDBOX
    from .backends import NO_SANDBOX as NO_SANDBOX
    from .backends import SANDBOXES as SANDBOXES
    from .backends import SandboxBackend as SandboxBackend
    from .backends import SandboxConfig as SandboxConfig
    from .backends import SandboxContext as SandboxContext
    from .backends import SandboxFactory as SandboxFactory
    from .backends import SandboxRegistry as SandboxRegistry
    from .image_store import AGENT_NAMES as AGENT_NAMES
    from .image_store import ImageRecipe as ImageRecipe
    from .image_store import PruneReport as PruneReport
    from .image_store import SandboxImage as SandboxImage
    from .image_store import SandboxImages as SandboxImages
    from .image_store import SandboxImageState as SandboxImageState
    from .image_store import StoredItem as StoredItem
    from .isolation_report import Finding as Finding
    from .isolation_report import IsolationReport as IsolationReport
    from .isolation_report import Layer as Layer
    from .isolation_report import Probe as Probe
    from .network import NetworkLimits as NetworkLimits
    from .network import NetworkRequest as NetworkRequest
    from .network import NetworkRules as NetworkRules
    from .network import SecretHost as SecretHost
    from .remembered_services import RememberedServices as RememberedServices
    from .sandbox_protocol import CapturedOutput as CapturedOutput
    from .sandbox_protocol import ExecRequest as ExecRequest
    from .sandbox_protocol import ExecResult as ExecResult
    from .sandbox_protocol import OutputObserver as OutputObserver
    from .sandbox_protocol import PythonRequest as PythonRequest
    from .sandbox_protocol import Sandbox as Sandbox
    from .sandbox_protocol import StreamName as StreamName
    from .services import ServiceAddress as ServiceAddress
    from .services import ServiceConfig as ServiceConfig
    from .services import ServiceLog as ServiceLog
    from .services import Services as Services
    from .services import ServiceState as ServiceState
    from .services import ServiceStatus as ServiceStatus

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
