"""A recipe is valid when it is made; it names no file outside of the source."""

from __future__ import annotations

import pytest

from wink_workspace.errors import UsageError
from wink_workspace.sandbox import ImageRecipe


def test_a_recipe_lists_the_files_that_it_reads() -> None:
    recipe = ImageRecipe(
        packages=("g++", "libssl-dev", "gcc=4:12.2.0-3"),
        requirements=("requirements.txt", "docs/requirements.txt"),
        lock="uv.lock",
        containerfile="Containerfile",
        set_up=("make install",),
    )
    assert recipe.files == (
        "requirements.txt",
        "docs/requirements.txt",
        "uv.lock",
        "Containerfile",
    )
    assert ImageRecipe().files == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base": "--privileged"}, "not the name of an image"),
        ({"base": ""}, "not the name of an image"),
        ({"packages": ("gcc -o Dpkg::Pre-Invoke=sh",)}, "not the name of a Debian package"),
        ({"packages": ("-oDir=/",)}, "not the name of a Debian package"),
        ({"packages": ("./evil.deb",)}, "not the name of a Debian package"),
        ({"packages": ("gcc-",)}, "not the name of a Debian package"),
        ({"packages": ("GCC",)}, "not the name of a Debian package"),
        ({"requirements": ("/etc/passwd",)}, "not a path in the source"),
        ({"requirements": ("../other/requirements.txt",)}, "not a path in the source"),
        ({"lock": "a/../../uv.lock"}, "not a path in the source"),
        ({"containerfile": "a\0b"}, "not a path in the source"),
        ({"set_up": ("  ",)}, "not a shell command"),
        ({"set_up": ("true",) * 501}, "501 values"),
    ],
)
def test_an_invalid_recipe_is_refused(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ImageRecipe(**options)
