"""The group of a router: how each kind is started. Pure; what a router is told while it runs is `serving`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda import enter
from remuda.base.errors import InputError
from remuda.plan.model import HOST_MARK, PORT_MARK, Command, Group, Listen, Replace, Role, Secret
from remuda.wire.child import HealthProbe, RestartRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.plan.model import Endpoint

API_KEY_ENV: Final = "REMUDA_ROUTER_API_KEY"
CONTROL_KEY_ENV: Final = "REMUDA_ROUTER_CONTROL_KEY"
CONTROL_KEY: Final = "router-control.key"
"""File in the workload's `secrets` folder: what changes the membership."""

#: A router starts in 0.3 s and is the one part that must be back at once, for ever. One that was well for ten seconds
#: is in no crash loop.
#: One that is busy answers late: a restart would cut all that it works on.
PROBE: Final = HealthProbe(
    interval_s=2.0, timeout_s=10.0, startup_timeout_s=60.0, stall_s=0.0, unhealthy_restart_after_s=60.0
)
RESTART: Final = RestartRule(
    policy="always", max_restarts=20, backoff_initial_s=0.2, backoff_max_s=5.0, heal_after_s=60.0
)
REPLACE: Final = Replace(max_failures=20, backoff_initial_s=0.5, backoff_max_s=30.0, heal_after_s=10.0)

POLICIES: Final = {
    "smg": frozenset({
        "cache_aware", "round_robin", "random", "power_of_two", "least_load", "prefix_hash", "consistent_hashing",
        "manual", "passthrough",
    }),
    "nginx": frozenset({"least_conn", "round_robin", "random"}),
    "dynamo": frozenset({"kv", "round-robin", "random", "power-of-two", "least-loaded"}),
}  # fmt: skip
"""By router: ways to choose a member for a request."""
TUNED: Final = (
    # Tokens are the engines' business; smg would look for a tokenizer on the network.
    "--disable-tokenizer-autoload",
    # A replica that dies or returns is noticed within a second; by default it stayed out for 50.
    *("--health-check-interval-secs", "1", "--health-check-timeout-secs", "2"),
    *("--health-failure-threshold", "1", "--health-success-threshold", "1"),
    # A replica that never answers is forgotten soon; the next sync adds it again.
    *("--worker-startup-check-interval", "1", "--worker-startup-timeout-secs", "10"),
    # Ten failures in a row close a replica off for two seconds, not for a minute.
    *("--cb-failure-threshold", "10", "--cb-timeout-duration-secs", "2", "--cb-success-threshold", "1"),
    # No answers are kept, no long goodbye: streams that outlive it would hold the endpoint's port.
    *("--history-backend", "none", "--shutdown-grace-period-secs", "1"),
)


@dataclass(frozen=True)
class RouterSettings:
    """What a workload asks of its router."""

    endpoint: Endpoint
    replicas: int
    policy: str = ""
    """Empty: the router's best for so many replicas."""
    group: str = "router"
    control_key: Secret | None = None
    """Without one, everybody who reaches the port can change the membership."""
    public: bool = False
    """Listen on all addresses of the node instead of loopback."""
    request_timeout_s: float = 3600.0
    """Longest answer, streams included."""
    python: str = "python3"
    log_level: str = "info"
    """`debug` makes the router talkative; otherwise it says what is not well."""
    apart: bool = False
    """Prefill and decode run in servers of their own."""
    extra_args: tuple[str, ...] = ()
    """Given to the router's own command line as they are, last."""


def router_group(kind: str, settings: RouterSettings) -> Group:
    """How a router is started.

    Args:
        kind: `smg`, `nginx` or `dynamo`.
        settings: what is asked of it.

    Raises:
        InputError: the router does not know the policy, or members that run apart.
    """
    policy = settings.policy
    if policy and policy not in POLICIES[kind]:
        known = ", ".join(sorted(POLICIES[kind]))
        raise InputError(f"{kind} has no policy {policy!r}", hint=f"known: {known}")
    command, listen, grace_s = _KINDS[kind](settings)
    return Group(
        name=settings.group, role=Role.ROUTER, count=1, command=command, listen=listen, probe=PROBE, restart=RESTART,
        replace=REPLACE, kill_grace_s=grace_s,
    )  # fmt: skip


def _keys(settings: RouterSettings) -> tuple[list[str], dict[str, Secret]]:
    """Flags that name the variables of its keys, and these variables."""
    keys = {API_KEY_ENV: settings.endpoint.api_key, CONTROL_KEY_ENV: settings.control_key}
    secrets = {name: key for name, key in keys.items() if key is not None}
    flags = {API_KEY_ENV: "--api-key-env", CONTROL_KEY_ENV: "--control-key-env"}
    return [word for name in secrets for word in (flags[name], name)], secrets


def _listen(settings: RouterSettings) -> Listen:
    return Listen(port=settings.endpoint.port, fixed=True, public=settings.public)


def _smg(settings: RouterSettings) -> tuple[Command, Listen, float]:
    policy = settings.policy or ("cache_aware" if settings.replicas > 1 else "round_robin")
    flags, secrets = _keys(settings)
    model = settings.endpoint.model
    argv = [settings.python, *enter.words("smg"), *(["--model", model] if model else []), *flags, "--"]
    argv += ["--host", HOST_MARK, "--port", PORT_MARK, "--policy", policy]
    argv += ["--pd-disaggregation"] if settings.apart else []
    argv += ["--log-level", "debug" if settings.log_level == "debug" else "warn"]
    argv += [*TUNED, "--request-timeout-secs", str(max(1, round(settings.request_timeout_s)))]
    env = {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    command = Command(argv=(*argv, *settings.extra_args), env=env, secret_env=secrets)
    return command, _listen(settings), 8.0


def _nginx(settings: RouterSettings) -> tuple[Command, Listen, float]:
    if settings.apart:
        hint = "it knows replica; smg knows all"
        raise InputError("nginx cannot send to a prefill server", hint=hint)
    flags, secrets = _keys(settings)
    own = ["--host", HOST_MARK, "--port", PORT_MARK, "--policy", settings.policy or "least_conn"]
    own += ["--timeout-s", f"{settings.request_timeout_s:g}"]
    argv = (settings.python, *enter.words("nginx"), *own, *flags, *settings.extra_args)
    return Command(argv=argv, secret_env=secrets), _listen(settings), 8.0


def _dynamo(settings: RouterSettings) -> tuple[Command, Listen, float]:
    """`discovery` must be in its environment."""
    policy = ("--router-mode", settings.policy) if settings.policy else ()
    argv = (settings.python, "-m", "dynamo.frontend", "--http-host", HOST_MARK, "--http-port", PORT_MARK, *policy)
    env = {"DYN_LOG": "debug"} if settings.log_level == "debug" else {}
    return Command(argv=(*argv, *settings.extra_args), env=env), Listen(public=settings.public), 10.0


_KINDS: Final[dict[str, Callable[[RouterSettings], tuple[Command, Listen, float]]]] = {
    "smg": _smg, "nginx": _nginx, "dynamo": _dynamo,
}  # fmt: skip
