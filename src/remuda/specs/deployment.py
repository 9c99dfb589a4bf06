"""A deployment: one model served by workers with roles, a frontend and services, each supervised for itself."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from remuda.base.text import did_you_mean
from remuda.specs.backend import LocalBackend, Port, of_fleet
from remuda.specs.benchmark import SETS, LoadSearch, Numbers, QuestionFields, Rates
from remuda.specs.service import DeployedWatchdog, ServiceFields
from remuda.specs.strict import Env, Json, Seconds, SecretEnv, Size, Strict, Text, Texts, Words, contradiction, wrong
from remuda.specs.swarm import Name  # noqa: TC001 - pydantic reads it when it runs

ANSWERS: Final = (*SETS, "lm-eval")
"""Benchmarks of answers to questions."""
_OTHERS: Final = ("longbenchv2", "agentperf")
"""Benchmarks that are known by name and cannot be run yet."""
LOADS: Final = ("sa-bench", "sglang-bench")
"""Benchmarks that are one load at one concurrency after the other."""
_Size = Annotated[int, Field(ge=0)]


def _as_engine(value: object) -> object:
    return {"type": str(value)} if isinstance(value, str) else value


class SglangEngine(Strict):
    """SGLang."""

    type: Literal["sglang"] = "sglang"
    """Type of engine."""
    kv_events_config: Json = None
    """Whether workers publish what their caches hold: true, or a mapping by role."""


class VllmEngine(Strict):
    """vLLM."""

    type: Literal["vllm"] = "vllm"
    """Type of engine."""
    connector: Json = "nixl"
    """Connector of keys and values from prefill to decode: `nixl`, `lmcache`, the JSON of a connector, or `none`."""
    dp_launch_mode: Literal["per_node", "per_gpu", "per_rank"] = "per_node"
    """Start of data-parallel processes: always one per node, whatever the value."""
    kv_events_config: Json = None
    """Whether workers publish what their caches hold: true, or a mapping by role."""


class TrtllmEngine(Strict):
    """TensorRT-LLM. Its flags go into a file."""

    type: Literal["trtllm"] = "trtllm"
    """Type of engine."""
    publish_events_and_metrics: bool = False
    """Whether workers publish what their caches hold."""
    numa_memory_bind: Text | None = Field(default=None, json_schema_extra={"derived": "`true` on GB200 and GB300"})
    """NUMA nodes whose memory a worker uses, as `numactl -m` takes them; `true`: `0,1`; `false`: any."""


class MockerEngine(Strict):
    """Dynamo's simulated engine: a real worker without a GPU."""

    type: Literal["mocker"] = "mocker"
    """Type of engine."""
    engine_type: Literal["vllm", "sglang", "trtllm"] = "vllm"
    """Engine whose scheduler is simulated."""
    speedup_ratio: float = Field(default=100.0, ge=0)
    """Factor by which it is faster than the engine; 0: without any delay."""
    decode_speedup_ratio: float = Field(default=1.0, ge=0)
    """Further factor for decode."""
    num_gpu_blocks_override: int = Field(default=16384, ge=1)
    """Blocks of the cache."""
    max_num_seqs: int = Field(default=256, ge=1)
    """Requests in one batch."""
    max_num_batched_tokens: int = Field(default=8192, ge=1)
    """Tokens in one batch."""
    block_size: int | None = Field(default=None, ge=1, json_schema_extra={"derived": "the simulated engine's own"})
    """Tokens of a block."""
    data_parallel_size: int = Field(default=1, ge=1)
    """Data-parallel ranks of a worker."""
    num_workers: int = Field(default=1, ge=1)
    """Simulated workers in one process."""
    startup_time: float | None = Field(default=None, ge=0)
    """Seconds until a worker is there."""
    kv_transfer_bandwidth: float | None = Field(default=None, gt=0)
    """Bandwidth of keys and values between workers, in GB/s."""
    kv_cache_dtype: Text | None = None
    """Type of the cache's values."""
    enable_prefix_caching: bool | None = None
    """Whether prefixes are cached."""
    enable_chunked_prefill: bool | None = None
    """Whether long prompts are cut."""
    preemption_mode: Text | None = None
    """Handling of preempted requests."""


class LlamacppEngine(Strict):
    """llama.cpp's server: workers of one role only."""

    type: Literal["llamacpp"] = "llamacpp"
    """Type of engine."""


