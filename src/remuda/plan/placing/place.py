"""The settings of a workload that only one backend understands, typed: what its spec said, resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import Field, ValidationError

from remuda.base.errors import InputError
from remuda.base.hostlist import expand
from remuda.plan.model import Frozen
from remuda.specs.kubernetes import GPU

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.plan.model import Pool


PlaceT = TypeVar("PlaceT", bound=Frozen)


class SlurmPlace(Frozen):
    """`Workload.place` of a workload on Slurm. Every text goes to sbatch quoted; empty ones are left out.

    A `Pool.place` has the same keys; what it sets wins for allocations in that pool.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    gres: str = ""
    """Instead of what `Resources.gpus` and `gpu_type` say."""
    node_list: str = ""
    """Nodes to use, as Slurm writes lists."""
    exclude_nodes: str = ""
    """Nodes to avoid, besides those of the ledger."""
    modules: tuple[str, ...] = ()
    """Environment modules to load before the program starts."""
    preamble: tuple[str, ...] = ()
    """Lines added to the head of the job script; `#SBATCH` ones are directives, others are commands."""
    directives: tuple[str, ...] = ()
    """Options of the `#SBATCH` lines of the user's own script, e.g. `--mem=4G`; ours win over them."""
    args: tuple[str, ...] = ()
    """More words for sbatch's command line; they win over everything that is not the supervisor's own."""
    mail_user: str = ""
    requeue: bool = False
    """Let Slurm itself put a preempted job, or one of a lost node, back into its queue under the same id. Otherwise
    every attempt is a new job."""
    output: str = ""
    """Where the user wants the output besides the run directory, with Slurm's patterns (`%j`)."""
    error: str = ""
    log_directory: str = ""
    """The output of each task is written there, too."""
    workdir: str = ""
    """Where the script starts."""
    python: str = ""
    """Interpreter on the nodes that runs the node program, 3.9 or newer; empty: `python3` there."""
    env: dict[str, str] = Field(default_factory=dict)
    """What is kept of the user's environment. Nothing else reaches the job (`--export=NONE`)."""
    home: str = ""
    container: str = ""
    """What starts images: `singularity`, `apptainer`, `enroot` or `pyxis`; empty: by name, and what the node has."""


class KubernetesPlace(Frozen):
    """`Workload.place` of a workload on Kubernetes, as `specs.kubernetes` has its fields."""

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    service_account: str = ""
    node_selector: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    queue: str = ""
    security: str = ""
    run_as_user: int = 0
    runtime_class: str = ""
    gpu_resource: str = GPU
    ttl: float = 604800.0
    python: str = ""
    """Interpreter in the image that runs the node program, 3.9 or newer; empty: `python3` there."""
    env: dict[str, str] = Field(default_factory=dict)
    """What tasks on the host's machine see of the user's environment. Nothing of it reaches a pod."""


def placed(kind: type[PlaceT], values: Mapping[str, object], name: str) -> PlaceT:
    """The settings of a workload of that name, as its backend understands them.

    Raises:
        InputError: an unknown setting.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{name}: place.{where}: {first['msg']}") from error


def asked_partitions(place: Mapping[str, object], pools: Sequence[Pool]) -> tuple[str, ...]:
    """Names of the partitions that an allocation with these pools is asked of; empty: the cluster's default one."""
    named = [pool.place.get("partition") or pool.name for pool in pools] or [str(place.get("partition") or "")]
    return tuple(dict.fromkeys(part for name in named for part in name.split(",") if part))


def settled_nodes(place: Mapping[str, object], pools: Sequence[Pool]) -> frozenset[str]:
    """Nodes about which the user's own words leave nothing to choose: those that are asked for, or avoided, by name."""
    names: set[str] = set()
    for known in [{**place, **pool.place} for pool in pools] or [dict(place)]:
        for key in ("node_list", "exclude_nodes"):
            try:
                names.update(expand(text) if (text := str(known.get(key) or "")) else ())
            except InputError:
                continue  # it is told where the job is rendered
    return frozenset(names)
