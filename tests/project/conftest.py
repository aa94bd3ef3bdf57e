from __future__ import annotations

from pathlib import Path

import pytest
from project_rig import ProjectRig


@pytest.fixture
def project(tmp_path: Path) -> ProjectRig:
    return ProjectRig(tmp_path)
