"""The Agent Client Protocol: an editor such as Zed runs our agent over standard streams.

Rule 1: a session is a branch of a workspace, ``3f1c…`` or ``3f1c…/fork``. Its chat is the branch's
recorded runs, one for each message of the user. The client's directory is read to import it, and
written only after the user allowed that.
Rule 2: files, commands and terminals are those of the workspace and its sandbox. Nothing is asked
of the client but permissions: it is not asked to read, write or run anything.
Rule 3: a workspace is used on the one thread of its session. What the client sees of a run passes
through a queue, so it arrives in order and before the answer to the message.

``agent`` answers the requests, ``client_session`` has an open branch and asks the user,
``updates`` makes what the client shows, ``client_requests`` reads what it sends, and
``client_stdio`` serves it.
"""

from __future__ import annotations

from .agent import AcpAgent
from .client_requests import AcpHost
from .client_stdio import serve_acp

__all__ = ["AcpAgent", "AcpHost", "serve_acp"]
