"""The commands for sandboxes: ``doctor``, ``eval`` and those of ``image``.

Sandboxes are known by name: the registry ``SANDBOXES`` has the backends. ``eval`` is one call of
the workspace, so a failure leaves no trace in the files.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from wink_workspace.cli.screen.command_context import (
    CommandContext,
    JsonOption,
    WorkspaceArgument,
    print_json,
)
from wink_workspace.cli.screen.display import print_table, printable
from wink_workspace.clock import SYSTEM_CLOCK
from wink_workspace.counts import counted, lasted, sized
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.sandbox import (
    AGENT_NAMES,
    DEFAULT_SANDBOX,
    SANDBOXES,
    Finding,
    ImageRecipe,
    SandboxImage,
    SandboxImages,
)

from .project import for_project, outside, settings_findings

_EVALUATING: Final = ("asteval", "python")  # the sandboxes that AstevalSection can use

_STATE_MARKS = {"good": ("✓", "green"), "limited": ("!", "yellow"), "missing": ("✗", "red")}


def sweep_sandboxes(context: CommandContext) -> tuple[str, ...]:
    """Remove what sandboxes of dead processes left, such as containers; their names."""
    swept: list[str] = []
    for name in SANDBOXES.names():
        try:
            swept += SANDBOXES.get(name).sweep(context.environment)
        except SandboxUnavailableError as error:
            message = f"leftovers of the sandbox {name} cannot be removed: {error}"
            context.err.print(printable(message), markup=False, style="yellow")
    return tuple(swept)


def doctor(
    context: CommandContext,
    directory: Annotated[Path, typer.Argument(help="A project; this directory by default.")] = (
        Path()
    ),
    json: JsonOption = False,
) -> int:
    """Check what sandboxes need on this machine, and say how to fix each problem.

    The exit code is 1 if no sandbox works, or a file of settings is wrong.

    It also shows the settings for a project, first of all its network list, and where each is from.
    """
    from rich.text import Text

    findings: list[Finding] = [*settings_findings(context, directory), _form(context)]
    for name in SANDBOXES.names():
        try:
            findings += SANDBOXES.get(name).examine(context.environment)
        except SandboxUnavailableError as error:
            findings.append(Finding(name, "package", "missing", error.message, error.hint))
    needed, usable = _needed(findings)
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            mark, style = _STATE_MARKS[finding.state if finding in needed else "limited"]
            line = Text(f"{mark} ", style=style)
            line.append(f"{finding.part:<11}", style="dim")
            line.append(f"{finding.name:<20}", style="bold")
            line.append(printable(finding.detail))
            context.out.print(line)
            if finding.fix:
                context.out.print(Text(f"{'':<33}{printable(finding.fix)}", style=style))
        if usable:
            context.out.print(f"✓ code can run in: {', '.join(usable)}", style="green")
    return int(any(finding.state == "missing" for finding in needed))


def _needed(findings: Sequence[Finding]) -> tuple[Sequence[Finding], Sequence[str]]:
    """What must not be missing, and the sandboxes that work.

    If one works, the others are optional, except one that the settings name.
    """
    broken = {each.part for each in findings if each.state == "missing"}
    usable = [name for name in SANDBOXES.names() if name not in broken]
    named = {each.detail.split()[0] for each in findings if each.name == "sandbox"}
    optional = broken.intersection(SANDBOXES.names()) - named if usable else frozenset[str]()
    return [each for each in findings if each.part not in optional], usable


def _form(context: CommandContext) -> Finding:
    """Whether the main branch and the forks of new workspaces are overlays or copies, and why."""
    support = context.storage.overlay_support()
    if support.available:
        return Finding("forks", "overlay", "good", support.reason)
    return Finding(
        "forks",
        "copy",
        "limited",
        f"each fork copies all files, because {support.reason}",
        "Overlays need Linux 5.11 or newer, a local file system such as ext4, xfs or tmpfs, and"
        " root or user namespaces for ordinary users. XDG_STATE_HOME moves the workspaces.",
    )


# eval


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """The options of ``eval``."""

    workspace: WorkspaceArgument
    file: Annotated[
        Path | None, typer.Argument(help="A file with the code; - for standard input.")
    ] = None
    code: Annotated[str | None, typer.Option("-c", help="The code itself.")] = None
    reads: Annotated[
        list[str] | None, typer.Option(help="A path that the code may read; all by default.")
    ] = None
    writes: Annotated[
        list[str] | None,
        typer.Option(help="A file that the code may create or replace; repeat for more."),
    ] = None
    sandbox: Annotated[
        str,
        typer.Option(help="asteval, or python for Python itself: all of the language."),
    ] = "asteval"
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.001, max=600, help="Seconds until it is killed.")
    ] = 5.0
    json: JsonOption = False


def evaluate(context: CommandContext, options: EvalOptions) -> int:
    """Evaluate isolated Python over a workspace's files; a failure leaves no trace in them.

    The exit code is 1 if the code failed.
    """
    from wink_workspace import serde
    from wink_workspace.prompt import Prompt
    from wink_workspace.runtime import ToolCall
    from wink_workspace.sections import AstevalSection

    if options.sandbox not in _EVALUATING:
        raise UsageError(
            f"eval cannot use the sandbox {options.sandbox!r}",
            hint=f"Use one of {', '.join(_EVALUATING)}, or the command exec.",
        )
    config = SANDBOXES.get(options.sandbox).config(timeout_s=options.timeout_s)
    # A person may replace a file without having read it, so there is no policy.
    section = AstevalSection(config=config, policies=())
    prompt = Prompt[None](ns="wink-workspace", key="eval", name="eval", sections=[section])
    arguments = {
        "code": _code(options),
        "reads": ["."] if options.reads is None else options.reads,
        "writes": options.writes or [],
    }
    with context.open_or_make(options.workspace) as workspace:
        call = workspace.execute(prompt, ToolCall.of("evaluate_python", arguments, id="eval")).event
    if options.json:
        result: object = None if call.value is None else serde.dump(call.value)
        print_json({"success": call.success, "message": call.message, "result": result})
        return 0 if call.success else 1
    context.out.print(printable(getattr(call.value, "stdout", "")), markup=False, end="")
    if not call.success:
        context.err.print(printable(call.message), markup=False, style="red")
        return 1
    value = getattr(call.value, "value", None)
    if value is not None:
        context.out.print(printable(value), markup=False)
    return 0


def _code(options: EvalOptions) -> str:
    file, code = options.file, options.code
    if (file is None) == (code is None):
        raise UsageError("there is not exactly one source of code", hint="Give a file or -c CODE.")
    if file is None:
        return code or ""
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{file} cannot be read: {why}", hint="Name a text file.") from error


# image


def default_images(context: CommandContext) -> SandboxImages:
    """The images of the default sandbox.

    Raises:
        UsageError: If it has none.
    """
    backend = SANDBOXES.get(DEFAULT_SANDBOX)
    if backend.images is None:
        raise UsageError(f"the sandbox {backend.name!r} has no images", hint="None is needed.")
    return backend.images(context.environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """The options of ``image build``."""

    names: Annotated[
        list[str] | None,
        typer.Argument(help="python, build, node; by default python."),
    ] = None
    source: Annotated[
        Path | None,
        typer.Option(
            help="Build the image of the project in this directory; by default here, if it has a"
            " wink-workspace.toml."
        ),
    ] = None
    packages: Annotated[
        list[str] | None, typer.Option(help="Debian packages for the project, as gcc,make.")
    ] = None
    requirements: Annotated[
        list[str] | None,
        typer.Option(help="A requirements.txt or pyproject.toml of the project; repeat for more."),
    ] = None
    lock: Annotated[
        str | None,
        typer.Option(help="A uv.lock, requirements.txt, or lock file of npm, pnpm or Yarn."),
    ] = None
    containerfile: Annotated[
        str | None, typer.Option(help="A Containerfile of the project, as its base.")
    ] = None
    set_up: Annotated[
        list[str] | None,
        typer.Option(help="A shell command that runs last; repeat for more."),
    ] = None
    agent: Annotated[
        list[str] | None,
        typer.Option(
            help=f"An agent program for `run --agent`: {', '.join(AGENT_NAMES)}; repeat for more."
        ),
    ] = None
    base: Annotated[
        str | None,
        typer.Option(
            help="For a project, the image to start from: python (the default), build, node, or"
            " a name. Otherwise a public image, such as debian:bookworm-slim."
        ),
    ] = None
    rebuild: Annotated[
        bool, typer.Option("--no-cache", help="Build again even if it is current.")
    ] = False
    json: JsonOption = False

    @property
    def has_recipe(self) -> bool:
        """Whether the options describe the image of a project."""
        given = (self.packages, self.requirements, self.lock, self.containerfile, self.set_up)
        return any(given)

    @property
    def recipe(self) -> ImageRecipe:
        """The recipe of the project's image."""
        from wink_workspace.sandbox.image_store import NODE_LOCKS

        names = (name for given in self.packages or [] for name in given.split(","))
        is_node = self.lock is not None and Path(self.lock).name in NODE_LOCKS
        return ImageRecipe(
            base=self.base or ("node" if is_node else "python"),
            packages=tuple(name.strip() for name in names if name.strip()),
            requirements=tuple(self.requirements or ()),
            lock=self.lock,
            containerfile=self.containerfile,
            set_up=tuple(self.set_up or ()),
            agents=tuple(self.agent or ()),
        )


