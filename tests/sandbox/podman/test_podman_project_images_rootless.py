"""The image of a project, built by an ordinary user: from a Containerfile, with a set-up command."""

from __future__ import annotations

from pathlib import Path

import pytest
from podman_machine import OrdinaryUser

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("podman")]

BUILD = """\
import sys
from contextlib import closing
from pathlib import Path
from wink_workspace.environment import Environment
from wink_workspace.sandbox import ExecRequest, ImageRecipe, SandboxContext
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox
from wink_workspace.sandbox.podman.building.image_catalog import PodmanImages

folder = Path(sys.argv[1])
images = PodmanImages(Environment.from_os())
images.build("python")
source = folder / "source"
source.mkdir()
(source / "hello").write_text("good day\\n")
(source / "Containerfile").write_text(
    "FROM " + images.reference("python") + "\\n"
    "COPY hello /hello\\n"
    "RUN id -u >/who; grep -c : /proc/net/dev >/interfaces; chown 7:7 /hello\\n"
)
recipe = ImageRecipe(containerfile="Containerfile", set_up=("cp hello /opt/project/kept; id -u",))
lines = []
image = images.build_project(recipe, source, progress=lines.append)
assert "1000" in lines, lines
again = []
assert images.build_project(recipe, source, progress=again.append) == image
assert not again, again
for name in ("files", "notes"):
    (folder / name).mkdir()
place = SandboxContext(files=folder / "files", notes=folder / "notes")
with closing(PodmanSandbox(place, config=PodmanConfig(image=image.reference))) as sandbox:
    shown = "cat /opt/project/kept /who /interfaces; stat -c %u /hello"
    result = sandbox.run(ExecRequest(argv=("/bin/sh", "-c", shown)))
    print(result.stdout.head.decode().split("\\n"))
images._store.programs.podman("rmi", "--force", image.reference)
"""


def test_an_ordinary_user_builds_a_containerfile_without_network(
    ordinary_user: OrdinaryUser, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "user"
    folder.mkdir()
    folder.chmod(0o777)
    for above in folder.parents:
        if above.stat().st_mode & 0o001 == 0:
            above.chmod(above.stat().st_mode | 0o001)
    done = ordinary_user.python("-c", BUILD, str(folder))
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.strip() == "['good day', '0', '1', '7', '']"
