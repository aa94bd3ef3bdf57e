"""The commands for the images that sandboxes are made of: ``image build``, ``image list``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from wink_workspace.errors import UsageError

from .display import consoles, print_table, waiting
from .places import JsonOption, print_json

if TYPE_CHECKING:
    from wink_workspace.sandbox.podman.images import Image

__all__ = ["build", "list_all"]


def build(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="python, minimal; both when left out.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="A public image to start from, such as debian:bookworm-slim."),
    ] = None,
    anew: Annotated[bool, typer.Option("--anew", help="Also if it is there already.")] = False,
    json: JsonOption = False,
) -> None:
    """Build the images of sandboxes; one that is as its recipe says stays."""
    from wink_workspace.sandbox.podman.images import RECIPES, ImageStore, recipe

    wanted = [recipe(name) for name in names or RECIPES]
    if base is not None and len(wanted) > 1:
        raise UsageError("a base is for one image", hint="Name the image that starts from it.")
    out, err = consoles(context.obj)
    store = ImageStore(context.obj)

    def tell(line: str) -> None:
        err.print(line, markup=False, style="dim")

    built: list[Image] = []
    for one in wanted:
        with waiting(context.obj, f"building {one.reference}"):
            built.append(store.build(one, base=base, anew=anew, progress=tell))
    if json:
        print_json([asdict(image) for image in built])
        return
    for image in built:
        out.print(f"{image.reference}: {image.size_bytes:,} bytes", markup=False)


def list_all(context: typer.Context, json: JsonOption = False) -> None:
    """List our images in the engine's store, and whether each is as its recipe says."""
    from wink_workspace.sandbox.podman.images import RECIPES, ImageStore, recipe

    store = ImageStore(context.obj)
    found = {image.reference: image for image in store.all()}
    current = {recipe(name).reference: recipe(name).digest for name in RECIPES}
    states = {
        reference: _state(current.get(reference), image.recipe_digest)
        for reference, image in found.items()
    } | dict.fromkeys(current.keys() - found.keys(), "missing")
    if json:
        print_json(
            [
                {
                    "reference": reference,
                    "state": state,
                    "size_bytes": found[reference].size_bytes if reference in found else None,
                }
                for reference, state in sorted(states.items())
            ]
        )
        return
    rows = [
        (reference, state, f"{found[reference].size_bytes:,}" if reference in found else "")
        for reference, state in sorted(states.items())
    ]
    print_table(consoles(context.obj)[0], ("IMAGE", "STATE", "BYTES"), rows)


def _state(wanted: str | None, found: str) -> str:
    if wanted is None:
        return "of another version"
    return "current" if wanted == found else "of an older recipe"
