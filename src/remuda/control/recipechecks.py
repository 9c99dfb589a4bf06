"""What of a deployment cannot work, told from its recipe and the files that it names: cheap, before `apply`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.backends.container import in_registry
from remuda.base.errors import InputError, RemudaError
from remuda.base.files import read_whole
from remuda.base.paths import StatePaths, is_path
from remuda.control.preflight import apart, is_shared
from remuda.control.wiring import slurm_backend
from remuda.plan.deployment import SRTCTL_FOLDERS, image_of, mounts_of
from remuda.plan.deployment.preflight import Finding, check_spec, heads_of
from remuda.specs.document import Problem, fail
from remuda.specs.fields import leaves
from remuda.specs.resolve import Source

if TYPE_CHECKING:
    from remuda.specs import document
    from remuda.specs.deployment import DeploymentSpec
    from remuda.specs.recipe.load import Recipe

_MODEL: Final = ("model", "path")
_MOST_BYTES: Final = 4 * 1024 * 1024


def refuse(recipe: Recipe, root: Path) -> None:
    """Let pass what nothing speaks against.

    Args:
        recipe: of a deployment.
        root: state directory, which nodes see, too.

    Raises:
        InputError: something fails; names all of it, with its place.
    """
    problems = [located(recipe, one) for one in check(recipe.loaded.spec, root) if one.fails]
    if problems:
        raise fail(problems)


def located(recipe: Recipe, finding: Finding) -> Problem:
    """The finding where the recipe says what it is about, else above or below that, else at the file."""
    resolved = recipe.loaded.resolved
    for end in range(len(finding.path), 0, -1):
        path = finding.path[:end]
        if resolved.says(path):
            said = resolved.origin(path)
            origin = said if said.source is Source.CLI else resolved.key(path)
            return Problem(origin.where, finding.sentence, "", (origin.line, origin.column))
        below = [mark for layer in resolved.layers for at, mark in layer.keys.items() if at[:end] == path]
        if below:
            origin = min(below, key=lambda mark: (mark.line, mark.column))
            return Problem(origin.where, finding.sentence, "", (origin.line, origin.column))
    return Problem(recipe.loaded.file, finding.sentence)


def check(spec: DeploymentSpec, root: Path) -> list[Finding]:
    """All that the spec and the files that it names tell."""
    found, heads = _model(spec, root)
    return [*found, *_images(spec, root), *_mounted(spec), *check_spec(spec, heads)]


def _model(spec: DeploymentSpec, root: Path) -> tuple[list[Finding], int]:
    """What is wrong with the model, and its attention heads; 0 where they are not known."""
    said, path = spec.model.path, Path(spec.model.path).expanduser()
    if not is_path(said):
        is_remote = said.startswith("hf:") or "/" in said
        why = "it is not on this machine" if is_remote else "it is no folder, and no name in the cluster file"
        why = f"it is a name, and the folder here is ./{said}" if path.exists() else why
        return [Finding(_MODEL, f"the model {said!r} is not checked: {why}", fails=False)], 0
    if elsewhere := _elsewhere(spec, path, root, "model"):
        return [Finding(_MODEL, elsewhere, fails=False)], 0
    is_llamacpp = any(spec.engine_of(name).type == "llamacpp" for name in spec.by_name())
    if is_llamacpp and path.suffix == ".gguf" and path.is_file():
        return [], 0
    if not path.is_dir():
        what = "there is no .gguf file of a model" if is_llamacpp else "there is no folder of a model"
        return [Finding(_MODEL, f"{what} {said!r}")], 0
    config = path / "config.json"
    if not config.is_file():
        return [Finding(_MODEL, f"the folder of the model {said!r} has no config.json")], 0
    try:
        return [], heads_of(json.loads(read_whole(config, _MOST_BYTES)))
    except InputError as error:
        return [Finding(_MODEL, f"{config} {error.message}")], 0
    except (ValueError, RecursionError):
        return [Finding(_MODEL, f"{config} is not JSON")], 0
    except OSError as error:
        return [Finding(_MODEL, f"{config} cannot be read: {(error.strerror or '').lower()}")], 0


def _elsewhere(spec: DeploymentSpec, path: Path, root: Path, what: str) -> str:
    """Why it cannot be said that nodes lack a file that is not here; empty where it can."""
    if path.exists() or spec.backend.is_here or is_shared(path.absolute(), root):
        return ""
    return f"the {what} {str(path)!r} is not checked: nodes may see other files than this machine"


def _images(spec: DeploymentSpec, root: Path) -> list[Finding]:
    """Files of images that are not there. On this machine workers are in none."""
    if spec.backend.is_here:
        return []
    asked: dict[str, document.Path] = {spec.container: ("container",)} if spec.container else {}
    for name, role in spec.by_name().items():
        if role.container:
            asked.setdefault(role.container, ("roles", name, "container"))
    if spec.frontend.container:
        asked.setdefault(spec.frontend.container, ("frontend", "container"))
    found = []
    for image, where in asked.items():
        file, elsewhere = Path(image).expanduser(), ""
        if in_registry(image):
            sentence = "" if container_program(root) else (
                f"the container {image!r} is in a registry, and nothing here gets it from there: srun has no "
                "--container-image (Pyxis), and neither apptainer nor singularity is in the PATH"
            )  # fmt: skip
        elif not is_path(image):
            sentence = "" if "://" in image else f"the container {image!r} is a file: write its path, ./{image} or /…"
        else:
            elsewhere = _elsewhere(spec, file, root, "container")
            sentence = elsewhere or ("" if file.exists() else f"there is no container {image!r}")
        found += [Finding(where, sentence, fails=not elsewhere)] if sentence else []
    return found


def container_program(root: Path) -> str:
    """What starts images of a registry on the cluster, Pyxis also where Slurm cannot be asked; empty: nothing."""
    try:
        told = apart(slurm_backend(StatePaths(root)).client.commands.ask(("srun", "--help")))
    except RemudaError:
        return "pyxis"
    others = (name for name in ("apptainer", "singularity") if shutil.which(name))
    return "pyxis" if "--container-image" in told else next(others, "")


def _mounted(spec: DeploymentSpec) -> list[Finding]:
    """Words that begin with a folder of srtctl's containers, where a worker sees none of that name."""
    found = []
    for name, role in spec.by_name().items():
        image = image_of(spec, name)
        seen = {*mounts_of(spec, "/run")} if image else {one for one in SRTCTL_FOLDERS if Path(one).exists()}
        said: list[tuple[document.Path, object]] = [
            *((("roles", name, "args", *path), value) for path, value in leaves(role.args)),
            *((("roles", name, "env", key), value) for key, value in role.env.items()),
            *((("env", key), value) for key, value in spec.env.items()),
            *((("roles", name, "extra_args"), word.partition("=")[2] or word) for word in role.extra_args),
        ]
        for where, value in said:
            text = f"{value}/"
            folder = next((one for one in SRTCTL_FOLDERS if text.startswith(f"{one}/")), "")
            if not folder or any(text.startswith(f"{inside}/") for inside in seen):
                continue
            todo = f"mount it with `container_mounts`{SRTCTL_FOLDERS[folder]}" if image else "write its own path"
            who = f"the container of {name}" if image else f"{name}, which is in no container,"
            found.append(Finding(where, f"{who} sees no folder {folder}, and {str(value)!r} is in it: {todo}"))
    return found
