"""What each worker of a deployment is started with, by its engine and by what stands before it. Pure.

Behind Dynamo's frontend a worker is Dynamo's own program around the engine, and its port says how it is; behind another
frontend it is the engine's server, and its port is the one that is asked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml

from remuda.base.errors import InputError
from remuda.plan.deployment import services
from remuda.plan.deployment.flags import DP, PP, TP, counted, dashed, has, merged, number, words
from remuda.plan.model import BOOTSTRAP, FILES_MARK, HOST_MARK, PORT_MARK, Command, Spread, named_mark
from remuda.wire.spread import HEAD_MARK, HEAD_PORT_MARK, OWN_MARK, RANK_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.plan.deployment.shape import Shape
    from remuda.specs.deployment import DeployedRole, DeploymentSpec, MockerEngine, VllmEngine

HEALTHY_WHEN_IT_GENERATES: Final = '["generate"]'
_KNOBS: Final = (
    "engine_type", "speedup_ratio", "decode_speedup_ratio", "num_gpu_blocks_override", "max_num_seqs",
    "max_num_batched_tokens", "block_size", "startup_time", "kv_transfer_bandwidth", "kv_cache_dtype",
    "preemption_mode",
)  # fmt: skip
_SWITCHES: Final = ("enable_prefix_caching", "enable_chunked_prefill")
_PARALLEL: Final = (*TP, *DP, *PP)
_CONNECTORS: Final = {
    "nixl": {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
    "lmcache": {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"},
    "kvbm": {"kv_connector": "DynamoConnector", "kv_connector_module_path": "kvbm.vllm_integration.connector",
             "kv_role": "kv_both"},
}  # fmt: skip
_HEAD_PORTS: Final = ("--data-parallel-rpc-port", "--master-port")
"""Flags of vLLM for the port at which its nodes meet."""
_CONFIG: Final = "engine.yaml"
KEY_ENV: Final = {"vllm": "VLLM_API_KEY", "llamacpp": "REMUDA_ENGINE_KEY"}
"""Engine -> variable from which its server reads the key that it asks for; others have none, or in arguments."""


FATAL: Final[Mapping[str, tuple[str, ...]]] = {
    "sglang": ("Scheduler hit an exception", "Received sigquit from a child process", "torch.OutOfMemoryError"),
    "vllm": ("Engine core initialization failed", "EngineCore failed to start", "torch.OutOfMemoryError"),
    "trtllm": ("MPI_ABORT was invoked", "Executor creation failed", "torch.OutOfMemoryError"),
}
"""Engine -> lines after which its launcher may live on and never serve."""


@dataclass(frozen=True)
class Worker:
    """One worker of a role, before it is rendered.

    Args:
        spec: of the deployment.
        name: of the role: `prefill`, `decode` or `agg`.
        shape: its nodes and GPUs.
        python: interpreter that has the engine.
        env: how the parts of Dynamo find each other; empty without Dynamo.
    """

    spec: DeploymentSpec
    name: str
    shape: Shape
    python: str
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def role(self) -> DeployedRole:
        """What the recipe says of the role."""
        return self.spec.by_name()[self.name]

    @property
    def engine(self) -> Any:
        """The engine of the role."""
        return self.spec.engine_of(self.name)

    @property
    def dynamo(self) -> bool:
        """Whether Dynamo's program is around the engine."""
        return self.spec.frontend.type == "dynamo"

    @property
    def where(self) -> str:
        """Path of the role's flags, for messages."""
        return f"roles.{self.name}.args"

    @property
    def model(self) -> str:
        """The model as engines take it."""
        return self.spec.model.path.removeprefix("hf:")


