"""A workspace as the environment of mini-swe-agent: each command is one entry.

Name the class in the agent's configuration, as ``environment_class:
wink_workspace.integrations.mini_swe_agent.WinkEnvironment``, or pass an object of it.
"""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from typing import Any, Final

from wink_workspace.errors import WinkError
from wink_workspace.sandbox import ExecRequest, SandboxConfig
from wink_workspace.sections.command_results import CommandStream, stopped_summary
from wink_workspace.workspace import WorkspaceStorage

from .command_environment import exit_code
from .frameworks import importing
from .open_workspaces import OpenWorkspaces

with importing("mini-swe-agent"):
    from minisweagent.exceptions import Submitted


_SUBMITTED: Final = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@dataclass(frozen=True, slots=True, kw_only=True)
class WinkEnvironmentConfig:
    """The settings of an environment.

    Attributes:
        source: The directory that the workspace is made of.
        workspace: The id of an existing workspace, in place of *source*.
        cwd: Where commands start, relative to the root of the workspace.
        timeout_s: After this time a command is ended, and its changes are undone.
        output_bytes: How much of the output of a command is kept.
    """

    source: str = ""
    workspace: str = ""
    cwd: str = "."
    timeout_s: float = 30.0
    output_bytes: int = 1_048_576


class WinkEnvironment:
    """Runs the commands of mini-swe-agent in the sandbox of a workspace; ``close`` closes it.

    Args:
        storage: Where the workspace is stored; the default storage when omitted.
        sandbox: Where commands run; by default in a container.
        settings: The fields of ``WinkEnvironmentConfig``.

    Attributes:
        workspace: Its log, diff, undo and apply.
    """

    def __init__(
        self,
        *,
        storage: WorkspaceStorage | None = None,
        sandbox: SandboxConfig | None = None,
        **settings: Any,  # Any: each setting has its own type
    ) -> None:
        self.config = WinkEnvironmentConfig(**settings)
        source = self.config.source or "."
        self._workspaces = OpenWorkspaces(source, storage=storage, sandbox=sandbox)
        if self.config.workspace:
            self._environment = self._workspaces.get(self.config.workspace)
        else:
            _, self._environment = self._workspaces.create()
        self.workspace = self._environment.workspace

    def close(self) -> None:
        """Close the workspace, which stays in the storage."""
        self._workspaces.close()

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        """Run the command of an action as one call.

        Raises:
            Submitted: If the command printed the line that ends the task.
        """
        command = str(action.get("command", ""))
        request = ExecRequest(
            argv=("/bin/bash", "-c", command),
            cwd=cwd or self.config.cwd,
            timeout_s=self.config.timeout_s,
            output_bytes=self.config.output_bytes,
            merge_stderr=True,
        )
        output, code, problem = "", -1, ""
        try:
            result = self._environment.run_here(
                request, label="execute", params={"command": command}
            )
        except WinkError as error:
            problem = str(error)
        else:
            output = CommandStream.of(result.stdout).render()
            problem = stopped_summary(result, request.timeout_s) or ""
            code = -1 if problem else exit_code(result)
        first, _, rest = output.lstrip().partition("\n")
        if code == 0 and first.strip() == _SUBMITTED:
            extra = {"exit_status": "Submitted", "submission": rest}
            raise Submitted({"role": "exit", "content": rest, "extra": extra})
        return {"output": output, "returncode": code, "exception_info": problem}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """The settings and the system, for the templates of prompts."""
        return {**asdict(self.config), **platform.uname()._asdict(), **kwargs}

    def serialize(self) -> dict[str, Any]:
        """What the trajectory of a run says about its environment: also the workspace and entry."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        environment = {**asdict(self.config), "workspace": self.workspace.info.id}
        environment["entry"] = self.workspace.head.number
        return {"info": {"config": {"environment": environment, "environment_type": name}}}
