"""A group's commands in their image: Apptainer or Singularity, enroot, or Pyxis where Slurm itself starts it. Pure.

Slurm itself starts the ranks of MPI programs, too, in an image or not.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from remuda.base.disk.paths import in_registry
from remuda.base.errors import InputError
from remuda.plan.model import CONTAINER_MARK, NODE_MARK
from remuda.wire.child import DEVICES, DEVICES_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from remuda.plan.model import Command, Group, NodeSpan

T = TypeVar("T")
INHERITED: Final = {"PYTHONPATH": "", "VIRTUAL_ENV": ""}
"""Variables that point to programs of the machine outside, which do not help in an image."""
PREFIXES: Final = ("APPTAINERENV_", "SINGULARITYENV_")
"""A variable with one of these before its name reaches the container whatever the site or the image sets."""
RC: Final = "enroot.rc"
"""In the run directory: what enroot runs instead of the image's own entrypoint, as the others do."""
_OURS: Final = ("REMUDA_PORT", "REMUDA_HOST", "REMUDA_TOKEN", "REMUDA_TASK", "REMUDA_ATTEMPT", "REMUDA_WORKLOAD",
                "REMUDA_RUN_DIR", "PYTHONUNBUFFERED")  # fmt: skip
_REGISTRY = re.compile(r"^(localhost|[^/]*[.:][^/]*)/(.+)$")


@dataclass(frozen=True)
class Steps:
    """Of a scheduler that starts processes of a job, which is what Pyxis needs."""

    name: str = ""
    """Of the step, unique in its job; empty: nothing looks for it."""
    launcher: tuple[str, ...] = ()
    """How the node program is called, which ends what is left of earlier steps of that name."""
    first: int | None = None
    """Ordinal of the task's first node in a job that it shares; None: it has the whole job."""


def in_image(group: Group, folder: Path, program: str = "", steps: Steps | None = None) -> tuple[Group, dict[str, str]]:
    """The group with all that it runs as it is started in its image, and the files that this needs.

    Args:
        group: as it was planned; itself where it has no image and no ranks that are started by steps.
        folder: run directory of the allocation.
        program: `apptainer`, `singularity`, `enroot` or `pyxis`; empty: by the image's name, and what the node has.
        steps: of the scheduler, where it has any.

    Raises:
        InputError: the program cannot start this image.
    """
    command = group.command
    with_ranks = steps is not None and bool(command.ranks)
    if not command.image and not with_ranks:
        return group, {}
    files: dict[str, str] = {}
    env, secret_env, program = (
        dict(command.env),
        dict(command.secret_env),
        program or _by_name(command.image, steps),
    )
    prefix: tuple[str, ...] = ()
    if not command.image:
        program = ""
    elif program == "pyxis":
        prefix, env = _step(group, folder, steps or Steps(), _pyxis(command)), {**INHERITED, **env}
    elif program == "enroot":
        prefix = _enroot(group, folder)
        files[str(folder / RC)] = f'cd {shlex.quote(command.workdir or "/")} || exit 1\nexec "$@"\n'
    else:
        prefix, env = _singularity(group, program), {**INHERITED, **_prefixed(env), **env}
        secret_env = {**_prefixed(secret_env), **secret_env}
    if with_ranks and program != "pyxis":
        prefix = (*_step(group, folder, steps or Steps(), ()), *prefix)
    started = command.model_copy(update={
        "argv": (*prefix, *command.argv), "env": env, "secret_env": secret_env, "image": "",
        "outside": program == "pyxis" or with_ranks, "mounts": (), "workdir": "", "step_args": (),
    })  # fmt: skip
    return group.model_copy(update={"command": started, "spread": _spread(group.spread, prefix)}), files


def _by_name(image: str, steps: Steps | None) -> str:
    if steps is not None and (in_registry(image) or image.endswith(".sqsh")):
        return "pyxis"
    return "enroot" if image.endswith(".sqsh") else ""


def _prefixed(values: Mapping[str, T]) -> dict[str, T]:
    """Values reach the container by the environment, never by arguments."""
    return {f"{prefix}{name}": value for prefix in PREFIXES for name, value in values.items()}