Engine = Annotated[
    SglangEngine | VllmEngine | TrtllmEngine | MockerEngine | LlamacppEngine, Field(discriminator="type"),
]  # fmt: skip
EngineWord = Annotated[Engine, BeforeValidator(_as_engine)]


class DeployedModel(Strict):
    """The model of a deployment."""

    path: Text = Field(min_length=1)
    """Folder of the model, an alias of the cluster file, or `hf:owner/name`."""
    name: Text | None = Field(default=None, json_schema_extra={"derived": "last part of `path`"})
    """Name that requests carry."""
    precision: Text = ""
    """Precision of the weights, e.g. `fp8`, for tables of results."""


def _nodes(value: object) -> object:
    return "colocate" if isinstance(value, str) and value == "colocate" else value


class DeployedRole(Strict):
    """Workers of one role."""

    nodes: Annotated[_Size | Literal["colocate"], BeforeValidator(_nodes)] = 1
    """Nodes of all workers together; `colocate` (of `decode`): on those of `prefill`."""
    workers: int = Field(default=1, ge=0)
    """Number of workers."""
    gpus: int | None = Field(default=None, ge=0, json_schema_extra={"derived": "GPUs of the nodes by the workers"})
    """GPUs of one worker."""
    env: Env = Field(default_factory=dict)
    """Environment variables of each worker."""
    args: dict[str, Json] = Field(default_factory=dict)
    """Flags of the engine: name to value, with `-` or `_`. true: the flag alone; a list: all after it."""
    extra_args: Words = ()
    """Further words of the command, as they are."""
    engine: EngineWord | None = Field(default=None, json_schema_extra={"derived": "`engine` of the deployment"})
    """Engine of this role, where the deployment names none."""
    container: Text | None = Field(default=None, json_schema_extra={"derived": "`container` of the deployment"})
    """Image of this role."""
    kv_events: Json = None
    """Whether workers publish what their caches hold."""
    srun_options: dict[str, Json] = Field(default_factory=dict)
    """Further options of the step that starts a worker."""
    critical: bool = True
    """false: the deployment serves on without this role."""


