"""The group that keeps the address of a swarm on a cluster: one program on the machine of the host. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda import enter
from remuda.plan.model import HOST_MARK, PORT_MARK, Command, Group, HealthProbe, Replace, RestartRule, Role

if TYPE_CHECKING:
    from remuda.plan.model import Listen

RELAY: Final = "relay"
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - only with an API key, which the router behind it asks for
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
"""Addresses of this machine that nobody else reaches."""
PROBE: Final = HealthProbe(
    path="/-/relay/health", interval_s=2.0, timeout_s=10.0, startup_timeout_s=60.0, stall_s=0.0,
    unhealthy_restart_after_s=60.0,
)  # fmt: skip
#: It keeps nothing, and everybody waits for it: begun again at once, for ever.
RESTART: Final = RestartRule(
    policy="always", max_restarts=20, backoff_initial_s=0.1, backoff_max_s=2.0, heal_after_s=60.0
)
REPLACE: Final = Replace(max_failures=20, backoff_initial_s=0.2, backoff_max_s=10.0, heal_after_s=10.0)


def relay_group(listen: Listen, *, run_dir: str, python: str) -> Group:
    """The relay of one swarm.

    Args:
        listen: the address of the swarm.
        run_dir: directory of the workload, where the file is that names the router.
        python: remuda's own interpreter on the machine of the host.
    """
    argv = (python, *enter.words("relay"), "--host", HOST_MARK, "--port", PORT_MARK)
    return Group(
        name=RELAY,
        role=Role.RELAY,
        count=1,
        command=Command(argv=(*argv, "--file", f"{run_dir}/router.json")),
        listen=listen,
        probe=PROBE,
        restart=RESTART,
        replace=REPLACE,
        kill_grace_s=4.0,
        backend="local",
    )