def build_images(context: CommandContext, options: BuildOptions) -> None:
    """Build the images of sandboxes, or one with the dependencies of a project.

    An image that matches its recipe is not built again, nor a step of a project's image whose
    inputs are unchanged. All steps run in sandboxes that can only read package registries.
    """
    if options.names and (options.has_recipe or options.agent or options.source is not None):
        raise UsageError(
            "these are images of ours and options for a project",
            hint="Leave out the names; --base is the image to start from.",
        )
    recipe, context = (None, context) if options.names else _recipe(context, options)
    images = default_images(context)
    names = options.names or (images.usual_names if recipe is None else ())
    wanted = {name: images.reference(name) for name in names}
    if options.base is not None and len(wanted) > 1:
        raise UsageError("a base is for one image", hint="Name the image that starts from it.")
    built: list[SandboxImage] = []

    def show(line: str) -> None:
        context.err.print(printable(line), markup=False, style="dim")

    for name, reference in wanted.items():
        with context.spinner(f"building {reference}"):
            built.append(
                images.build(name, base=options.base, rebuild=options.rebuild, progress=show)
            )
    if recipe is not None:
        source = (options.source or Path()).resolve()
        with context.spinner(f"building the image of {source}"):
            built.append(
                images.build_project(
                    recipe,
                    source,
                    rebuild=options.rebuild,
                    confirmed=context.confirmed,
                    progress=show,
                )
            )
    if options.json:
        print_json([asdict(image) for image in built])
        return
    for image in built:
        context.out.print(f"{image.reference}: {image.size_bytes:,} bytes", markup=False)


