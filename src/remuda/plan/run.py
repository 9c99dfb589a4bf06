"""From a run's spec to the workload that backends and the supervisor see. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import BackendUnreachable, InputError
from remuda.base.ids import slug
from remuda.base.units import parse_interval, parse_size, show_duration
from remuda.plan.compile import UID, Plan, copy_of
from remuda.plan.model import (
    FILES_MARK,
    INDEX_MARK,
    Command,
    Failover,
    Group,
    Kind,
    NodePolicy,
    Pool,
    Replace,
    Resources,
    RestartRule,
    Role,
    Secret,
    Watch,
    Workload,
)
from remuda.plan.placing.place import KubernetesPlace, SlurmPlace
from remuda.specs.arrays import parse_array
from remuda.specs.kubernetes import KubernetesFields
from remuda.specs.places import NO_MACHINE, in_images, is_here
from remuda.specs.reading.resolve import ValueOrigin
from remuda.specs.reading.sbatch import refuse
from remuda.specs.reading.sbatch_options import BUILT_IN, options_of
from remuda.wire.fields import alike

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from remuda.plan.compile import Draft, PlanFacts
    from remuda.plan.context import Context
    from remuda.specs.gang import GangSpec
    from remuda.specs.reading.load import Loaded
    from remuda.specs.run import RunSpec

SCRIPT: Final = "script"
DEFAULT_RETRIES: Final = 10
SCRIPT_DIR: Final = "REMUDA_SCRIPT_DIR"
_UNBOUNDED: Final = 1_000_000
"""Failures of an indefinite run: its brake stops it earlier where it is hopeless."""
MODE, SOURCE, KEEP, ARRAY = "mode", "script", "keep_alive", "array"
"""Labels of a run: how it ends, the user's script, how long it was to be kept (seconds), the array as it was said."""


def run_name(spec: RunSpec) -> str:
    """The name that the user gave, or the script's without its ending."""
    return spec.name or slug(PurePosixPath(spec.script).stem)


def interpreter_of(text: str, name: str) -> tuple[str, ...]:
    """The words with which the kernel would run a script: program, and at most one argument.

    Args:
        text: the script.
        name: of the file, for messages.

    Raises:
        InputError: it is empty, or its first line does not say.
    """
    if not text.strip():
        raise InputError("the script is empty", where=name)
    first = text.split("\n", 1)[0]
    if not first.startswith("#!"):
        hint = "write `#!/bin/bash`, or `#!/usr/bin/env python3`, above everything else"
        raise InputError("the first line does not say what runs the script", hint=hint, where=f"{name}:1")
    if first.endswith("\r"):
        hint = f"convert them: sed -i 's/\\r$//' {name}"
        raise InputError("the lines end as on Windows (CR LF), so its interpreter would not be found", hint=hint,
                         where=f"{name}:1")  # fmt: skip
    words = first[2:].strip().split(maxsplit=1)
    if not words or not words[0].startswith("/"):
        raise InputError(f"{first!r} does not name a program with its whole path", where=f"{name}:1")
    return tuple(words)


def compile_run(draft: Draft[RunSpec], context: Context, facts: PlanFacts) -> Plan:
    """Plan a run.

    Raises:
        InputError: it cannot be planned; `where` is the dotted path of the field.
        BackendUnreachable: its partition is to be chosen, and the cluster does not answer.
    """
    spec, head = draft.spec, draft.head
    assert head is not None
    backend = spec.backend or ("slurm" if context.has_sbatch else "local")
    refuse_elsewhere(spec, backend)
    pools, notes = asked_pools(spec, backend, facts)
    takes = facts.sbatch_options() if spec.sbatch_args and not is_here(backend) else BUILT_IN
    for option, _ in options_of(spec.sbatch_args, "sbatch_args", takes):
        refuse(option, "sbatch_args")
    workload = plan_run(
        spec, context, name=draft.name, backend=backend, script=draft.script, pools=pools,
        directives=head.options, spec_file=draft.loaded.file,
    )  # fmt: skip
    if in_images(backend):
        workload = carried(workload, spec, draft.text)
    workload = workload.model_copy(update={"files": {copy_of(context, draft.name, draft.script): draft.text}})
    alone = (f"it runs on this machine: {': '.join(NO_MACHINE)}",) if context.is_alone and spec.backend is None else ()
    return Plan(workload, spec, (*alone, *head.notes, *notes_of(draft.loaded, backend, head.options), *notes), draft)


