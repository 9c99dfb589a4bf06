"""Where a swarm runs: one model per backend, told apart by `type`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from remuda.specs.kubernetes import KubernetesFields
from remuda.specs.places import FLEET, planned_as, traits
from remuda.specs.strict import Env, Json, Seconds, Size, Strict, Text, Texts, contradiction

Port = Annotated[int, Field(ge=1, le=65535)]


def is_of_fleet(backend: object) -> bool:
    """Whether what a document says as `backend` is a fleet."""
    name = backend.get("type") if isinstance(backend, dict) else backend
    return bool(traits(str(name)).planned_as)


def of_fleet(data: Any) -> Any:
    """What a document says of a fleet, in the words of Slurm: one partition, and nobody to charge.

    What has a section for its backend keeps the word there: its router is on the head's machine.

    Raises:
        PydanticCustomError: it names another partition.
    """
    at = "type" if isinstance(data, dict) and "type" in data else "backend"
    if not isinstance(data, dict) or not traits(str(data.get(at))).planned_as:
        return data
    name, value = ("partition", FLEET) if at == "type" else ("partitions", (FLEET,))
    for key in (name, "frontend_partition"):
        said = data.get(key) or FLEET
        if said != FLEET and [*said] != [FLEET]:
            raise contradiction(key, f"all nodes of a fleet are in its one partition, `{FLEET}`", "leave it out")
    kept = {key: one for key, one in data.items() if key not in ("account", "qos")}
    if at == "type":
        return {**kept, name: value, "account": "", "qos": ""}
    return {**kept, at: planned_as(str(data[at])), name: value}


class LocalEndpoint(Strict):
    """Address of a swarm on this machine."""

    host: Text = "127.0.0.1"
    """Address that the endpoint listens on: `127.0.0.1` for this machine only, `0.0.0.0` for all interfaces."""
    port: Port | None = Field(default=None, json_schema_extra={"derived": "`9000`, or the next free port"})
    """Port of the endpoint. When given, it is this port or an error."""


class LocalBackend(Strict):
    """This machine: tasks are processes."""

    is_here: ClassVar[bool] = True

    type: Literal["local"] = "local"
    """Type of backend."""
    endpoint: LocalEndpoint = LocalEndpoint()
    """Address of the swarm."""
    gpus: Texts | None = Field(default=None, json_schema_extra={"derived": "all of this machine"})
    """Ids of the GPUs that may be used, as `nvidia-smi -L` numbers them. `[]` uses none."""


class SlurmEndpoint(Strict):
    """The job that carries the router of a swarm on Slurm."""

    partition: Text | None = Field(default=None, json_schema_extra={"derived": "`backend.partition`"})
    """Partition of the router's job, which has no GPUs."""
    cpus_per_task: int = Field(default=2, ge=1)
    """CPUs of the router's job."""
    mem: Size = "2GB"
    """Memory of the router's job."""
    threads_per_core: int = Field(default=1, ge=1)
    """Hardware threads to use of each core of the router's job. Requested from Slurm only when given."""
    wall_time: Text = "24:00:00"
    """Time limit of the router's job, as Slurm writes it."""
    nginx_image: Text | None = None
    """Singularity or Apptainer image that holds nginx, for `router: nginx`. Without one it is what `modules` or the
    nodes' PATH have."""
    nginx_timeout: Seconds = 60.0
    """Longest silence of a replica while it answers, with `router: nginx`; default:
    `router.request_timeout`."""
    port: Port | None = Field(default=None, json_schema_extra={"derived": "`9000`, or the next free port"})
    """Port of the endpoint on the machine of the host. When given, it is this port or an error."""
    poll_interval: Seconds = 10.0
    """Seconds between two queries of the router's job while it starts. No effect: all jobs are queried together."""


class SlurmJob(Strict):
    """The jobs that drive batches and scripts beside a swarm on Slurm."""

    cpus_per_task: int = Field(default=2, ge=1)
    """CPUs of a driver; `remuda job submit --cpus` overrides it."""
    mem: Size = "4GB"
    """Memory of a driver; `--mem` overrides it."""
    wall_time: Text | None = Field(default=None, json_schema_extra={"derived": "`time_limit` of the replicas"})
    """Time limit of a driver, in Slurm's format; `--time` overrides it. A job that reaches it continues in another."""


