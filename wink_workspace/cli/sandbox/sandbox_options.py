"""The options that name a sandbox, and what they stand for: a name, a configuration, a section."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.cli.screen.display import printable
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.sandbox import AUTO_SANDBOX, DEFAULT_SANDBOX, NO_SANDBOX, SANDBOXES

if TYPE_CHECKING:
    from wink_workspace.agents import AgentProgram
    from wink_workspace.sandbox import ImageRecipe, SandboxBackend, SandboxConfig, SandboxImages


SANDBOX_HELP: Final = (
    f"Where code may run: {AUTO_SANDBOX} (the default: podman if the project has an image,"
    " otherwise the first of bubblewrap, podman and python that works here),"
    f" {NO_SANDBOX}, {', '.join(SANDBOXES.built_in)}, or one that a package adds."
)

ImageOption = Annotated[
    str | None,
    typer.Option("--image", help="The image of the sandbox, instead of that of the project."),
]
RunnerOption = Annotated[
    str | None,
    typer.Option(
        "--sandbox",
        help="The sandbox to run it in, one of those that `doctor` checks; by default podman if the"
        " project has an image, otherwise bubblewrap if it works here.",
    ),
]


def check_sandbox(name: str, *, image: str | None = None) -> None:
    """Raise ``UsageError`` if there is no such sandbox, or if it cannot have *image*.

    ``none`` is allowed, without an image, and ``auto``.
    """
    if name == AUTO_SANDBOX:
        return
    if name != NO_SANDBOX:
        SANDBOXES.check(name)
    if image is not None and (name == NO_SANDBOX or SANDBOXES.get(name).images is None):
        raise UsageError(f"the sandbox {name!r} has no images", hint="Leave out --image.")


def chosen_sandbox(context: CommandContext, name: str | None, *, image: str | None = None) -> str:
    """The sandbox *name*; for ``auto`` or ``None`` the best that works here, with one line.

    An *image* needs the sandbox that has images, whether it works or not.
    """
    if name not in (None, AUTO_SANDBOX):
        return name
    if image is not None:
        return DEFAULT_SANDBOX
    from wink_workspace.sandbox import choose_sandbox  # on use: most calls name one

    with context.spinner("checking sandboxes"):
        choice = choose_sandbox(context.environment, needs_image=_needs_image(context))
    style = "yellow" if choice.reasons else None
    context.err.print(printable(choice.summary()), markup=False, style=style)
    return choice.name


def _needs_image(context: CommandContext) -> str:
    """Why the project needs a sandbox with an image; empty if it does not."""
    from wink_workspace.sandbox import has_image

    settings, source = context.settings_for(), context.source
    is_recorded = settings.base is not None or settings.recipe is not None
    if is_recorded or (source is not None and has_image(context.environment, source)):
        return "the project has an image"
    return ""


def configured(
    context: CommandContext,
    name: str,
    *,
    image: str | None = None,
    agent: AgentProgram | None = None,
) -> SandboxConfig | None:
    """The configuration of the sandbox *name* with the settings of *context*; none for ``none``.

    With *agent*, its image is the one of the project with that program.

    Raises:
        UsageError: If a setting cannot be used, *image* is given in an option and the sandbox has
            no images, or no image has *agent*.
    """
    check_sandbox(name, image=image)
    if name == NO_SANDBOX:
        return None
    from wink_workspace.project import sandbox_config

    settings, backend = context.settings_for(), SANDBOXES.get(name)
    image = settings.base
    if backend.images is not None:
        images = backend.images(context.environment)
        found = None if agent is None else _image_with_agent(context, images, agent)
        found = found or _project_image(context, images)
        if found is None:
            note_unusable_packages(context)
        image = found or (images.reference(image) if image in images.names else image)
    return sandbox_config(name, settings, context.environment.variables, image=image)


def _project_image(context: CommandContext, images: SandboxImages) -> str | None:
    """The image of the project, as the settings describe it; ``None`` for another one.

    Without such settings it is the image that was last built for the project.
    """
    from wink_workspace.sandbox import ImageRecipe

    recipe = context.settings_for().recipe
    if context.source is None or (recipe is not None and recipe == ImageRecipe(base=recipe.base)):
        return None
    try:
        found = images.find_project(context.source, recipe)
    except SandboxUnavailableError:
        return None  # the first command fails with the reason
    if found is None and recipe is not None and recipe != _only_agents(recipe):
        message = f"the image of this project is not built; build it with: {_build(context)}"
        context.err.print(printable(message), markup=False, style="yellow")
    return None if found is None else found.reference


def _image_with_agent(
    context: CommandContext, images: SandboxImages, agent: AgentProgram
) -> str | None:
    """The image of the project with an agent program; ``None`` if the user provides the program.

    That is so for a program of the user's own, a mounted one, and for an image of the user's own.

    Raises:
        UsageError: If that image is not built.
    """
    from wink_workspace.sandbox import AGENT_NAMES, ImageRecipe

    settings, source = context.settings_for(), context.source
    mounted = {PurePosixPath(mount.target).name for mount in settings.mounts or ()}
    if source is None or agent.name not in AGENT_NAMES or agent.executable in mounted:
        return None
    recipe = settings.recipe
    wanted = (recipe or ImageRecipe()).with_agents((agent.name,))
    try:
        found = images.find_project(source, wanted)
        if found is None and recipe is None:  # one that options described
            newest = images.find_project(source)
            found = newest if newest is not None and agent.name in newest.agents else None
    except SandboxUnavailableError:
        return None  # the first command fails with the reason
    if found is None and wanted.containerfile is None and wanted.base in images.names:
        raise UsageError(
            f"no image of {source} has {agent.name}",
            hint=f"Build it: {_build(context)} --agent {agent.name}",
        )
    return None if found is None else found.reference


def _only_agents(recipe: ImageRecipe) -> ImageRecipe:
    """The recipe with nothing but its base and its agent programs, which only ``--agent`` needs."""
    from wink_workspace.sandbox import ImageRecipe

    return ImageRecipe(base=recipe.base, agents=recipe.agents)


def _build(context: CommandContext) -> str:
    """The command that builds the image of the project."""
    return f"wink-workspace image build --source {shlex.quote(str(context.source))}"


def note_unusable_packages(context: CommandContext) -> None:
    """Print one line if the project has packages for this machine that cannot run in the sandbox.

    Nothing is printed if the project has an image of its own, or its sandbox has none.
    """
    from wink_workspace.project import unusable_packages

    settings, source = context.settings_for(), context.source
    name = settings.sandbox or AUTO_SANDBOX
    backend = (
        None
        if name == NO_SANDBOX
        else SANDBOXES.get(DEFAULT_SANDBOX if name == AUTO_SANDBOX else name)
    )
    if source is None or settings.base is not None or settings.recipe is not None:
        return
    if backend is None or backend.images is None or not (found := unusable_packages(source)):
        return
    if _project_image(context, backend.images(context.environment)) is None:
        where = shlex.quote(str(source))
        message = (
            f"note: {'; '.join(found)}. For an image with the dependencies:"
            f" wink-workspace init {where} && {_build(context)}"
        )
        context.err.print(printable(message), markup=False, style="yellow")


def first_sandbox(context: CommandContext, given: str | None) -> SandboxBackend[Any]:
    """What will probably run a command, before the settings are read."""
    name = given or context.environment.variables.get("WINK_WORKSPACE_SANDBOX") or AUTO_SANDBOX
    return SANDBOXES.get("bubblewrap" if name in (AUTO_SANDBOX, NO_SANDBOX) else name)


def running_name(context: CommandContext, given: str | None, *, image: str | None) -> str:
    """The sandbox that runs commands.

    A file of settings may choose one that runs no commands, for ``run``; then the default one runs
    them here.

    Raises:
        UsageError: If *given*, the name in an option, is a sandbox that runs none.
    """
    name = given or context.settings_for().sandbox or AUTO_SANDBOX
    if name == AUTO_SANDBOX:
        name = chosen_sandbox(context, name, image=image)
    if given is None and (name == NO_SANDBOX or SANDBOXES.get(name).create is None):
        name = DEFAULT_SANDBOX
    if name == NO_SANDBOX:
        raise UsageError(
            "without a sandbox no command can run",
            hint=f"Use --sandbox {DEFAULT_SANDBOX}, or leave the command out.",
        )
    SANDBOXES.get(name).factory()  # refuses a sandbox without commands before anything is opened
    return name


def running_config(
    context: CommandContext, given: str | None, *, image: str | None
) -> SandboxConfig:
    """The configuration of the sandbox that runs commands; raises as ``running_name``."""
    config = configured(context, running_name(context, given, image=image), image=image)
    assert config is not None  # noqa: S101 - the registry has no sandbox called "none"
    return config