def asked_pools(spec: RunSpec, backend: str, facts: PlanFacts) -> tuple[tuple[Pool, ...], tuple[str, ...]]:
    """Where it may run, best first, and notes."""
    if in_images(backend) or is_here(backend):
        refuse_nodes(spec, backend)
        return (), ()
    try:
        found = facts.pools(spec)
    except BackendUnreachable as error:
        if not spec.partitions:
            raise BackendUnreachable(
                f"the cluster does not answer, so no partition can be chosen: {error}",
                hint="name them: --partitions a,b; to run on this machine: --backend local",
            ) from error
        listed = tuple(Pool(name=name, place={"partition": name}) for name in spec.partitions)
        return listed, (f"the cluster does not answer, so the partitions are taken unchecked: {error}",)
    return found.pools, found.notes


def plan_run(
    spec: RunSpec, context: Context, *, name: str, backend: str, script: str, pools: Sequence[Pool] = (),
    directives: tuple[str, ...] = (), spec_file: str = "",
) -> Workload:  # fmt: skip
    """The workload of a run.

    Args:
        spec: as loaded, with all overrides.
        context: where the command was typed.
        name: of the run.
        backend: type of the backend.
        script: absolute path of the user's script; a copy of it is run.
        pools: where it may run, best first.
        directives: options of `#SBATCH` lines that are handed on.
        spec_file: where the user wrote the spec, for messages.
    """
    cwd = spec.workdir or context.cwd
    command = Command(
        argv=(copy_of(context, name, script), *spec.args),
        env={**spec.env, SCRIPT_DIR: str(PurePosixPath(script).parent)},
        secret_env={key: Secret(**dict(source)) for key, source in spec.secret_env.items()},
        cwd=cwd,
    )
    return Workload(
        name=name,
        kind=Kind.RUN,
        uid=UID,
        backend=backend,
        place=place_of(spec, backend, context, cwd, directives),
        groups=(_in_array(script_group(spec, command, pools), spec),),
        run_dir=context.run_dir(name),
        spec_file=spec_file or spec.script,
        labels={MODE: spec.mode, SOURCE: script, **({KEEP: f"{spec.keep_alive:g}"} if spec.keep_alive else {}),
                **({ARRAY: spec.array} if spec.array else {})},
    )  # fmt: skip


def carried(workload: Workload, spec: RunSpec | GangSpec, text: str) -> Workload:
    """What runs in an image, which has nothing of its user's machine: a script travels with the plan."""
    (group,) = workload.groups
    command = group.command
    changes: dict[str, object] = {
        "env": {key: value for key, value in command.env.items() if key != SCRIPT_DIR},
        "image": spec.image or "", "cwd": spec.workdir or "",
    }  # fmt: skip
    if text:
        file = re.sub(r"[^\w.-]|^\.", "_", PurePosixPath(command.argv[0]).name)
        changes |= {"argv": (f"{FILES_MARK}/{file}", *command.argv[1:]), "files": {file: text}}
    group = group.model_copy(update={"command": command.model_copy(update=changes)})
    return workload.model_copy(update={"groups": (group,)})


def _in_array(group: Group, spec: RunSpec) -> Group:
    """The group of a run with a task for each index of its array; a task knows its own as in one of Slurm's.

    The number of the array is the workload's uid: it is the same for all tasks and attempts, whatever job each is, and
    no other array ever had it.
    """
    if not spec.array:
        return group
    array = parse_array(spec.array)
    known = {
        "TASK_ID": INDEX_MARK, "TASK_COUNT": str(len(array.indices)), "TASK_MIN": str(array.indices[0]),
        "TASK_MAX": str(array.indices[-1]), "JOB_ID": UID,
    }  # fmt: skip
    env = {**group.command.env, **{f"SLURM_ARRAY_{name}": value for name, value in known.items()}}
    return group.model_copy(update={
        "count": len(array.indices), "indices": array.indices, "at_most": array.at_most,
        "command": group.command.model_copy(update={"env": env}),
    })  # fmt: skip