@dataclass(frozen=True)
class Server:
    """How one worker is started and asked.

    Args:
        argv: program and arguments, on its first node.
        env: environment of the engine's own.
        files: name -> text.
        ports: names of ports that the recipe fixes -> number.
        member: the same as `argv` on the other nodes, where it spans some.
        ranks: of MPI, which the scheduler starts over all nodes; 0: it is no MPI program.
        head_port: at which its nodes meet, where the recipe fixes it.
        health: path that answers 200 once it can take requests.
        metrics: path of its counters; empty: none.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    member: tuple[str, ...] = ()
    ranks: int = 0
    head_port: int = 0
    health: str = "/health"
    metrics: str = "/metrics"


def render(worker: Worker) -> Server:
    """How a worker is started.

    Raises:
        InputError: the engine cannot do what is asked, or a flag is the launcher's; `where` is the field.
    """
    kind = worker.engine.type
    if worker.shape.nodes > 1 and kind == "llamacpp":
        raise InputError(f"{kind} cannot be started over {worker.shape.nodes} nodes yet",
                         hint="a worker may have the GPUs of one node", where=f"roles.{worker.name}.gpus")  # fmt: skip
    if kind == "llamacpp" and (worker.dynamo or worker.name != "agg"):
        raise InputError("llamacpp does both in one server, and is no worker of Dynamo's", where="engine.type",
                         hint="use the role `agg`, and the frontend smg, nginx or none")  # fmt: skip
    if kind == "mocker" and not worker.dynamo:
        raise InputError("the mocker is asked by Dynamo's frontend only", hint="leave `frontend.type` out",
                         where="frontend.type")  # fmt: skip
    if kind in ("vllm", "trtllm") and not worker.dynamo and worker.name != "agg":
        raise InputError(
            f"{kind} with prefill and decode apart cannot be brought up behind {worker.spec.frontend.type} yet",
            hint="use Dynamo's frontend, or the role `agg`", where="frontend.type",
        )  # fmt: skip
    return {"mocker": _mocker, "sglang": _sglang, "vllm": _vllm, "trtllm": _trtllm, "llamacpp": _llamacpp}[kind](worker)


def command_of(worker: Worker, server: Server) -> Command:
    """The command of a worker: what the recipe says for all, then the engine's own, then the role's."""
    env = {**worker.env, **worker.spec.env, **server.env}
    if worker.dynamo:
        env |= {
            "DYN_SYSTEM_HOST": HOST_MARK,
            "DYN_SYSTEM_PORT": PORT_MARK,
            "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": HEALTHY_WHEN_IT_GENERATES,
        }
    return Command(argv=server.argv, env={**env, **worker.role.env}, files=server.files, ranks=server.ranks)


def key_env(spec: DeploymentSpec, name: str) -> str:
    """The variable in which servers of a role have the key that they ask for; empty: they ask for none."""
    is_asked = spec.api_key is not None and spec.frontend.type != "dynamo"
    return KEY_ENV.get(spec.engine_of(name).type, "") if is_asked else ""


def spread_of(worker: Worker, server: Server) -> Spread | None:
    """How it spans nodes, by the engine's own ranks; None: it is on one, or the scheduler starts all ranks."""
    if worker.shape.nodes == 1 or server.ranks:
        return None
    return Spread(nodes=worker.shape.nodes, member=server.member, head_port=server.head_port)


# --- engines ---------------------------------------------------------------------------------------------------------


def _mocker(worker: Worker) -> Server:
    engine: MockerEngine = worker.engine
    own: dict[str, Any] = {"--model-path": worker.model, "--model-name": worker.spec.model.name, **_mode(worker)}
    said, ports = _fixed_ports(worker, {"bootstrap-ports": BOOTSTRAP} if worker.name == "prefill" else {})
    if worker.name == "prefill":
        own["--bootstrap-ports"] = named_mark(BOOTSTRAP)
    knobs: dict[str, Any] = {
        key: getattr(engine, key) for key in _KNOBS if key in engine.model_fields_set or key == "speedup_ratio"
    }
    for key in _SWITCHES:
        value = getattr(engine, key)
        if value is not None:
            knobs[key if value else f"no_{key}"] = True
    flags = words(merged(own, {**knobs, **said}, worker.where))
    return Server((worker.python, "-m", "dynamo.mocker", *flags, *worker.role.extra_args), ports=ports)


