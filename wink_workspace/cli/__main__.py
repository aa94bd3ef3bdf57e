"""``python -m wink_workspace.cli`` is the command ``wink-workspace``."""

import sys

from wink_workspace.cli import main

sys.exit(main())
