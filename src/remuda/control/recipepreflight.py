"""`remuda preflight`: what of a deployment would fail, looked for on this machine before anything is started."""

from __future__ import annotations

import re
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.backends.local.devices import gpu_type, present_gpus
from remuda.base.errors import BackendUnreachable, InputError
from remuda.base.paths import from_here, state_paths
from remuda.base.text import clean, did_you_mean
from remuda.base.units import show_counted
from remuda.control import deployments, recipechecks, recipes
from remuda.control.preflight import apart
from remuda.control.wiring import slurm_backend
from remuda.look.engines import help_text
from remuda.node.fatal import is_slow
from remuda.node.ports import is_free
from remuda.node.scan import BURST_S
from remuda.plan.deployment.preflight import Finding, check_flags, gpus_of, help_argv
from remuda.plan.deployment.terms import host_of
from remuda.plan.gpus import is_kind
from remuda.specs.deployment import SlurmDeployment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from remuda.backends.base import Cluster, Node
    from remuda.base.paths import StatePaths
    from remuda.specs.deployment import DeploymentSpec
    from remuda.specs.recipe.load import Recipe

_PORT: Final = ("frontend", "port")
_PARTITION: Final = ("backend", "partition")
_HELP_KEPT_S: Final = 60.0
"""Roles with one engine ask it once; an engine that was updated is asked again."""


@dataclass(frozen=True)
class Looked:
    """What was seen of one deployment."""

    file: str
    selector: str
    failures: list[str] = field(default_factory=list)
    """A sentence each, with the place in the recipe where there is one."""
    notes: list[str] = field(default_factory=list)
    """What is worth a look, and what could not be checked."""


def look(
    target: str,
    settings: Sequence[str] = (),
    unset: Sequence[str] = (),
    *,
    backend: str = "",
    cluster_file: Path | None = None,
) -> list[Looked]:
    """Check the deployments of a file. Nothing is started, and nothing is written but the help of engines.

    Args:
        target: `FILE` or `FILE:SELECTOR`.
        settings: `KEY=VALUE` in the words of the file.
        unset: keys to take out of it.
        backend: `local` or `slurm`, in place of what the file says.
        cluster_file: instead of the one that is found.

    Raises:
        InputError: it is no recipe.
    """
    paths, seen = state_paths(), []
    for recipe in recipes.resolve(target, settings, unset, backend=backend, cluster_file=cluster_file):
        one = Looked(recipe.loaded.file, recipe.selector, notes=list(recipe.notes))
        found = [*recipechecks.check(recipe.loaded.spec, paths.root), *_machine(recipe.loaded.spec, paths)]
        for finding in found:
            problem = recipechecks.located(recipe, finding)
            sentence = clean(f"{problem.where}: {problem.message}", one_line=True)
            (one.failures if finding.fails else one.notes).append(sentence)
        one.failures.extend(_refused(recipe))
        seen.append(one)
    return seen


def _refused(recipe: Recipe) -> list[str]:
    """Why it could not be planned."""
    try:
        deployments.plan_recipe(recipe)
    except InputError as error:
        first, *others = str(error).splitlines()
        return [f"{first} ({error.hint})" if error.hint else first, *others]
    return []


def _machine(spec: DeploymentSpec, paths: StatePaths) -> list[Finding]:
    found = [*_engines(spec, paths), *_patterns(spec)]
    if isinstance(spec.backend, SlurmDeployment):
        try:
            return found + on_cluster(spec, apart(slurm_backend(paths).cluster()))
        except BackendUnreachable as error:
            return [*found, Finding((), f"the cluster is not checked: {error.message}", fails=False)]
    needs = sum((gpus_of(spec, name) or 0) * role.workers for name, role in spec.by_name().items())
    return [*found, *on_machine(spec, needs, present_gpus(), gpu_type() if needs else ""), *_port(spec)]


def _engines(spec: DeploymentSpec, paths: StatePaths) -> list[Finding]:
    """Flags that engines do not know, asked where the engine is at hand."""
    python = from_here(spec.python or sys.executable)
    is_local = spec.backend.is_here
    if is_local and not shutil.which(python):
        return [Finding(("python",), f"there is no interpreter {python!r}")]
    found: list[Finding] = []
    for name, role in spec.by_name().items():
        if not role.args and not role.extra_args:
            continue
        engine, image = spec.engine_of(name).type, role.container or spec.container
        argv = help_argv(spec, name, python)
        findings = None
        if not argv:
            why = f"{engine} takes them from a file"
        elif image and not is_local:
            why = f"{engine} is in the container {image}"
        elif not shutil.which(python):
            why = f"there is no interpreter {python!r} on this machine"
        else:
            why = f"{python} does not print those of {argv[2]}"
            findings = check_flags(spec, name, help_text(argv, {**spec.env, **role.env}, paths, _HELP_KEPT_S))
        unchecked = Finding(("roles", name), f"flags of {name} are not checked: {why}", fails=False)
        found += findings if findings is not None else [unchecked]
    return found