def _spread(spread: NodeSpan | None, prefix: tuple[str, ...]) -> NodeSpan | None:
    if spread is None:
        return None
    asked = {name: getattr(spread, name) for name in ("member", "head", "ask")}
    words: dict[str, Any] = {name: [*prefix, *argv] for name, argv in asked.items() if argv}
    return replace(spread, **words)


def _singularity(group: Group, program: str) -> tuple[str, ...]:
    command = group.command
    gpus = ["--nv"] if group.resources.gpus else []
    binds = (word for path in command.mounts for word in ("--bind", path))
    image = f"docker://{_name(command.image).replace('#', '/', 1)}" if in_registry(command.image) else command.image
    return (program or CONTAINER_MARK, "exec", *gpus, *binds, image)


def _enroot(group: Group, folder: Path) -> tuple[str, ...]:
    """Only variables that are named get into the container, their values from the environment."""
    command, gpus = group.command, bool(group.resources.gpus)
    if not (command.image.startswith("/") and command.image.endswith(".sqsh")):
        raise InputError(f"enroot starts image files, and {command.image!r} is not one",
                         hint=f"enroot import -o engine.sqsh docker://{enroot_name(command.image)}, and name that",
                         where="image")  # fmt: skip
    names = [*command.env, *command.secret_env, *_OURS, *([DEVICES] if gpus else [])]
    words = ["--rw", "--rc", str(folder / RC), "--env", f"NVIDIA_VISIBLE_DEVICES={'all' if gpus else 'void'}"]
    words += [word for name in dict.fromkeys(names) for word in ("--env", name)]
    words += [word for path in command.mounts for word in ("--mount", _mount(path))]
    return ("enroot", "start", *words, command.image)


def _pyxis(command: Command) -> tuple[str, ...]:
    words = [f"--container-image={enroot_name(command.image)}"]
    if command.mounts:
        words.append(f"--container-mounts={','.join(map(_mount, command.mounts))}")
    if command.workdir:
        words.append(f"--container-workdir={command.workdir}")
    return tuple(words)


def _step(group: Group, folder: Path, steps: Steps, more: tuple[str, ...]) -> tuple[str, ...]:
    """`srun` on the node itself, inside the job; `--overlap` shares what the job has.

    Ranks of MPI are one step over all nodes. Another replica over several nodes has a step on each, which begin and end
    together: none of them is looked for.
    """
    command, cpus, nodes = group.command, group.resources.cpus, group.resources.nodes if group.command.ranks else 1
    tasks = command.ranks or 1
    words = ["srun", "--overlap", f"--nodes={nodes}", f"--ntasks={tasks}"]
    words += [f"--nodelist={NODE_MARK}"] if nodes == 1 else []
    words += [f"--relative={steps.first}"] if nodes > 1 and steps.first is not None else []
    words += ["--export=ALL", f"--mpi={'pmix' if command.ranks else 'none'}"]
    if command.ranks:
        words += [f"--ntasks-per-node={tasks // nodes}", "--kill-on-bad-exit=1", "--cpu-bind=none"]
    words += [f"--cpus-per-task={cpus}"] if cpus else []
    words += [*more, *command.step_args]
    if not steps.name or group.spread is not None:
        return tuple(words)
    words.append(f"--job-name={steps.name}")
    devices = ("env", f"{DEVICES}={DEVICES_MARK}") if group.resources.gpus and nodes == 1 else ()
    return (*steps.launcher, "step", steps.name, str(folder), "--", *words, *devices)


def _mount(path: str) -> str:
    return path if ":" in path else f"{path}:{path}"


def enroot_name(image: str) -> str:
    """A registry's image as Pyxis and enroot write it: `nvcr.io/nvidia/x:1` is `nvcr.io#nvidia/x:1`."""
    name = _name(image)
    if not in_registry(image) or "#" in name:
        return name
    found = _REGISTRY.match(name)
    return f"{found[1]}#{found[2]}" if found else name


def _name(image: str) -> str:
    """Without what says that it is in a registry, or in the registry that is meant where none is said."""
    return image.removeprefix("docker://").removeprefix("docker.io/")
