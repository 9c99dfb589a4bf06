"""An engine's command in an image: Singularity or Apptainer, or Pyxis where Slurm itself starts containers. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.plan.model import CONTAINER_MARK, NODE_MARK
from remuda.specs.backend import SlurmBackend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.plan.model import Secret
    from remuda.specs.swarm import SwarmSpec

INHERITED: Final = {"PYTHONPATH": "", "VIRTUAL_ENV": ""}
"""Variables that point to programs of the machine outside, which do not help in an image."""
PREFIXES: Final = ("APPTAINERENV_", "SINGULARITYENV_")
"""A variable with one of these before its name reaches the container whatever the site or the image sets."""
_REGISTRY = re.compile(r"^(localhost|[^/]*[.:][^/]*)/(.+)$")


@dataclass(frozen=True)
class Container:
    """How programs of one swarm are started in its image."""

    prefix: tuple[str, ...] = ()
    """Words before each command; empty without an image."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment besides the command's own."""
    secret_env: dict[str, Secret] = field(default_factory=dict)
    needs: dict[str, str] = field(default_factory=dict)
    """Paths that must be there on the node -> what each is."""
    outside: bool = False
    """The server is started by Slurm, not by the node program: it is no descendant of it."""

    def command(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The words that run `argv` in the image."""
        return (*self.prefix, *argv)


def container_of(
    spec: SwarmSpec, env: Mapping[str, str], secret_env: Mapping[str, Secret], run_dir: str = ""
) -> Container:
    """How the engine of `spec` is started in its image; a `Container` that changes nothing where there is none.

    Args:
        spec: without gaps, see `remuda.plan.derive`.
        env: of the engine.
        secret_env: of the engine; values reach the container by the environment, never by arguments.
        run_dir: of the workload.

    Raises:
        InputError: nothing in an image starts this engine.
    """
    backend = spec.backend
    if not spec.image or not isinstance(backend, SlurmBackend):
        return Container()
    if spec.engine == "llamacpp" and not spec.engine_path:
        raise InputError("llamacpp in an image needs the path of its server there",
                         hint="set `engine_path: /app/llama-server`, or what it is called in the image",
                         where="engine_path")  # fmt: skip
    binds = [path for path in (spec.cwd, spec.model, run_dir) if path and path.startswith("/")]
    needs = {spec.image: "image"} if spec.image.startswith("/") else {}
    mounts = list(dict.fromkeys(binds))
    if is_pyxis(spec.image, backend):
        return Container(_pyxis(spec, mounts), dict(INHERITED), {}, needs, outside=True)
    names = {f"{prefix}{name}": name for prefix in PREFIXES for name in (*env, *secret_env)}
    return Container(
        _singularity(spec, backend, mounts),
        {**INHERITED, **{long: env[name] for long, name in names.items() if name in env}},
        {long: secret_env[name] for long, name in names.items() if name in secret_env},
        needs,
    )


def is_pyxis(image: str, backend: SlurmBackend) -> bool:
    """Whether Slurm's own plugin starts the container: asked for, or told by the image's name."""
    if backend.container is not None:
        return backend.container == "pyxis"
    return image.startswith("docker://") or image.endswith(".sqsh")


def _singularity(spec: SwarmSpec, backend: SlurmBackend, mounts: Sequence[str]) -> tuple[str, ...]:
    program = backend.container or CONTAINER_MARK
    gpus = ["--nv"] if spec.gpus_per_replica else []
    return (program, "exec", *gpus, *(word for path in mounts for word in ("--bind", path)), str(spec.image))


def _pyxis(spec: SwarmSpec, mounts: Sequence[str]) -> tuple[str, ...]:
    """`srun` on the node itself, inside the job; `--overlap` shares what the job has."""
    words = ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={NODE_MARK}", "--export=ALL", "--mpi=none"]
    words += [f"--cpus-per-task={spec.cpus_per_task}"] if spec.cpus_per_task else []
    words.append(f"--container-image={enroot_name(str(spec.image))}")
    if mounts:
        words.append(f"--container-mounts={','.join(f'{path}:{path}' for path in mounts)}")
    if spec.cwd:
        words.append(f"--container-workdir={spec.cwd}")
    return tuple(words)


def enroot_name(image: str) -> str:
    """A registry's image as Pyxis writes it: `docker://nvcr.io/nvidia/x:1` is `nvcr.io#nvidia/x:1`."""
    name = image.removeprefix("docker://")
    if image.startswith("/") or "#" in name:
        return name
    found = _REGISTRY.match(name)
    return f"{found[1]}#{found[2]}" if found else name