def _patterns(spec: DeploymentSpec) -> Iterator[Finding]:
    for pattern in spec.health_check.extra_fatal_log_patterns:
        with suppress(re.error):  # The plan says so.
            if is_slow(pattern):
                words = f"{pattern!r} goes back and forth: a search took {BURST_S:g} s of CPU time; workers give it up"
                yield Finding(("health_check", "extra_fatal_log_patterns"), words, fails=False)


def on_machine(spec: DeploymentSpec, needs: int, present: Sequence[str], kind: str) -> list[Finding]:
    """What this machine lacks. Pure.

    Args:
        spec: of the deployment.
        needs: GPUs of all workers together.
        present: ids of the GPUs of this machine.
        kind: what they are, as their maker names them; empty where that is not known.
    """
    usable: Sequence[str] | None = getattr(spec.backend, "gpus", None)
    if absent := [gpu for gpu in usable or () if gpu.isdigit() and gpu not in present]:
        return [Finding(("backend", "gpus"), f"no GPU {', '.join(absent)} can be seen on this machine")]
    has = f"this machine has {len(present)}" if usable is None else f"backend.gpus names {len(usable)}"
    if needs > len(present if usable is None else usable):
        return [Finding(("roles",), f"{needs} GPUs are needed by all workers together, and {has}")]
    if needs and kind and spec.gpu_type and not is_kind(spec.gpu_type, kind):
        return [Finding(("gpu_type",), f"GPUs of this machine are {kind}, not {spec.gpu_type}")]
    return []


def _port(spec: DeploymentSpec) -> list[Finding]:
    host, port = host_of(spec), spec.frontend.port
    if port is None:
        return []
    try:
        if is_free(host, port, reuse=True):
            return []
    except OSError as error:
        return [
            Finding(("frontend", "host"), f"nothing can listen on {host}: {(error.strerror or str(error)).lower()}")
        ]
    return [Finding(_PORT, f"port {port} on {host} is in use by another program")]


def on_cluster(spec: DeploymentSpec, cluster: Cluster) -> list[Finding]:
    """What a cluster lacks. Pure.

    Args:
        spec: of a deployment on Slurm.
        cluster: its nodes and partitions.
    """
    assert isinstance(spec.backend, SlurmDeployment)
    names = sorted(pool.name for pool in cluster.pools)
    default = next((pool.name for pool in cluster.pools if pool.is_default), "")
    partition = spec.backend.partition or default
    if not partition:
        return [Finding(_PARTITION, f"Slurm has no default partition: there are {', '.join(names)}")]
    asked = partition.split(",")
    missing = next((one for one in asked if one not in names), None)
    if missing is not None:
        hint = did_you_mean(missing, names, f"there are {', '.join(names)}")
        return [Finding(_PARTITION, f"there is no partition {missing!r} ({hint})")]
    nodes = [node for node in cluster.nodes if not {*asked}.isdisjoint(node.pools)]
    return [one for name in spec.by_name() for one in _nodes(spec, name, partition, nodes)]


def _nodes(spec: DeploymentSpec, name: str, partition: str, nodes: Sequence[Node]) -> Iterator[Finding]:
    """Whether a partition has the nodes that one worker needs."""
    gpus = gpus_of(spec, name)
    if not gpus or not spec.by_name()[name].workers:
        return
    each = min(gpus, spec.gpus_per_node or gpus)
    wanted = -(-gpus // each)
    fit = sum(node.gpus >= each and _is_asked(spec.gpu_type, node.gpu_type) for node in nodes)
    if fit < wanted:
        kinds = sorted({f"{node.gpus} {node.gpu_type}".rstrip() for node in nodes if node.gpus})
        there = f"nodes there have {' or '.join(kinds)}" if kinds else "none has a GPU"
        what = f"{each} {spec.gpu_type}".rstrip()
        yield Finding(
            ("roles", name),
            f"a worker of {name} needs {show_counted(wanted, 'node')} with {what} GPUs, and partition {partition} has "
            f"{fit}: {there}",
        )


def _is_asked(asked: str, kind: str) -> bool:
    """Whether GPUs that Slurm calls `kind` may be those; it may know no type."""
    return not asked or not kind or is_kind(asked, kind)
