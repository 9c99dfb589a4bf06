"""How the parts of a deployment under Dynamo find each other. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.plan.deployment.services import service_env

if TYPE_CHECKING:
    from remuda.specs.deployment import DeploymentSpec

_HERE: Final = ("DYN_TCP_RPC_HOST", "DYN_EVENT_PLANE_HOST", "DYN_TCP_RESPONSE_STREAM_HOST")


def environment(spec: DeploymentSpec, discovery: str) -> dict[str, str]:
    """Of each part.

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
    if spec.backend.is_here:
        found |= dict.fromkeys(_HERE, "127.0.0.1")
    if spec.model.path.startswith("/"):
        found |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return found