def script_group(spec: RunSpec, command: Command, pools: Sequence[Pool]) -> Group:
    """The only group of a run: `command`, with all that is done for it.

    Args:
        spec: of the run.
        command: what is started.
        pools: where it may run, best first.
    """
    warn_signal, warn_before = spec.warning()
    return Group(
        name=SCRIPT,
        role=Role.SCRIPT,
        count=1,
        command=command,
        resources=Resources(
            gpus=spec.gpus,
            gpu_type=spec.gpu_type or "",
            cpus=spec.cpus_per_task or 0,
            mem_bytes=parse_size(spec.mem) if spec.mem else 0,
            mem_field="mem",
            nodes=spec.nodes,
            time_limit_s=spec.time_limit,
        ),
        restart=RestartRule(policy="never"),
        replace=_replace(spec),
        kill_grace_s=spec.kill_grace,
        pools=tuple(pools),
        failover=Failover(
            retry_per_pool=spec.retry_per_partition, reset_to_preferred_s=spec.reset_to_preferred, hedge=spec.hedge
        ),
        nodes=NodePolicy(exclude=not spec.no_blacklist, ttl_s=spec.blacklist_ttl, limit=spec.blacklist_limit),
        watch=Watch(
            heartbeat_interval_s=spec.heartbeat_interval,
            heartbeat_grace_s=spec.heartbeat_grace,
            progress_stall_s=spec.progress_stall,
            gpu_check=spec.gpu_check,
            warn_signal=warn_signal,
            warn_before_s=warn_before,
        ),
        record_interval_s=parse_interval(spec.profile or 0),
    )


def with_settings(
    workload: Workload, spec: RunSpec, pools: Sequence[Pool] | None, now: float, *, keys: Collection[str]
) -> Workload:
    """A planned run with other settings.

    Args:
        workload: as it was planned.
        spec: its document with other values.
        pools: where its next attempt may run; None: as before.
        now: seconds since the epoch.
        keys: fields that were changed; what no other field follows from stays as it is.
    """
    old = workload.group(SCRIPT)
    new = script_group(spec, old.command, old.pools if pools is None else pools)
    begun = new.replace.begun(now)
    until = begun.until if "keep_alive" in keys else old.replace.until
    resources = {"time_limit_s": new.resources.time_limit_s, "mem_bytes": new.resources.mem_bytes,
                 "cpus": new.resources.cpus}  # fmt: skip
    group = old.model_copy(update={
        "resources": old.resources.model_copy(update=resources),
        "replace": begun.model_copy(update={"until": until}),
        "kill_grace_s": new.kill_grace_s, "pools": new.pools, "failover": new.failover, "nodes": new.nodes,
        "watch": new.watch, "record_interval_s": new.record_interval_s,
    })  # fmt: skip
    has_them = not (workload.is_here or in_images(workload.backend))
    place = {key: getattr(spec, key) or "" for key in _PLACE_KEYS & set(keys)} if has_them else {}
    kept = {key: value for key, value in {**workload.place, **place}.items() if value != ""}
    labels = {key: value for key, value in workload.labels.items() if key != KEEP}
    labels |= {KEEP: f"{spec.keep_alive:g}"} if spec.keep_alive else {}
    return workload.model_copy(update={"groups": (group,), "place": kept, "labels": labels})


_PLACE_KEYS: Final = frozenset({"account", "qos", "constraint", "reservation", "exclude_nodes", "node_list"})


def retries_of(workload: Workload) -> int | None:
    """Restarts after failures that a run has; None: no bound."""
    retries = workload.groups[0].replace.max_failures - 1
    return retries if retries < _UNBOUNDED else None


def _replace(spec: RunSpec) -> Replace:
    is_once = spec.mode == "run_once"
    retries = spec.max_retries if spec.max_retries is not None else (DEFAULT_RETRIES if is_once else _UNBOUNDED)
    return Replace(
        policy="on-failure" if is_once else "always",
        max_failures=retries + 1,
        backoff_initial_s=spec.backoff_base,
        backoff_max_s=spec.backoff_max,
        heal_after_s=spec.heal_after,
        quick_s=spec.quick_failure,
        keep_s=spec.keep_alive,
        user_cancel="stop",
    )


