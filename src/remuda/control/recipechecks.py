"""What of a deployment cannot work, told from its recipe and the files that it names: cheap, before `apply`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.base.files import read_whole
from remuda.control.preflight import is_shared
from remuda.plan.deployment.preflight import Finding, check_spec, heads_of
from remuda.specs.document import Problem, fail
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
    return [*found, *_images(spec, root), *check_spec(spec, heads)]


def _model(spec: DeploymentSpec, root: Path) -> tuple[list[Finding], int]:
    """What is wrong with the model, and its attention heads; 0 where they are not known."""
    said, path = spec.model.path, Path(spec.model.path)
    if not path.is_absolute() and not path.exists():
        if said.startswith("hf:") or "/" in said:
            sentence = f"the model {said!r} is not checked: it is not on this machine"
        else:
            sentence = f"the model {said!r} is not checked: it is no folder, and no name in the cluster file"
        return [Finding(_MODEL, sentence, fails=False)], 0
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
    found = []
    for image, where in asked.items():
        if not image.startswith(("/", "./", "../")) or Path(image).exists():
            continue
        elsewhere = _elsewhere(spec, Path(image), root, "container")
        sentence = elsewhere or f"there is no container {image!r}"
        found.append(Finding(where, sentence, fails=not elsewhere))
    return found
