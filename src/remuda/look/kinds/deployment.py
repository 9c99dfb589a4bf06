"""Deployments: workers by role behind a frontend; a recipe, or a document of our own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.base.disk.paths import is_path
from remuda.base.errors import InputError
from remuda.base.extras import need_accuracy, need_batch
from remuda.base.ids import check_name, slug
from remuda.bench.judging.verdict import read_thresholds
from remuda.look import deployment_checks, deployment_records, planning, recipes
from remuda.look.kinds import WorkKind
from remuda.look.rendering import ask_backends
from remuda.plan.compile import Draft, Finding
from remuda.plan.deployment.compile import PACKAGES, compile_deployment, compile_serving
from remuda.plan.deployment.preflight import check_ports
from remuda.plan.identity import CONFIG
from remuda.specs.deployment import ANSWERS, LOADS
from remuda.specs.reading.document import fail
from remuda.specs.reading.shapes import refuse_other

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan
    from remuda.specs.deployment import DeploymentSpec
    from remuda.specs.recipe.load import Recipe


def read(
    target: str, settings: Sequence[str] = (), unset: Sequence[str] = (), *, name: str = "", backend: str = "",
    cluster_file: Path | None = None,
) -> Draft[DeploymentSpec]:  # fmt: skip
    """Read the one recipe, or document of our own, that is to be brought up.

    Args:
        target: `FILE` or `FILE:SELECTOR`, which names one.
        settings: `KEY=VALUE` in the words of the file.
        unset: keys to take out of it.
        name: of the deployment; wins over the file.
        backend: `local` or `slurm`, in place of what the file says.
        cluster_file: instead of the one that is found.

    Raises:
        InputError: something is wrong; says where.
    """
    refuse_other(target, "deployment")
    found = recipes.resolve(target, settings, unset, backend=backend, cluster_file=cluster_file)
    if len(found) > 1:
        there = ", ".join(f"{found[0].loaded.file}:{one.selector}" for one in found[:5])
        raise InputError(f"contains {len(found)} recipes; select one", hint=f"name it: {there}", where=target)
    return draft_of(found[0], name)


def plan(
    facts: Looked, target: str, settings: Sequence[str] = (), unset: Sequence[str] = (), name: str = "",
    backend: str = "", cluster_file: str = "",
) -> list[Plan]:  # fmt: skip
    """What `apply` says, planned; see `read`."""
    cluster = Path(cluster_file) if cluster_file else None
    draft = read(target, settings, unset, name=name, backend=backend, cluster_file=cluster)
    return [planning.plan("deployment", draft, facts)]


def plan_sweep(
    facts: Looked, targets: Sequence[str], name: str = "", cluster_file: str = "", **said: Any
) -> dict[str, list[tuple[Recipe, Plan]]]:
    """What `apply --sweep` says, by config: of each only what it is known by, see `compile_serving`."""
    cluster = Path(cluster_file) if cluster_file else None
    found: dict[str, list[tuple[Recipe, Plan]]] = {}
    plans: dict[str, Plan] = {}
    for target in targets:
        refuse_other(target, "deployment")
        for one in recipes.resolve(target, cluster_file=cluster, sweep=True, **said):
            draft, bench = draft_of(one, name), one.loaded.spec.benchmark
            if bench.type == "manual":
                hint = f"known: {', '.join((*LOADS, *ANSWERS))}, custom"
                raise one.loaded.locate(
                    InputError(f"{bench.type} measures no points", hint=hint, where="benchmark.type")
                )
            where = "benchmark.search" if bench.search is not None else "" if bench.type in LOADS else "benchmark.type"
            if where and one.point is not None and one.point.repeats > 1:
                sentence, hint = "measures no load twice", "leave `repeats` of `sweep` out"
                raise one.loaded.locate(InputError(sentence, hint=hint, where=where))
            served = draft.name + one.loaded.spec.model_dump_json(exclude={"benchmark"})
            plan = plans.get(served) or planning.compiled("deployment", draft, facts, compile_serving)
            plans[served] = plan
            bench = bench.model_copy(
                update={"tasks_dir": bench.tasks_dir and str(Path(bench.tasks_dir).expanduser().absolute())}
            )
            plan = replace(plan, spec=plan.spec.model_copy(update={"benchmark": bench}), draft=draft)
            found.setdefault(plan.workload.labels[CONFIG], []).append((one, plan))
    return found


def draft_of(recipe: Recipe, name: str = "") -> Draft[DeploymentSpec]:
    """A recipe with the name of its deployment: `name`, else what it says, else its file's.

    Raises:
        InputError: it cannot be one, or its workers have ports that cannot be; names all of them.
    """
    loaded = recipe.loaded
    if wrong := [loaded.problem(one.path, one.sentence) for one in check_ports(loaded.spec)]:
        raise fail(wrong)
    try:
        name = check_name(name or loaded.spec.name or slug(Path(loaded.file).stem), where="name")
    except InputError as error:
        raise loaded.locate(error) from error
    return Draft(loaded, name, notes=recipe.notes, derived=recipe.derived or {})


def _interpreter(plan: Plan, facts: Looked) -> Iterator[Finding]:
    python = plan.spec.python or ""
    is_seen = plan.workload.is_here or (is_path(python) and facts.sees(Path(python)))
    if python and is_seen and not facts.program(python):
        yield Finding(("python",), f"there is no interpreter {python!r}")


def _programs(plan: Plan, _: Looked) -> Iterator[Finding]:
    here = plan.workload.groups if plan.workload.is_here else ()
    started = {group.command.argv[0] for group in here}
    for name in (name for name in PACKAGES if name in started):
        hint = f"install it where the engine is: pip install {PACKAGES[name]}"
        yield Finding(("services",), f"there is no program {name} on this machine", hint=hint)


def _recipe(plan: Plan, facts: Looked) -> Iterable[Finding]:
    assert plan.draft is not None
    return deployment_checks.check(plan.draft.spec, facts)


def _extra(plan: Plan, _: Looked) -> Iterator[Finding]:
    """What its benchmark is measured with."""
    bench = plan.spec.benchmark
    try:
        read_thresholds(bench.validity)
    except InputError as error:
        yield Finding(("benchmark", "validity"), error.message, hint=error.hint)
    if bench.type in LOADS:
        need_batch("its benchmark takes")
    if bench.type not in ANSWERS:
        return
    need_accuracy("its benchmark takes")
    if bench.type == "gpqa" and bench.hub_token is None and "HF_HOME" not in bench.env:
        hint = "name the variable that holds yours: hub_token: {env: HF_TOKEN}, or HF_HOME in `env` where they lie"
        yield Finding(("benchmark", "type"), "the questions of gpqa are gated, and no token is named", hint=hint)
    if bench.tasks_dir and not Path(bench.tasks_dir).is_dir():
        yield Finding(("benchmark", "tasks_dir"), f"there is no folder {bench.tasks_dir}")


KIND = WorkKind(
    compile_deployment, (_interpreter, _programs, _recipe), (_extra, ask_backends), (deployment_checks.machine,),
    record=deployment_records.files, needs_gpus=lambda spec: spec.backend.is_here,
)  # fmt: skip