def place_of(
    spec: RunSpec, backend: str, context: Context, cwd: str, directives: tuple[str, ...] = ()
) -> dict[str, object]:
    """The settings that only the backend understands."""
    if in_images(backend):
        return kubernetes_place(spec, context)
    return {**context.place, "home": ""} if is_here(backend) else slurm_place(spec, context, directives, cwd)


def slurm_place(spec: RunSpec, context: Context, directives: tuple[str, ...], cwd: str) -> dict[str, object]:
    """The settings that only Slurm understands; what is empty is left out."""
    said = {name: value for name, value in alike(SlurmPlace, spec).items() if value is not None}
    place = SlurmPlace(**said | {
        "directives": directives, "args": spec.sbatch_args, "workdir": cwd,
        "python": spec.python or context.nodes_python, "env": dict(context.env),
    })  # fmt: skip
    return dict(place.model_dump(mode="json", exclude_defaults=True))


def kubernetes_place(spec: KubernetesFields, context: Context) -> dict[str, object]:
    """The settings that only Kubernetes understands; what is empty is left out."""
    said = {name: value for name, value in alike(KubernetesPlace, spec).items() if value is not None and name != "env"}
    if spec.kubeconfig and spec.kubeconfig[0] not in "/~":  # the host is elsewhere
        said["kubeconfig"] = f"{context.cwd}/{spec.kubeconfig}"
    return dict(KubernetesPlace(**said).model_dump(mode="json", exclude_defaults=True))


def notes_of(loaded: Loaded[Any], backend: str, directives: Sequence[str] = ()) -> tuple[str, ...]:
    """One sentence for each thing that is done otherwise than what was said for it may suggest."""
    spec = loaded.spec
    if not (is_here(backend) or in_images(backend)):
        limit = show_duration(spec.time_limit)
        none = not spec.warning()[1] and spec.time_limit
        return (f"its time limit of {limit} leaves no time for a warning before it: none is given",) if none else ()
    names = ("partitions", "account", "qos", "constraint", "reservation", "exclude_nodes", "node_list", "sbatch_args",
             "modules", "preamble", "output", "error", "min_vram", "max_vram", "gpu_type", "mem", "time_limit", "hedge",
             "requeue", "mail_user")  # fmt: skip
    is_apart = in_images(backend)
    usual = (ValueOrigin.ENVIRONMENT, ValueOrigin.DEFAULTS)  # there for all runs, wherever they go
    said = [name for name in names if getattr(spec, name, None) and not (is_apart and name in _OF_PODS)
            and loaded.origin(name).source not in usual]  # fmt: skip
    flags = [f"--{name.replace('_', '-')}" for name in said] + [word.partition("=")[0] for word in directives]
    where = "Kubernetes" if is_apart else "this machine"
    return (f"{', '.join(flags)}: not used on {where}",) if flags else ()


_OF_PODS: Final = frozenset({"gpu_type", "mem", "time_limit"})
"""What a pod has as a job of Slurm does."""


def refuse_nodes(spec: RunSpec, backend: str) -> None:
    """This machine is one node, and a pod is on one.

    Raises:
        InputError: more were asked for.
    """
    if spec.nodes > 1:
        what = "a pod is on one" if in_images(backend) else "this machine is one"
        raise InputError(f"`nodes` is {spec.nodes}, and {what}", hint="leave it out, or --backend slurm",
                         where="nodes")  # fmt: skip


def refuse_elsewhere(spec: RunSpec | GangSpec, backend: str) -> None:
    """A pod needs an image, and nothing else reads what is said of pods.

    Raises:
        InputError: it is missing, or of another backend.
    """
    if in_images(backend):
        if not spec.image:
            raise InputError(f"a {spec.kind} on Kubernetes needs an image", where="image",
                             hint="--image registry/name:tag, with Python 3.9 or newer in it")  # fmt: skip
        if spec.profile:
            raise InputError("recordings of GPUs do not come back from pods yet", hint="leave it out", where="profile")
        return
    for name in KubernetesFields.model_fields:
        if name in spec.model_fields_set:
            raise InputError(f"`{name}` is for {spec.kind}s on Kubernetes, and this one is on {backend}",
                             hint="add --backend kubernetes, or leave it out", where=name)  # fmt: skip