class Roles(Strict):
    """Workers by role: disaggregated `prefill` and `decode`, or `agg` for both."""

    prefill: DeployedRole | None = None
    """Reads prompts."""
    decode: DeployedRole | None = None
    """Writes answers."""
    agg: DeployedRole | None = None
    """Does both."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.agg is not None and (self.prefill is not None or self.decode is not None):
            raise contradiction("agg", "`agg` does what `prefill` and `decode` do", "keep `agg`, or the two others")
        if self.agg is None and (self.prefill is None or self.decode is None):
            lacks = "decode" if self.prefill is not None else "prefill"
            known = self.prefill is not None or self.decode is not None
            at = "prefill" if self.prefill is not None else "decode"
            sentence = f"`roles` lacks `{lacks}`" if known else "`roles` defines no workers"
            raise contradiction(at if known else "", sentence, "write `prefill` and `decode`, or `agg` alone")
        if self.agg is not None and self.agg.nodes == "colocate":
            raise contradiction("agg", "`colocate` is for `decode`: `agg` has no other role to share nodes with")
        if self.prefill is not None and self.prefill.nodes == "colocate":
            raise contradiction("prefill", "`colocate` is for `decode`", "give `prefill` its nodes")
        for name in ("prefill", "decode", "agg"):
            role = getattr(self, name)
            if role is not None and role.workers == 0:
                raise contradiction(name, f"`roles.{name}.workers` must be at least 1", "or leave the role out")
        return self


class Readiness(Strict):
    """When a service counts as started: the first of these that is said."""

    port: Port | None = None
    """It listens."""
    tcp: Text | None = None
    """It listens at HOST:PORT."""
    http: Json = None
    """`{port, path, status}`: it answers."""
    log: Json = None
    """`{pattern}`: it says so."""
    timeout_seconds: Seconds = 120.0
    """Time limit of the start."""
    interval_seconds: Seconds = 2.0
    """Time between two checks."""


class Placement(Strict):
    """Nodes that something runs on."""

    node: Literal[
        "head", "infra", "dedicated", "prefill", "decode", "agg", "workers", "compute", "all", "first_decode",
        "last_decode",
    ] = "head"  # fmt: skip
    """Which node."""
    pool: Text | None = None
    """Nodes of a service of its own."""
    per: Literal["node", "worker"] | None = None
    """One on each."""


class Service(Strict):
    """A program beside the workers: `etcd`, `nats`, or any command of your own."""

    name: Text = Field(min_length=1, pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")
    """Name of its group: letters, digits and hyphens."""
    type: Literal[
        "generic", "etcd", "nats", "mooncake-master", "mooncake-store", "lmcache-server", "dcgm-exporter",
        "node-exporter", "ray",
    ] = "generic"  # fmt: skip
    """Type of service; `generic`: run `command`."""
    command: Words = ()
    """Program and arguments; no shell sees them. `{port}` and `{host}` are where it is to listen, here and in `env`."""
    args: dict[str, Json] = Field(default_factory=dict)
    """Flags: name, as it is written, to value."""
    container: Text | None = Field(default=None, json_schema_extra={"derived": "`container` of the deployment"})
    """Its image."""
    env: Env = Field(default_factory=dict)
    """Its environment variables."""
    placement: Placement = Placement()
    """Placement on the nodes."""
    nodes: int = Field(default=0, ge=0)
    """Nodes of its own."""
    start: Literal["infra", "before_workers", "with_workers", "after_frontend"] = "before_workers"
    """When it starts."""
    readiness: Readiness | None = None
    """When it counts as started; without it, as soon as it runs."""
    critical: bool = True
    """false: the deployment serves on without it."""
    terminal: bool = False
    """true: the deployment ends with it."""
    enabled: bool = True
    """false: as if it was not there."""
    external: Text | None = None
    """Address of one that runs already: nothing is started."""
    options: dict[str, Json] = Field(default_factory=dict)
    """Options of `nats`: `max_payload_mb`."""

    @model_validator(mode="after")
    def _startable(self) -> Self:
        if self.type == "generic" and not self.command and self.external is None and self.enabled:
            raise contradiction("name", f"the service {self.name!r} has no `command`", "say what is started")
        return self


class Frontend(Strict):
    """The servers in front of the workers."""

    type: Literal["dynamo", "sglang-router", "vllm-router", "smg", "trtllm_serve", "nginx", "none"] = "dynamo"
    """Type of frontend; `none`: the only worker answers itself."""
    replicas: int = Field(default=1, ge=1)
    """Number of frontends; several (Dynamo only) stand behind smg."""
    args: dict[str, Json] = Field(default_factory=dict)
    """Flags: name to value."""
    env: Env = Field(default_factory=dict)
    """Environment variables."""
    container: Text | None = None
    """Its image."""
    placement: Placement = Placement()
    """Placement on the nodes."""
    cpus: int = Field(default=4, ge=1)
    """CPUs of its job on a cluster."""
    mem: Size = "8GB"
    """Memory of that job."""
    host: Text | None = Field(
        default=None, json_schema_extra={"derived": "`127.0.0.1`, on Slurm with an `api_key` `0.0.0.0`"}
    )
    """Address that the endpoint listens on: `127.0.0.1` for this machine only, `0.0.0.0` for all interfaces."""
    port: Port | None = Field(default=None, json_schema_extra={"derived": "`8000`, or the next free port"})
    """Port of the endpoint. When given, it is this port or an error."""


class Dynamo(Strict):
    """Discovery, requests and events of Dynamo."""

    install: bool = True
    """false: it is said that images have Dynamo. Nothing is installed either way: true is a note where they may not."""
    version: Text | None = None
    """Version of the package that the image must have."""
    discovery: Literal["file", "etcd"] | None = Field(
        default=None, json_schema_extra={"derived": "`etcd` with a service of that type, else `file`"}
    )
    """Registry of workers: a folder of the run directory, or etcd."""
    request_plane: Literal["tcp", "nats"] = "tcp"
    """Transport of requests."""
    event_plane: Literal["nats", "zmq"] | None = Field(default=None, json_schema_extra={"derived": "`zmq`"})
    """Transport of cache events."""


class HealthCheck(Strict):
    """Checks of the start, and their time limits."""

    max_attempts: int = Field(default=180, ge=1)
    """Looks until the start has failed."""
    interval_seconds: Seconds = 10.0
    """Time between two checks."""
    fatal_log_markers: bool = True
    """A line that its engine is known to die after ends the wait at once."""
    extra_fatal_log_patterns: Texts = ()
    """Regular expressions of further such lines."""


class DeployedBenchmark(QuestionFields):
    """Benchmark to run once the deployment serves, which ends it."""

    type: Text = "manual"
    """`manual`: nothing, it serves until it is taken down. `sa-bench`: loads. `gsm8k`, `mmlu`, `gpqa`, and `lm-eval`
    with `tasks`: answers to questions. `custom`: a command."""
    isl: int | None = Field(default=None, ge=1)
    """Input tokens a request."""
    osl: int | None = Field(default=None, ge=1)
    """Output tokens a request."""
    concurrencies: Numbers = ()
    """Requests in flight, a point each: a list, or `4x8x16`."""
    search: LoadSearch | None = None
    """Search for the largest load instead."""
    req_rate: Rates = (float("inf"),)
    """Requests a second; `inf`: as soon as one is answered."""
    random_range_ratio: float = Field(default=0.8, gt=0, le=1)
    """Lengths are uniform between this share of `isl` and `osl` and all of them."""
    num_prompts_mult: int = Field(default=10, ge=1)
    """Requests of a point, as a multiple of those in flight."""
    num_warmup_mult: int = Field(default=2, ge=0)
    """Warm-up requests, as a multiple of those in flight."""
    use_chat_template: bool = True
    """false: the completions API is asked."""
    validity: dict[str, Json] = Field(default_factory=dict)
    """Thresholds of validity rules: `V12.window: 5s`."""
    command: Words = ()
    """Command of `custom`. SRT_* variables give it the endpoint."""
    container: Text | None = None
    """Image of `custom`."""
    env: Env = Field(default_factory=dict)
    """Environment variables of `custom`, and of what asks questions, e.g. HF_HOME."""
    placement: Placement = Placement()
    """Placement of the load generator."""

    @field_validator("type")
    @classmethod
    def _known(cls, name: str) -> str:
        known = (*LOADS, *ANSWERS, "custom", "manual")
        if name in _OTHERS:
            raise wrong(f"is {name!r}, which cannot be run yet", f"use {', '.join(known)}")
        if name not in known:
            raise wrong(f"must be one of {', '.join(known)}, not {name!r}", did_you_mean(name, known))
        return name

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.type in LOADS:
            for name in ("isl", "osl"):
                if getattr(self, name) is None:
                    raise contradiction("type", f"`benchmark.{name}` is required by {self.type}", "tokens a request")
            if self.search is None and not self.concurrencies:
                raise contradiction("type", f"`benchmark.concurrencies` is required by {self.type}", "e.g. [1, 8, 64]")
            if self.search is not None and (self.concurrencies or self.req_rate != (float("inf"),)):
                said = "concurrencies" if self.concurrencies else "req_rate"
                raise contradiction(
                    said, f"`{said}` cannot be given beside `search`, which chooses the load", "leave it out"
                )
        elif self.search is not None:
            raise contradiction("search", f"`search` has no meaning for {self.type}", f"it is for {', '.join(LOADS)}")
        if (self.type == "lm-eval") != bool(self.tasks):
            raise contradiction("type", "`benchmark.tasks` is required by lm-eval, and for it alone", "tasks: [gsm8k]")
        if self.type == "custom" and not self.command:
            raise contradiction("type", "`benchmark.command` is required by custom", "what is run")
        return self


class SlurmDeployment(Strict):
    """A Slurm cluster: each worker is a job."""

    is_here: ClassVar[bool] = False

    type: Literal["slurm", "fleet"] = "slurm"
    """Type of backend; `fleet` for the machines that have joined this host."""
    partition: Text | None = Field(default=None, json_schema_extra={"derived": "the cluster's default"})
    """Partition to submit to."""
    frontend_partition: Text | None = Field(default=None, json_schema_extra={"derived": "`partition`"})
    """Partition of the frontend's job, which has no GPUs and a node that no worker has to itself."""
    account: Text | None = Field(default=None, json_schema_extra={"derived": "the user's default"})
    """Account to charge."""
    qos: Text | None = None
    """Quality of service."""
    time_limit: Text = "4:00:00"
    """Time limit of the jobs, as Slurm writes it."""
    network_interface: Text | None = None
    """Interface whose address workers listen on, e.g. `ib0`."""
    sbatch_directives: dict[str, Json] = Field(default_factory=dict)
    """Further options of the jobs: name to value."""
    srun_options: dict[str, Json] = Field(default_factory=dict)
    """Further options of their steps."""
    exclude_nodes: Text | None = None
    """Nodes to avoid."""

    _of_fleet = model_validator(mode="before")(of_fleet)


