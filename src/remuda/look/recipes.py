"""Recipes and deployments, read and resolved: what every value is, and who said it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.disk.paths import state_paths
from remuda.base.errors import InputError
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import assignment, read_document
from remuda.specs.reading.shapes import holds_recipes
from remuda.specs.recipe import cluster as clusters
from remuda.specs.recipe.load import Recipe, build, split_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.specs.reading.resolve import Override


def resolve(
    target: str,
    settings: Sequence[str] = (),
    unset: Sequence[str] = (),
    *,
    backend: str = "",
    cluster_file: Path | None = None,
    sweep: bool = False,
) -> list[Recipe]:
    """The deployments that a file says, checked.

    Args:
        target: `FILE` or `FILE:SELECTOR`.
        settings: `KEY=VALUE` in the words of the file; they win.
        unset: keys to take out of it.
        backend: `local` or `slurm`, in place of what the file says.
        cluster_file: instead of the one that is found.
        sweep: each recipe stands for those of its section `sweep`.

    Raises:
        InputError: something is wrong; says where.
    """
    file, notes = (cluster_file, ()) if cluster_file else clusters.find(Path.cwd(), state_paths().root)
    if file is not None and not file.is_file():
        said = "--cluster" if cluster_file is not None else "SRTSLURM_CONFIG"
        raise InputError(f"there is no cluster file {str(file)!r}, which {said} names")
    overrides = [_structured(assignment(text)) for text in settings]
    path, selector = split_target(target)
    cluster = clusters.read(file, notes)
    return build(
        read_document(path, holds_recipes), selector, overrides, unset, cluster=cluster, backend=backend, sweep=sweep
    )


def _structured(override: Override) -> Override:
    """Lists, mappings and null are written as in the file: `[1, 2]`, `{a: b}`; every other value stays the text it is.

    Raises:
        InputError: it begins as one, and is none.
    """
    text = override.value
    if text == "null":
        return replace(override, value=None)
    if not isinstance(text, str) or text[:1] not in ("[", "{"):
        return override
    return replace(override, value=parse(f"value: {text}", override.origin).data["value"])
