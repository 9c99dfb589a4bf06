"""Workers under Dynamo: what each is started with, and how they find each other. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from remuda.plan.deployment.flags import merged, words
from remuda.plan.deployment.services import service_env
from remuda.plan.model import HOST_MARK, PORT_MARK, Command, named_mark

if TYPE_CHECKING:
    from remuda.specs.deployment import DeployedRole, DeploymentSpec, MockerEngine

BOOTSTRAP: Final = "bootstrap"
_HERE: Final = ("DYN_TCP_RPC_HOST", "DYN_EVENT_PLANE_HOST", "DYN_TCP_RESPONSE_STREAM_HOST")
_KNOBS: Final = (
    "engine_type", "speedup_ratio", "decode_speedup_ratio", "num_gpu_blocks_override", "max_num_seqs",
    "max_num_batched_tokens", "block_size", "startup_time", "kv_transfer_bandwidth", "kv_cache_dtype",
    "preemption_mode",
)  # fmt: skip
_SWITCHES: Final = ("enable_prefix_caching", "enable_chunked_prefill")


def environment(spec: DeploymentSpec, discovery: str) -> dict[str, str]:
    """How the parts of one deployment find each other.

    Args:
        spec: of the deployment.
        discovery: folder that all of them see; its own, or workers of another deployment would be asked, too.
    """
    by_file = {"DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": discovery}
    found_by = service_env(spec)
    found = {
        **({} if "DYN_DISCOVERY_BACKEND" in found_by else by_file),
        "DYN_REQUEST_PLANE": spec.dynamo.request_plane,
        "DYN_EVENT_PLANE": spec.dynamo.event_plane or "zmq",
        **found_by,
    }
    if spec.backend.type == "local":
        found |= dict.fromkeys(_HERE, "127.0.0.1")
    if spec.model.path.startswith("/"):
        found |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return found


def worker_command(spec: DeploymentSpec, name: str, role: DeployedRole, python: str, discovery: str) -> Command:
    """One simulated worker. Its port says how it is; requests come over a port that it lists itself.

    Raises:
        InputError: a flag of the recipe is the launcher's.
    """
    engine: MockerEngine = spec.engine_of(name)
    own: dict[str, Any] = {"--model-path": spec.model.path, "--model-name": spec.model.name}
    if name != "agg":
        own["--disaggregation-mode"] = name
    if name == "prefill":
        own["--bootstrap-ports"] = named_mark(BOOTSTRAP)
    knobs: dict[str, Any] = {
        key: getattr(engine, key) for key in _KNOBS if key in engine.model_fields_set or key == "speedup_ratio"
    }
    for key in _SWITCHES:
        value = getattr(engine, key)
        if value is not None:
            knobs[key if value else f"no_{key}"] = True
    flags = merged(own, {**knobs, **role.args}, f"roles.{name}.args")
    return Command(
        argv=(python, "-m", "dynamo.mocker", *words(flags), *role.extra_args),
        env={
            **environment(spec, discovery),
            **spec.env,
            **role.env,
            "DYN_SYSTEM_HOST": HOST_MARK,
            "DYN_SYSTEM_PORT": PORT_MARK,
            "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
        },
    )