def _sglang(worker: Worker) -> Server:
    names = {"nccl-port": "nccl"}
    if worker.name == "prefill":  # decode asks prefill's, and opens none
        names["disaggregation-bootstrap-port"] = BOOTSTRAP
    said, ports = _fixed_ports(worker, names)
    own: dict[str, Any] = {
        "--model-path": worker.model, "--served-model-name": worker.spec.model.name, "--host": HOST_MARK,
        "--port": named_mark("engine") if worker.dynamo else PORT_MARK, "--nccl-port": named_mark("nccl"),
        **_mode(worker, "--disaggregation-mode"),
    }  # fmt: skip
    if worker.name == "prefill":
        own["--disaggregation-bootstrap-port"] = named_mark(BOOTSTRAP)
    if not worker.dynamo:
        own["--enable-metrics"] = True
    own |= _events(worker)
    if worker.shape.gpus > 1 and not has(said, _PARALLEL):
        own["--tensor-parallel-size"] = worker.shape.gpus
    if not worker.shape.gpus and not has(said, ("device",)):
        own["--device"] = "cpu"
    ranks: dict[str, Any] = {}
    if worker.shape.nodes > 1:
        ranks = {
            "--nnodes": worker.shape.nodes,
            "--node-rank": RANK_MARK,
            "--dist-init-addr": f"{HEAD_MARK}:{HEAD_PORT_MARK}",
        }
    flags = words(merged({**own, **ranks}, said, worker.where))
    module = "dynamo.sglang" if worker.dynamo else "sglang.launch_server"
    argv = (worker.python, "-m", module, *flags, *worker.role.extra_args)
    return Server(argv, ports=ports, member=argv)


def _vllm(worker: Worker) -> Server:
    said, ports = _fixed_ports(worker, {})
    start: tuple[str, ...] = (worker.python, "-m", "dynamo.vllm")
    own: dict[str, Any] = {"--served-model-name": worker.spec.model.name}
    env: dict[str, str] = {}
    is_older = worker.dynamo and services.is_older(worker.spec)
    if worker.dynamo:
        mode = {f"--is-{worker.name}-worker": True} if is_older and worker.name != "agg" else _mode(worker)
        own = {"--model": worker.model, **own, **mode}
        env["DYN_VLLM_KV_EVENT_PORT"] = named_mark("kv_events")
    else:
        start = (worker.python, "-m", "vllm.entrypoints.cli.main", "serve", worker.model)
        own |= {"--host": HOST_MARK, "--port": PORT_MARK}
    if (transfer := _transfer(worker, said, is_older=is_older)) is not None:
        own |= transfer
        env |= {"VLLM_NIXL_SIDE_CHANNEL_HOST": OWN_MARK, "VLLM_NIXL_SIDE_CHANNEL_PORT": named_mark("nixl")}
    own |= _events(worker)
    if worker.shape.gpus > 1 and not has(said, _PARALLEL):
        own["--tensor-parallel-size"] = worker.shape.gpus
    head_port = 0
    if worker.shape.nodes > 1:
        head_port = number(said, _HEAD_PORTS, 0)
        said = {key: value for key, value in said.items() if dashed(key) not in _HEAD_PORTS}
    first, other = _vllm_ranks(worker, said)
    argv, member = (
        (*start, *words(merged({**own, **ranks}, said, worker.where), negates=True), *worker.role.extra_args)
        for ranks in (first, other)
    )
    return Server(argv, env=env, ports=ports, member=member, head_port=head_port)


