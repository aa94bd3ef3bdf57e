"""``python -m wink_workspace.cli`` is the command ``wink-workspace``."""

import sys

from wink_workspace.cli import main

__all__: list[str] = []

sys.exit(main())
