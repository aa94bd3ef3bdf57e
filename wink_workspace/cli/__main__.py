"""``python -m wink_workspace.cli`` is the command ``wink-workspace``."""

import sys

from . import main

__all__: list[str] = []

sys.exit(main())
