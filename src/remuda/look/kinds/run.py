"""Runs: a script, or a document that names one."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, cast

from remuda.base.errors import InputError
from remuda.base.ids import check_name
from remuda.base.secrets import looks_secret
from remuda.look import planning
from remuda.look.kinds import WorkKind
from remuda.look.rendering import ask_backends
from remuda.look.scripts import find_script, read_script
from remuda.plan.compile import Draft, Finding
from remuda.plan.run import compile_run, run_name
from remuda.specs.places import in_images, is_here
from remuda.specs.reading.directives import read_directives
from remuda.specs.reading.load import Loaded, assignment, build, read_document
from remuda.specs.reading.resolve import Override, document_layer, override_layer, resolve
from remuda.specs.reading.resolve import ValueOrigin as From
from remuda.specs.reading.sbatch import SbatchLine, take_options
from remuda.specs.reading.sbatch_options import BUILT_IN
from remuda.specs.reading.shapes import DOCUMENTS, refuse_other
from remuda.specs.strict import Plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan
    from remuda.specs.reading.document import Document
    from remuda.specs.run import RunSpec

_OF_SBATCH: Final = frozenset({"time", "gres", "job_name"})
"""Options that are read as sbatch reads them, because they mean fields with other words or units."""


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
    refuse_other(file, "run")
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


def plan(facts: Looked, scripts: Sequence[str], given: Mapping[str, Any], args: Sequence[str] = ()) -> list[Plan]:
    """What `run` says, planned: `given` are its flags by field, `args` what stands behind `--`; see `plan_runs`."""
    return plan_runs(scripts, [*_said(given), *([Override("args", list(args), "--")] if args else [])], facts)


def plan_runs(scripts: Sequence[str], overrides: Sequence[Override], facts: Looked) -> list[Plan]:
    """Plan the runs of one command. Nothing is started or written.

    Args:
        scripts: files, or documents of kind run.
        overrides: from the command line; they win.
        facts: of the command.

    Raises:
        InputError: something is wrong; says where.
        BackendUnreachable: a partition is to be chosen, and the cluster does not answer.
    """
    taken: set[str] = set()
    return planning.plan_together("run", [read(script, overrides, facts, taken) for script in scripts], facts)


def _said(given: Mapping[str, Any]) -> Iterator[Override]:
    """What the flags of `run` mean."""
    for key, value in given.items():
        flag = f"--{key.replace('_', '-')}"
        if key in _OF_SBATCH:
            yield from _as_sbatch(flag, value)
        elif key in _TEXTS:
            yield from map(_TEXTS[key], value)
        elif isinstance(value, (list, tuple)):
            yield Override(key, list(value), flag)
        else:
            yield Override(key, value if isinstance(value, bool) else Plain(value), flag)


def _as_sbatch(flag: str, value: str) -> Iterator[Override]:
    """What an option of sbatch's means for a run.

    Raises:
        InputError: it cannot be read, or means nothing that a run has.
    """
    try:
        taken = take_options([SbatchLine(0, f"{flag}={quote(value)}")], flag)
    except InputError as error:
        message = error.message.removeprefix(f"{error.where}: ")
        raise InputError(message, hint=error.hint, where=flag) from error
    if taken.options:
        raise InputError(f"{value!r} is not a number of GPUs of one type", where=flag,
                         hint=f"hand it to Slurm as it is: --sbatch-args={flag}={value}")  # fmt: skip
    return (Override(key, read, flag) for key, read in taken.layer.data.items())


def kept_variable(text: str) -> Override:
    """What `--env NAME=VALUE`, or `--env NAME` for the value here, means.

    Raises:
        InputError: the variable is not set.
    """
    name, equals, value = text.partition("=")
    flag = f"--env {name}"
    if not equals:
        if name not in os.environ:
            raise InputError(f"environment variable {name} is not set", hint=f"write --env {name}=VALUE", where=flag)
        if looks_secret(name):
            return Override(f"secret_env.{name}", {"env": name}, flag)
        value = os.environ[name]
    if value != value.encode(errors="ignore").decode():
        raise InputError(f"the value of {name} is not valid UTF-8", where=flag)
    return Override(f"env.{name}", value, flag)


_TEXTS: Final = {"env": kept_variable, "settings": assignment}
"""Flags whose values name the field."""


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
    if not workdir or Path(workdir).is_dir() or in_images(plan.workload.backend):
        return
    if plan.workload.is_here:
        yield Finding(("workdir",), f"there is no directory {workdir!r}", hint="make it first")
    else:
        words = f"the working directory {workdir} is not to be seen here; the nodes need it"
        yield Finding((), words, fails=False)


def is_taken(plan: Plan, facts: Looked) -> Iterator[Finding]:
    """A cluster of Kubernetes is asked beforehand; Slurm says it when the job is submitted."""
    return ask_backends(plan, facts) if in_images(plan.workload.backend) else iter(())


KIND = WorkKind(
    compile_run, (_workdir,), (is_taken,),
    needs_gpus=lambda spec: spec.gpus and (spec.backend is None or is_here(spec.backend)),
)  # fmt: skip
