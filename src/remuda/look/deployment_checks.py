"""What of a deployment cannot work: told from its document, files, engines, machine and cluster."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.backends.local.devices import gpu_type
from remuda.base.disk.files import read_whole
from remuda.base.disk.paths import from_here, in_registry, is_path
from remuda.base.errors import BackendUnreachable, InputError
from remuda.base.text import did_you_mean
from remuda.base.units import show_counted
from remuda.look.engines import help_text
from remuda.node.child.fatal import is_slow
from remuda.node.child.ports import is_free
from remuda.node.script.scan import BURST_S
from remuda.plan.compile import Finding
from remuda.plan.deployment import SRTCTL_FOLDERS, image_of, mounts_of
from remuda.plan.deployment.preflight import check_flags, check_spec, gpus_of, heads_of, help_argv
from remuda.plan.deployment.terms import host_of
from remuda.plan.placing.gpus import is_kind
from remuda.specs.deployment import SlurmDeployment
from remuda.specs.reading.fields import leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.backends.base import Cluster, Node
    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan
    from remuda.specs.deployment import DeploymentSpec
    from remuda.specs.reading import document

_MODEL: Final = ("model", "path")
_PORT: Final = ("frontend", "port")
_PARTITION: Final = ("backend", "partition")
_MOST_BYTES: Final = 4 * 1024 * 1024
_HELP_KEPT_S: Final = 60.0
"""Roles with one engine ask it once; an engine that was updated is asked again."""


def check(spec: DeploymentSpec, facts: Looked) -> list[Finding]:
    """All that the spec and the files that it names tell."""
    found, heads = _model(spec, facts)
    return [*found, *_images(spec, facts), *_mounted(spec), *check_spec(spec, heads)]


def _model(spec: DeploymentSpec, facts: Looked) -> tuple[list[Finding], int]:
    """What is wrong with the model, and its attention heads; 0 where they are not known."""
    said, path = spec.model.path, Path(spec.model.path).expanduser()
    if not is_path(said):
        is_remote = said.startswith("hf:") or "/" in said
        why = "it is not on this machine" if is_remote else "it is neither a folder nor a name in the cluster file"
        why = f"it is a name, and the folder here is ./{said}" if path.exists() else why
        return [Finding(_MODEL, f"the model {said!r} is not checked: {why}", fails=False)], 0
    if elsewhere := _elsewhere(spec, path, facts, "model"):
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


def _elsewhere(spec: DeploymentSpec, path: Path, facts: Looked, what: str) -> str:
    """Why it cannot be said that nodes lack a file that is not here; empty where it can."""
    if path.exists() or spec.backend.is_here or facts.sees(path.absolute()):
        return ""
    return f"the {what} {str(path)!r} is not checked: nodes may see other files than this machine"


def _images(spec: DeploymentSpec, facts: Looked) -> list[Finding]:
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
            sentence = "" if facts.container_program() else (
                f"the container {image!r} is in a registry, and nothing here gets it from there: srun has no "
                "--container-image (Pyxis), and neither apptainer nor singularity is in the PATH"
            )  # fmt: skip
        elif not is_path(image):
            sentence = "" if "://" in image else f"the container {image!r} is a file: write its path, ./{image} or /…"
        else:
            elsewhere = _elsewhere(spec, file, facts, "container")
            sentence = elsewhere or ("" if file.exists() else f"there is no container {image!r}")
        found += [Finding(where, sentence, fails=not elsewhere)] if sentence else []
    return found


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


def machine(plan: Plan, facts: Looked) -> list[Finding]:
    """What engines, this machine or the cluster tell when they are asked."""
    assert plan.draft is not None
    spec: DeploymentSpec = plan.draft.spec
    found = [*_engines(spec, facts), *_patterns(spec)]
    if isinstance(spec.backend, SlurmDeployment):
        try:
            return found + on_cluster(spec, facts.cluster())
        except BackendUnreachable as error:
            return [*found, Finding((), f"the cluster is not checked: {error.message}", fails=False)]
    needs = sum((gpus_of(spec, name) or 0) * role.workers for name, role in spec.by_name().items())
    return [*found, *on_machine(spec, needs, facts.context().gpus, gpu_type() if needs else ""), *_port(spec)]


def _engines(spec: DeploymentSpec, facts: Looked) -> list[Finding]:
    """Flags that engines do not know, asked where the engine is at hand."""
    python = from_here(spec.python or facts.context(gpus=False).python, facts.context(gpus=False).cwd)
    is_local = spec.backend.is_here
    if is_local and not facts.program(python):
        return []  # that is told already
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
        elif not facts.program(python):
            why = f"there is no interpreter {python!r} on this machine"
        else:
            why = f"{python} does not print those of {argv[2]}"
            findings = check_flags(spec, name, help_text(argv, {**spec.env, **role.env}, facts.paths, _HELP_KEPT_S))
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
