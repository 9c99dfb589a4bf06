"""Which words each node of a replica that spans nodes runs: Ray, or the engine's own ranks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.plan.model import NodeSpan
from remuda.specs.backend import SlurmBackend
from remuda.wire.spread import DASHBOARD_MARK, HEAD_MARK, HEAD_PORT_MARK, OWN_MARK, SCRATCH_MARK

if TYPE_CHECKING:
    from remuda.specs.swarm import SwarmSpec

RAY: Final = ("-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats")
ADDRESS: Final = f"{HEAD_MARK}:{HEAD_PORT_MARK}"
ASK: Final = """
import json, sys, time
import ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
while True:
    alive = [node for node in ray.nodes() if node["Alive"]]
    gpus = sum(node["Resources"].get("GPU", 0) for node in alive)
    print(json.dumps({"nodes": len(alive), "gpus": gpus, "version": getattr(ray, "__version__", "")}), flush=True)
    time.sleep(0.5 if len(alive) < int(sys.argv[2]) or gpus < int(sys.argv[3]) else float(sys.argv[4]))
"""


def nodes_of(spec: SwarmSpec) -> int:
    """Nodes of one replica; 1 on backends that have no nodes to choose from."""
    if not isinstance(spec.backend, SlurmBackend):
        return 1
    return max(1, -(-(spec.gpus_per_replica or 0) // spec.gpus_per_node))


def spread_of(spec: SwarmSpec, member: tuple[str, ...], python: str) -> NodeSpan | None:
    """How a replica spans nodes; None when it is on one.

    Args:
        spec: without gaps.
        member: words of the server on each node but the first, where the engine's own ranks hold it together.
        python: interpreter that has the engine, and Ray where it is used.
    """
    count, backend = nodes_of(spec), spec.backend
    if count == 1 or not isinstance(backend, SlurmBackend):
        return None
    if spec.spanning != "ray":
        return NodeSpan(nodes=count, member=list(member), cpus=spec.cpus_per_task or 0)
    watch = spec.watchdog.ray
    gpus = watch.expected_tp if watch.expected_tp is not None else count * spec.gpus_per_node
    each = (f"--num-gpus={spec.gpus_per_node}", f"--num-cpus={spec.cpus_per_task or 1}")
    head = [python, *RAY, "--head", f"--node-ip-address={HEAD_MARK}", f"--port={HEAD_PORT_MARK}",
            "--dashboard-host=127.0.0.1", f"--dashboard-port={DASHBOARD_MARK}", f"--temp-dir={SCRATCH_MARK}",
            *each]  # fmt: skip
    ask = [python, "-c", ASK, ADDRESS, str(count), str(gpus), str(watch.probe_interval_s)]
    return NodeSpan(
        nodes=count,
        member=[python, *RAY, f"--address={ADDRESS}", f"--node-ip-address={OWN_MARK}", *each],
        head=head,
        ask=ask,
        gpus=gpus,
        env={"RAY_ADDRESS": ADDRESS},
        head_port=backend.ray_port,
        dashboard_port=backend.ray_dashboard_port,
        cpus=spec.cpus_per_task or 0,
        watch=watch.enabled and spec.watchdog.enabled,
        probe_timeout_s=watch.probe_timeout_s,
        status_grace_s=watch.status_grace_s,
        probe_interval_s=watch.probe_interval_s,
    )