DeploymentBackend = Annotated[
    Annotated[LocalBackend | SlurmDeployment, Field(discriminator="type")], BeforeValidator(_as_engine),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
]  # fmt: skip


class DeploymentSpec(ServiceFields):
    """One model behind one address: workers by role, a frontend, and the services they need."""

    kind: Literal["deployment"] = "deployment"
    """Kind of document."""
    name: Name | None = Field(default=None, json_schema_extra={"derived": "from the file's name"})
    """Name of the deployment; other commands find it by this."""
    model: DeployedModel
    """Which model is served."""
    container: Text | None = None
    """Image that everything runs in: a path, a URI, or an alias of the cluster file."""
    python: Text | None = Field(default=None, json_schema_extra={"derived": "remuda's own interpreter"})
    """Interpreter that has the engine and the frontend, where they are in no container."""
    engine: EngineWord | None = None
    """Engine of all roles: its name, or `{type: …}` with what it is to know."""
    roles: Roles
    """Workers by role."""
    gpu_type: Text = ""
    """GPUs as people call them, e.g. `h100`: for tables of results. Which are used is chosen by the partition."""
    gpus_per_node: int = Field(default=4, ge=0)
    """GPUs of a node."""
    services: tuple[Service, ...] = ()
    """Programs beside the workers. etcd and NATS come by themselves where they are needed."""
    frontend: Frontend = Frontend()
    """Frontend that clients send requests to."""
    dynamo: Dynamo = Dynamo()
    """Discovery and transport among the parts of Dynamo."""
    env: Env = Field(default_factory=dict)
    """Environment variables of everything."""
    secret_env: SecretEnv = Field(default_factory=dict)
    """Environment variables whose values are secrets: name to `{file: PATH}` or `{env: NAME}`."""
    mounts: dict[str, Text] = Field(default_factory=dict)
    """Folders of the node that containers see: path to path inside."""
    allocation: Literal["per-worker", "one-job"] = "per-worker"
    """On Slurm. `per-worker`: each worker is a job of its own, so that it fails for itself. `one-job`: workers and
    frontend are one job, which starts as a whole and is restarted as a whole."""
    health_check: HealthCheck = HealthCheck()
    """Time limits and checks of the start."""
    ready: Literal["first", "all"] = "all"
    watchdog: DeployedWatchdog = DeployedWatchdog()
    benchmark: DeployedBenchmark = DeployedBenchmark()
    """Benchmark to run once it serves."""
    backend: DeploymentBackend = LocalBackend()
    """Backend to run on: `local`, or `{type: slurm, …}`."""
    home_directory: Text | None = Field(default=None, json_schema_extra={"derived": "the state directory"})
    """Folder of the directories of deployments."""
    identity: dict[str, Json] = Field(default_factory=dict)
    """Versions that the recipe names, stored with the results."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        named = [name for name, role in self.by_name().items() if role.engine is not None]
        if self.engine is not None and named:
            sentence = f"`engine` is said for all roles and for {named[0]}"
            raise contradiction("engine", sentence, "say it once, or for each role")
        if self.engine is None:
            for name, role in self.by_name().items():
                if role.engine is None:
                    raise contradiction(
                        "roles", f"the role {name} has no `engine`", "write `engine: sglang` at the top"
                    )
        names = [service.name for service in self.services]
        reserved = {"prefill", "decode", "agg", "frontend", "balancer", "relay", "bench", "gate", "rank", "pack"}
        for name in names:
            if names.count(name) > 1:
                raise contradiction("services", f"two services have the name {name!r}")
            if name in reserved:
                raise contradiction("services", f"a service cannot have the name {name!r}, which a group has")
        return self

    def by_name(self) -> dict[str, DeployedRole]:
        """The roles that work, prefill first."""
        roles = {"prefill": self.roles.prefill, "decode": self.roles.decode, "agg": self.roles.agg}
        return {name: role for name, role in roles.items() if role is not None}

    def engine_of(self, role: str) -> Any:
        """The engine of a role: its own, or that of all."""
        return self.by_name()[role].engine or self.engine