def _vllm_ranks(worker: Worker, said: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Flags of the first node and of the others, where a worker spans nodes."""
    nodes = worker.shape.nodes
    if nodes == 1:
        return {}, {}
    data = number(said, DP, 1)
    if data == 1:
        ranks: dict[str, Any] = {"--nnodes": nodes, "--node-rank": RANK_MARK, "--master-addr": HEAD_MARK,
                                 "--master-port": HEAD_PORT_MARK}  # fmt: skip
        return ranks, {**ranks, "--headless": True}
    if nodes > 2 or data % nodes:
        raise InputError(
            f"vllm with {data} data-parallel ranks over {nodes} nodes cannot be started yet",
            hint="use two nodes and an even number of ranks, or tensor parallelism", where=worker.where,
        )  # fmt: skip
    local = data // nodes
    both = {"--data-parallel-size-local": local, "--data-parallel-address": HEAD_MARK,
            "--data-parallel-rpc-port": HEAD_PORT_MARK}  # fmt: skip
    headless = {} if "--data-parallel-hybrid-lb" in words(said) else {"--headless": True}  # there each node is asked
    return both, {**both, "--data-parallel-start-rank": local, **headless}


def _transfer(worker: Worker, said: dict[str, Any], *, is_older: bool) -> dict[str, Any] | None:
    """Flags for what carries keys and values between workers; None: nothing does.

    Args:
        worker: of vLLM.
        said: its flags; `connector`, which only Dynamo before 1.0 has, is taken out.
        is_older: whether Dynamo is one of those: it takes nixl where nothing is said, and no other way beside it.
    """
    engine: VllmEngine = worker.engine
    key = next((key for key in said if dashed(key) == "--connector"), "")
    asked = said.pop(key) if key else engine.connector
    if isinstance(asked, list) and len(asked) == 1:
        asked = asked[0]
    nothing = {"--connector": "none"} if is_older else {}
    if has(said, ("kv-transfer-config",)):
        return nothing
    if worker.name == "agg" and not key and "connector" not in engine.model_fields_set:
        return None
    if asked in (None, "none", "null"):
        return nothing or None
    if isinstance(asked, str) and asked in _CONNECTORS:
        return {"--connector": asked} if is_older else {"--kv-transfer-config": json.dumps(_CONNECTORS[asked])}
    if isinstance(asked, dict) or (isinstance(asked, str) and asked.startswith("{")):
        return {"--kv-transfer-config": asked if isinstance(asked, str) else json.dumps(asked), **nothing}
    where = f"{worker.where}.{key}" if key else "engine.connector"
    known = "known: nixl, lmcache, kvbm, none, or the JSON of one"
    raise InputError(f"the connector {asked!r} is not known", hint=known, where=where)


def _trtllm(worker: Worker) -> Server:
    """Flags are in a file, where false stays false; only what is the launcher's is on the command line.

    On Slurm it is an MPI program with a rank for each GPU, of which the first serves; elsewhere it starts its ranks.
    """
    engine = worker.engine
    config = {str(key).lstrip("-").replace("-", "_"): value for key, value in worker.role.args.items()}
    if worker.shape.gpus > 1 and not any(key.endswith("parallel_size") for key in counted(config)):
        config["tensor_parallel_size"] = worker.shape.gpus
    for key, value in (("model_path", worker.model), ("served_model_name", worker.spec.model.name)):
        if str(config.pop(key, None) or value) != str(value):
            raise InputError(f"`{worker.where}.{key}` differs from the deployment's", hint="leave it out",
                             where=f"{worker.where}.{key}")  # fmt: skip
    file = f"{FILES_MARK}/{_CONFIG}"
    on_slurm = not worker.spec.backend.is_here
    start = (*_memory_bind(worker), *(("trtllm-llmapi-launch",) if on_slurm else ()))
    if worker.dynamo:
        names: dict[str, Any] = {"--model-path": worker.model, "--served-model-name": worker.spec.model.name}
        own = {**names, **_mode(worker), "--extra-engine-args": file}
        if engine.publish_events_and_metrics:
            own["--publish-events-and-metrics"] = True
        argv = (*start, worker.python, "-m", "dynamo.trtllm", *words(own))
    else:
        own = {"--host": HOST_MARK, "--port": PORT_MARK, "--extra_llm_api_options": file}
        flags = tuple(word for name, value in own.items() for word in (name, value))
        argv = (*start, "trtllm-serve", worker.model, *flags)
    text = yaml.safe_dump(config, sort_keys=False)
    metrics = "/metrics" if worker.dynamo else ""
    env = {"TRTLLM_EPLB_SHM_NAME": f"moe_shared_{PORT_MARK}"}  # workers on one node must not share it
    ranks = max(1, worker.shape.gpus) if on_slurm else 0
    return Server((*argv, *worker.role.extra_args), env=env, files={_CONFIG: text}, ranks=ranks, metrics=metrics)


def _memory_bind(worker: Worker) -> tuple[str, ...]:
    """On machines with Grace CPUs the memory of GPUs is NUMA nodes, too, and must be left to the GPUs."""
    said = worker.engine.numa_memory_bind
    is_grace = worker.spec.gpu_type.lower().startswith(("gb200", "gb300"))
    nodes = {None: "0,1" if is_grace else "", "true": "0,1", "false": ""}.get(said and said.lower(), said)
    return ("numactl", "-m", nodes) if nodes else ()


def _llamacpp(worker: Worker) -> Server:
    own: dict[str, Any] = {"--model": worker.model, "--host": HOST_MARK, "--port": PORT_MARK,
                           "--alias": worker.spec.model.name, "--metrics": True,
                           "--n-gpu-layers": 999 if worker.shape.gpus else 0}  # fmt: skip
    if key := key_env(worker.spec, worker.name):
        own["--api-key-env"] = key
    flags = words(merged(own, counted(worker.role.args), worker.where))
    return Server((worker.python, "-m", "remuda.serving.llamacpp_server", *flags, *worker.role.extra_args))


# --- what they share -------------------------------------------------------------------------------------------------


def _mode(worker: Worker, flag: str = "--disaggregation-mode") -> dict[str, str]:
    return {flag: worker.name} if worker.name != "agg" else {}


def _fixed_ports(worker: Worker, names: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, int]]:
    """The recipe's flags without those of ports, which are fixed numbers of ports that we name; and these.

    The address to listen on may be said, too, where it is everybody's: on a cluster that is what is meant.
    """
    said, ports = {}, {}
    for key, value in counted(worker.role.args).items():
        name = names.get(dashed(key).removeprefix("--"))
        if name is not None and str(value).isdigit():
            ports[name] = int(str(value))
        elif dashed(key) != "--host" or str(value) not in ("0.0.0.0", "::"):  # noqa: S104 - read, not bound
            said[key] = value
    return said, ports


def _for_role(value: Any, name: str) -> bool:
    if isinstance(value, dict):
        return bool(value.get(name) or value.get({"agg": "aggregated"}.get(name, name)))
    return bool(value)


def _events(worker: Worker) -> dict[str, str]:
    """The flag by which a worker publishes what its cache holds, where it is asked to.

    That has no key. SGLang listens only where the address has a `*`, and connects to any other; Dynamo's part of the
    same worker reads at the node's own address. So it is everybody's under Dynamo, and left out where nothing reads it.
    """
    said = worker.role.kv_events
    named = said if isinstance(said, dict) else {}
    is_asked = _for_role(worker.engine.kv_events_config, worker.name) or bool(said)
    if not is_asked or not (worker.dynamo or "endpoint" in named):
        return {}
    topic = {"publisher": "zmq", "topic": "kv-events", "endpoint": f"tcp://*:{named_mark('kv_events')}"}
    more = {"enable_kv_cache_events": True} if worker.engine.type == "vllm" else {}
    return {"--kv-events-config": json.dumps({**topic, **more, **named})}