def _recipe(
    context: CommandContext, options: BuildOptions
) -> tuple[ImageRecipe | None, CommandContext]:
    """What to build for a project: as the options say, else its settings; ``None`` for nothing.

    With it *context* for the project, with the files that the user confirmed.
    """
    from wink_workspace.project import PROJECT_FILE

    source = options.source or Path()
    if options.has_recipe:
        return options.recipe, outside(context, source)
    if options.source is None and not options.agent and not (source / PROJECT_FILE).exists():
        return None, context
    context = for_project(context, source.resolve(), asks=not options.json, needs_all=True)
    recipe = context.settings_for().recipe or options.recipe
    return recipe.with_agents(options.agent or ()), context


def list_images(context: CommandContext, json: JsonOption = False) -> None:
    """List our images and those of projects: whether each matches its recipe, its size and age."""
    listed = default_images(context).listed()
    if json:
        print_json([asdict(image) for image in listed])
        return
    now_s = SYSTEM_CLOCK.now().timestamp()
    rows = [
        (
            image.reference,
            printable(image.state),
            "" if image.size_bytes is None else f"{image.size_bytes:,}",
            lasted(now_s - image.created_s) if image.created_s else "",
        )
        for image in listed
    ]
    print_table(context.out, ("IMAGE", "STATE", "BYTES", "AGE"), rows)


def prune_images(
    context: CommandContext,
    older: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Delete what no build has used for this time, such as 12h."
        ),
    ] = "30d",
    keep_size: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Delete also the least recently used of the rest, until it has at most this size,"
            " such as 20G.",
        ),
    ] = "",
    with_current: Annotated[
        bool,
        typer.Option("--all", help="Delete also the images in use by projects that exist."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Delete images and caches of builds that were not used for a long time.

    These are images of projects, layers below them, images of older recipes, downloads, and results
    of steps. An image stays if a container uses it. The images of a project stay as long as its
    directory exists, except those that a newer build replaced.
    """
    from wink_workspace.project.settings import parse_seconds, parse_size

    report = default_images(context).prune(
        older_s=parse_seconds(older),
        keep_bytes=parse_size(keep_size) if keep_size else None,
        with_current=with_current,
        dry_run=dry_run,
    )
    if json:
        print_json({"dry_run": dry_run, **asdict(report)})
        return
    now_s = SYSTEM_CLOCK.now().timestamp()
    if report.removed:
        rows = [
            (
                printable(item.name),
                f"{item.size_bytes:,}",
                lasted(now_s - item.used_s) if item.used_s else "",
            )
            for item in report.removed
        ]
        heading = "WOULD BE DELETED" if dry_run else "DELETED"
        print_table(context.out, (heading, "BYTES", "LAST USED"), rows)
    for item in report.kept:
        line = f"{item.name} is kept: {item.kept_because}"
        context.err.print(printable(line), markup=False, style="yellow")
    done = "would free" if dry_run else "freed"
    context.out.print(
        f"{counted(len(report.removed), 'item')}; {done} at least {sized(report.freed_bytes)}",
        markup=False,
    )
