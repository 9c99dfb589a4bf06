"""Gangs: ranks that train together; a document, or a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from remuda.base.errors import InputError
from remuda.base.ids import check_name
from remuda.look import planning
from remuda.look.kinds import WorkKind
from remuda.look.kinds.run import is_taken, kept_variable
from remuda.look.scripts import find_script, read_script
from remuda.plan.compile import Draft, Finding
from remuda.plan.gang import RUN_ID, compile_gang, gang_name, own_rendezvous
from remuda.specs.gang import GangSpec
from remuda.specs.places import in_images, is_here
from remuda.specs.reading.load import assignment, load
from remuda.specs.reading.resolve import Override

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan
    from remuda.specs.reading.load import Loaded

_FLAGS: Final = {"kind": "gang run", "command": "--", "resources.gpus": "--gpus"}
"""Fields that are not called as their flag is."""


def read(file: str, overrides: Sequence[Override] = ()) -> Draft[GangSpec]:
    """Read a gang's document.

    Args:
        file: its document; empty where the overrides say all.
        overrides: from the command line; they win.

    Raises:
        InputError: something is wrong; says where.
    """
    found = load(file or None, overrides)
    if not isinstance(found.spec, GangSpec):
        hint = "begin the document with `kind: gang`" if found.kind == "run" else ""
        raise InputError(f"is a {found.kind}, and a gang is needed here", hint=hint, where=file)
    loaded = cast("Loaded[GangSpec]", found)
    try:
        name = check_name(gang_name(loaded.spec), where="name")
        if not loaded.spec.script:
            return Draft(loaded, name)
        script = find_script(loaded.spec.script, loaded.file)
        return Draft(loaded, name, str(script.absolute()), read_script(script))
    except InputError as error:
        raise loaded.locate(error) from error


def plan(
    facts: Looked, file: str = "", given: Mapping[str, Any] = {}, settings: Sequence[str] = (), env: Sequence[str] = (),
) -> list[Plan]:  # fmt: skip
    """What `gang run` or `gang up` says, planned: `given` are its flags by field, `file` is a document."""
    said = [Override(key, value, _FLAGS.get(key, f"--{key}")) for key, value in given.items()]
    draft = read(file, [*said, *map(assignment, settings), *map(kept_variable, env)])
    return [planning.plan("gang", draft, facts)]


def _start(plan: Plan, facts: Looked) -> Iterator[Finding]:
    """What would make every rank fail at once."""
    spec = plan.spec
    if in_images(spec.backend):
        return
    if spec.workdir and not Path(spec.workdir).is_dir():
        yield Finding(("workdir",), f"there is no directory {spec.workdir!r}", hint="make it first")
    elif spec.command:
        program = spec.command[0]
        found = Path(spec.workdir or ".", program).exists() if "/" in program else facts.program(program)
        if not found:
            hint = "it is looked for in PATH, or where the ranks start when it has a slash"
            here = is_here(spec.backend)
            words = f"there is no program {program!r}" + ("" if here else " here; the nodes need it")
            yield Finding(("command",), words, fails=here, hint=hint)


def _trained(plan: Plan, _: Looked) -> Iterator[Finding]:
    """What was trained there before."""
    folder = own_rendezvous(plan.workload)
    if folder and Path(folder).is_dir() and any(Path(folder).iterdir()):
        run_id = plan.workload.labels[RUN_ID]
        words = f"if {run_id!r} was trained before it goes on from there; to begin anew: -s run_id=OTHER ({folder})"
        yield Finding((), words, fails=False)


KIND = WorkKind(
    compile_gang, (_start, _trained), (is_taken,), needs_gpus=lambda spec: spec.resources.gpus and is_here(spec.backend)
)
