"""Runs: a script, or a document that names one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from remuda.base.errors import InputError
from remuda.base.ids import check_name
from remuda.control.kinds import WorkKind
from remuda.look.scripts import find_script, read_script
from remuda.plan.compile import Draft, Finding
from remuda.plan.run import compile_run, run_name
from remuda.specs.directives import read_directives
from remuda.specs.load import DOCUMENTS, Loaded, build, read_document
from remuda.specs.places import is_here
from remuda.specs.resolve import Override, document_layer, override_layer, resolve
from remuda.specs.resolve import Source as From
from remuda.specs.sbatch_options import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan
    from remuda.specs.document import Document
    from remuda.specs.run import RunSpec


def read(file: str, overrides: Sequence[Override], facts: Looked, taken: set[str]) -> Draft[RunSpec]:
    """Read a script, or a document of kind run.

    Args:
        file: of either.
        overrides: from the command line; they win.
        facts: of the command.
        taken: names that its other runs have; scripts that are called alike get a number.

    Raises:
        InputError: something is wrong; says where.
    """
    document = read_document(file) if Path(file).suffix in DOCUMENTS else None
    said = [*overrides] if document else [Override("script", file, "SCRIPT"), *overrides]
    script = _script_of(document, said)
    text = read_script(script)
    head = read_directives(text, str(script), facts.sbatch_options() if "#SBATCH" in text else BUILT_IN)
    defaults, settings = facts.usual()
    loaded = cast(
        "Loaded[RunSpec]",
        build(
            document, said, expect="run", defaults=defaults, settings=settings,
            script=[head.sbatch, head.own],
        ),
    )  # fmt: skip
    if loaded.kind != "run":
        raise InputError(f"is a {loaded.kind}, and a run is needed here", where=file)
    try:
        name = _free(check_name(run_name(loaded.spec), where="name"), taken)
    except InputError as error:
        raise loaded.locate(error) from error
    return Draft(loaded, name, str(script.absolute()), text, head)


def _free(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted[:58]}-{number}"
    taken.add(name)
    return name


def _script_of(document: Document | None, said: Sequence[Override]) -> Path:
    """The script that is meant, before anything else is known."""
    layers = [document_layer(document, From.FILE)] if document else []
    script = resolve([*layers, override_layer(said)]).data.get("script")
    if not isinstance(script, str) or not script:
        raise InputError("`script` is required", hint="the file to run", where=document.name if document else "")
    return find_script(script, document.name if document else "")


def _workdir(plan: Plan, _: Looked) -> Iterator[Finding]:
    """Where it is to run."""
    workdir = plan.spec.workdir
    if not workdir or Path(workdir).is_dir():
        return
    if plan.workload.is_here:
        yield Finding(("workdir",), f"there is no directory {workdir!r}", hint="make it first")
    else:
        words = f"the working directory {workdir} is not to be seen here; the nodes need it"
        yield Finding((), words, fails=False)


def _needs_gpus(spec: RunSpec) -> bool:
    return bool(spec.gpus) and (spec.backend is None or is_here(spec.backend))


KIND = WorkKind(compile_run, (_workdir,), needs_gpus=_needs_gpus)