class SlurmBackend(Strict):
    """A Slurm cluster: tasks are jobs."""

    is_here: ClassVar[bool] = False

    type: Literal["slurm", "fleet"] = "slurm"
    """Type of backend; `fleet` for the machines that have joined this host."""
    partition: Text
    """Partition to submit to, as `sinfo -h -o %P` prints it (without the `*`)."""
    account: Text
    """Account to charge."""
    qos: Text
    """Quality of service of all jobs of the swarm."""
    ray_port: Port = 6379
    """Port of Ray's head in replicas that span nodes, or the next that is free there."""
    ray_dashboard_port: Port = 8265
    """Port of Ray's dashboard on loopback of the replica's first node, or the next that is free there."""
    container: Literal["singularity", "apptainer", "enroot", "pyxis"] | None = Field(
        default=None,
        json_schema_extra={
            "derived": "`pyxis` for registry names and `*.sqsh`, else Apptainer or Singularity, whichever the node has"
        },
    )
    """Program that starts `image`; `pyxis` is Slurm's plugin for enroot."""
    venv_path: Text | None = None
    """Virtual environment with the engine, where it is in no image."""
    time_limit: Text = "36:00:00"
    """Time limit of the replicas' jobs, as Slurm writes it."""
    mem: Size | None = None
    """Memory of each node of a replica, e.g. `64GB`; unset: the scheduler's default."""
    exclude_nodes: Text | None = None
    """Nodes to avoid, e.g. `node[001-004]`; handed to Slurm as it is."""
    node_list: Text | None = None
    """Nodes to use, e.g. `node[001-004]`. With more than a job needs, the others of the partition are excluded."""
    log_directory: Text | None = Field(default=None, json_schema_extra={"derived": "`<home_directory>/logs`"})
    """Folder for a second copy of each replica's output: `<name>/replica-0.1.log`, …"""
    template_path: Text | None = None
    """Read, so that files of domyn-swarm are accepted; scripts are rendered without it, which a note says."""
    nginx_template_path: Text | None = None
    """Read, so that files of domyn-swarm are accepted; nginx's configuration is rendered without it."""
    mail_user: Text | None = None
    """Email address for Slurm's messages about jobs that end or fail."""
    endpoint: SlurmEndpoint = SlurmEndpoint()
    """The router's job."""
    job: SlurmJob = SlurmJob()
    """Drivers of batch jobs and scripts."""
    modules: Texts = ()
    """Environment modules to load."""
    preamble: Texts = ()
    """Lines added to the head of the job script, e.g. more `#SBATCH` directives."""

    _of_fleet = model_validator(mode="before")(of_fleet)


class PodBackend(KubernetesFields):
    """A namespace of a Kubernetes cluster: replicas are pods; router and relay are processes of this machine."""

    is_here: ClassVar[bool] = False

    type: Literal["kubernetes"] = "kubernetes"
    """Type of backend."""
    endpoint: LocalEndpoint = LocalEndpoint()
    """Address of the swarm, on this machine."""
    python: Text | None = Field(default=None, json_schema_extra={"derived": "`python3`"})
    """Interpreter in the image, 3.9 or newer, that runs the program beside the engine, and engines that are modules."""
    mem: Size | None = None
    """Memory of a replica, e.g. `64GB`, beyond which it is killed; unset: no bound."""
    time_limit: Seconds = 0.0
    """Time limit of a replica's Job, after which another replaces it. 0: none."""


def _shared_file_system() -> tuple[Json, ...]:
    return (
        {
            "path": "/",
            "from": "node-nfs:lepton-shared-fs",
            "mount_path": "/mnt/lepton-shared-fs",
            "mount_options": {"local_cache_size_mib": None, "read_only": None},
        },
    )


class LeptonEndpoint(Strict):
    """The deployment that serves a swarm on Lepton."""

    image: Text = "vllm/vllm-openai:latest"
    """Container image of the server."""
    allowed_dedicated_node_groups: Texts | None = None
    """Node groups that it may run in."""
    resource_shape: Text = "gpu.8xh200"
    """Lepton's name for kind and number of accelerators of a replica."""
    allowed_nodes: Texts = ()
    """Nodes of the group that it may run on."""
    mounts: tuple[Json, ...] = Field(default_factory=_shared_file_system)
    """File systems of the container, as Lepton describes them."""
    env: Env = Field(default_factory=dict)
    """Environment of the container."""
    api_token_secret_name: Text | None = None
    """Lepton's secret that holds the token of the endpoint."""


class LeptonJob(Strict):
    """Batch jobs of a swarm on Lepton."""

    allowed_dedicated_node_groups: Texts | None = None
    """Node groups that they may run in."""
    image: Text = "igeniusai/domyn-swarm:latest"
    """Container image of the job."""
    resource_shape: Text = "gpu.8xh200"
    """Lepton's name for kind and number of accelerators of the job."""
    allowed_nodes: Texts = ()
    """Nodes of the group that they may run on."""
    mounts: tuple[Json, ...] = Field(default_factory=_shared_file_system)
    """File systems of the container, as Lepton describes them."""
    env: Env = Field(default_factory=dict)
    """Environment of the container."""


class LeptonBackend(Strict):
    """NVIDIA DGX Cloud Lepton: tasks are replicas of a deployment."""

    is_here: ClassVar[bool] = False

    type: Literal["lepton"] = "lepton"
    """Type of backend."""
    workspace_id: Text
    """Workspace that is used. `LEPTON_WORKSPACE_ID` sets it, too."""
    endpoint: LeptonEndpoint = LeptonEndpoint()
    """The serving deployment."""
    job: LeptonJob = LeptonJob()
    """Batch jobs."""
    env: Env = Field(default_factory=dict)
    """Environment of both."""


Backend = Annotated[LocalBackend | SlurmBackend | PodBackend | LeptonBackend, Field(discriminator="type")]


def backend_type(value: dict[str, object]) -> str:
    """Type of a backend that does not say it: a partition is Slurm's, a workspace Lepton's; empty when neither is."""
    if "partition" in value:
        return "slurm"
    return "lepton" if "workspace_id" in value else ""
