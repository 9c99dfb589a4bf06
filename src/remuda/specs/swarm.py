"""A swarm: replicas of one model behind one address."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from remuda.base.errors import InputError
from remuda.base.ids import check_name
from remuda.specs.backend import Backend, LocalBackend, Port, backend_type
from remuda.specs.bounds import too_many
from remuda.specs.service import ServiceFields
from remuda.specs.strict import Env, Seconds, SecretEnv, Strict, Text, Words, contradiction, wrong

EngineName = Literal["vllm", "sglang", "llamacpp", "transformers", "command"]


def _named(name: str) -> str:
    try:
        return check_name(name.strip().lower())
    except InputError as error:
        raise wrong(error.message, error.hint) from error


Name = Annotated[Text, AfterValidator(_named)]


class Router(Strict):
    """Router before the replicas, which gives the swarm its one address."""

    type: Literal["smg", "nginx", "none"] = "smg"
    """`smg` is a model-aware router, `nginx` a plain balancer; with `none` the only replica is the endpoint."""
    policy: Text | None = Field(
        default=None,
        json_schema_extra={"derived": "`cache_aware` of smg with more than one replica, else the router's own"},
    )
    """Routing policy, in the router's words: `cache_aware`, `round_robin`, `least_load`, …"""
    request_timeout: Seconds = 3600.0
    """Longest answer, streams included."""
    args: Words = ()
    """More arguments of the router, verbatim."""


class SwarmSpec(ServiceFields):
    """Replicas of one model behind one address."""

    kind: Literal["swarm"] = "swarm"
    """Kind of document; may be left out."""
    name: Name | None = Field(default=None, json_schema_extra={"derived": "from the model, with a random suffix"})
    """Name of the swarm; other commands find it by this."""
    model: Text = Field(min_length=1)
    """Model to serve: an id on the Hugging Face hub, a local directory, or a GGUF file for `llamacpp`."""
    revision: Text | None = None
    """Branch, tag or commit of the model."""
    served_model_name: Text | None = Field(
        default=None, json_schema_extra={"derived": "`model`; of a GGUF file its name without `.gguf`"}
    )
    """Model name that requests carry."""
    replicas: int = Field(default=1, ge=1)
    """Number of independent servers behind the address."""
    gpus_per_replica: int | None = Field(
        default=None,
        ge=0,
        json_schema_extra={
            "derived": "`4`, or what `replicas_per_node` leaves for each; on `kubernetes` and `fleet` 1; on `local` 4, "
            "2, 1 or 0: as many as there are for each"
        },
    )
    """GPUs of each replica, also its tensor-parallel size. 0 runs on CPUs."""
    gpus_per_node: int = Field(default=4, ge=1)
    """GPUs of each node of the cluster."""
    nodes: int | None = Field(default=None, ge=1, json_schema_extra={"derived": "as many as the replicas need"})
    """Nodes of the whole swarm: ⌈replicas / replicas_per_node⌉, or replicas × gpus_per_replica / gpus_per_node
    where a replica spans nodes."""
    replicas_per_node: int | None = Field(
        default=None, ge=1, json_schema_extra={"derived": "`gpus_per_node // gpus_per_replica`"}
    )
    """Replicas that share a node; none where a replica spans nodes."""
    cpus_per_task: int | None = Field(
        default=None,
        ge=1,
        json_schema_extra={
            "derived": "`32 // replicas_per_node`, at most what its nodes have for its GPUs; on `local` a fair share"
        },
    )
    """CPUs of each replica."""
    image: Text | None = None
    """Container image of the engine (Slurm: a Singularity file; Kubernetes: a registry's, with Python 3.9 or newer,
    required there, and may stand under `backend`; Lepton: a registry's). `local` uses none."""
    engine: EngineName = "vllm"
    """Server program: `vllm`, `sglang`, `llamacpp`, `transformers`, or `command` for any OpenAI-compatible server."""
    engine_path: Text | None = Field(default=None, json_schema_extra={"derived": "from remuda's own environment"})
    """Path of the engine, if not beside remuda: a Python interpreter that has it, or its program (`vllm`,
    `llama-server`, `transformers`)."""
    command: Words = ()
    """Command to start with `engine: command`. `{port}`, `{host}` and `{model}` are replaced."""
    args: Words = ()
    """More arguments of the engine, verbatim and last. Text is split into words as a shell does, a list is not."""
    spanning: Literal["ray", "engine"] | None = Field(
        default=None, json_schema_extra={"derived": "`ray` for `vllm`, else `engine`"}
    )
    """Link among the nodes of a replica that spans several: Ray, or the engine's own ranks. With `engine: command` and
    `engine`, the command is started on each node, and `{rank}`, `{nnodes}`, `{head}` and `{head_port}` are replaced."""
    port: Port = 8000
    """Port of each replica, or the next that is free."""
    home_directory: Text | None = Field(default=None, json_schema_extra={"derived": "the state directory"})
    """Root of what the swarm writes."""
    cwd: Text | None = Field(default=None, json_schema_extra={"derived": "where the command was typed"})
    """Directory that the engine is started in; relative paths in `model`, `args` and `command` start there."""
    env: Env = Field(default_factory=dict)
    """Environment variables of the engine."""
    secret_env: SecretEnv = Field(default_factory=dict)
    """Environment variables of the engine whose values are secrets: name to `{file: PATH}` or `{env: NAME}`."""
    wait_endpoint_s: Seconds = 600.0
    """Time for which `up` waits until the endpoint is announced."""
    router: Router = Router()
    """Router before the replicas. One word is its type."""
    backend: Backend = LocalBackend()
    """Backend to run on: `type: local`, `slurm`, `fleet`, `kubernetes` or `lepton`, with the fields of each; those of
    `fleet` are Slurm's. One word is its type."""

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        full = expand(data)
        backend = full.get("backend")
        if isinstance(backend, dict) and "type" not in backend:
            full["backend"] = {"type": "local", **backend}
        return full

    @field_validator("model")
    @classmethod
    def _no_flag(cls, model: str) -> str:
        if model.startswith("-"):
            raise wrong(f"must not begin with `-`, as {model!r} does: engines would take it for an argument")
        return model

    @model_validator(mode="after")
    def _not_too_many(self) -> SwarmSpec:
        if refusal := too_many("the swarm", "replica", self.replicas, self.backend.type):
            raise contradiction("replicas", refusal[0], refusal[1])
        return self

    @model_validator(mode="after")
    def _command_belongs(self) -> SwarmSpec:
        if self.engine == "command" and not self.command:
            raise contradiction("engine", "`command` is required with `engine: command`")
        if self.engine != "command" and self.command:
            sentence = f"`command` is used only with `engine: command`, and the engine is {self.engine}"
            raise contradiction("command", sentence, "use `args` to add arguments, or set `engine: command`")
        return self


def expand(data: dict[str, object]) -> dict[str, object]:
    """Write out what may be said otherwise: `backend: local`, `router: nginx`, a type that keys tell, a pod's image."""
    full = dict(data)
    for key in ("backend", "router"):
        value = full.get(key)
        if isinstance(value, str):
            full[key] = {"type": value}
    backend = full.get("backend")
    if isinstance(backend, dict) and "type" not in backend and (told := backend_type(backend)):
        full["backend"] = {"type": told, **backend}
    backend = full.get("backend")
    if isinstance(backend, dict) and backend.get("type") == "kubernetes" and backend.get("image") is not None:
        full["image"] = backend["image"]
        full["backend"] = {key: value for key, value in backend.items() if key != "image"}
    return full
