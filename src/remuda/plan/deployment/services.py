"""Services beside the workers of a deployment: which there are, how each is started, and who is told its address. Pure.

A group that is told an address comes after the service that has it, whatever else is said about their order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.plan.engines.base import secrets_of
from remuda.plan.engines.flags import words
from remuda.plan.model import (
    ADDRESS,
    FILES_MARK,
    HOST_MARK,
    NODE_MARK,
    PORT_MARK,
    Command,
    Group,
    HealthProbe,
    Listen,
    Replace,
    RestartRule,
    Role,
    address_mark,
    named_mark,
)
from remuda.specs.deployment import Service

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.specs.deployment import DeploymentSpec

BEFORE: Final = ("infra", "before_workers")
"""Values of `start` that workers come after."""
PORTS: Final = {"etcd": 2379, "nats": 4222, "mooncake-master": 50051, "generic": 6800}
"""Where the search for a free port begins."""
_PATHS: Final = {"etcd": "/health", "nats": "", "mooncake-master": ""}
"""What is asked of those that are known: etcd says whether it has a leader, of the others the port must answer."""
_AGAIN: Final = RestartRule(
    policy="always", max_restarts=20, backoff_initial_s=0.2, backoff_max_s=5.0, heal_after_s=60.0
)
_REPLACED: Final = Replace(max_failures=20, backoff_initial_s=0.5, backoff_max_s=30.0, heal_after_s=60.0)
_OWN: Final = ("127.0.0.1", "localhost", "0.0.0.0", "{host}")  # noqa: S104 - read, not bound
_WORD: Final = re.compile(r"\{address:([^{}]*)\}")


# --- which there are -------------------------------------------------------------------------------------------------


def services(spec: DeploymentSpec) -> tuple[Service, ...]:
    """Those that are named and not switched off, and etcd and NATS where Dynamo needs them and nobody names them."""
    said = tuple(service for service in spec.services if service.enabled)
    if spec.frontend.type != "dynamo":
        return said
    kinds, older = {service.type for service in said}, is_older(spec)
    planes = (spec.dynamo.request_plane, spec.dynamo.event_plane)
    implied = []
    if "etcd" not in kinds and (older or spec.dynamo.discovery == "etcd"):
        implied.append(Service(name="etcd", type="etcd", start="infra"))
    if "nats" not in kinds and (older or "nats" in planes):
        implied.append(Service(name="nats", type="nats", start="infra"))
    return (*implied, *said)


def service_env(spec: DeploymentSpec) -> dict[str, str]:
    """Variables by which Dynamo's parts find etcd and NATS; without etcd the caller says where they find each other."""
    found: dict[str, str] = {}
    etcd, nats = (next((one for one in services(spec) if one.type == kind), None) for kind in ("etcd", "nats"))
    if etcd is not None and spec.dynamo.discovery != "file":
        found |= {"DYN_DISCOVERY_BACKEND": "etcd", "ETCD_ENDPOINTS": _url("http", etcd)}
    if nats is not None:
        found["NATS_SERVER"] = _url("nats", nats)
    if is_older(spec):
        found["DYN_EVENT_PLANE"] = spec.dynamo.event_plane or "nats"
    return found


def is_older(spec: DeploymentSpec) -> bool:
    """Whether the image has a Dynamo before 1.0, which finds its parts by etcd and talks over NATS alone."""
    if spec.backend.is_here or spec.frontend.type != "dynamo":
        return False
    has_image = any((spec.container, spec.frontend.container, *(role.container for role in spec.by_name().values())))
    return has_image and (spec.dynamo.version or "").startswith("0.")


def _url(scheme: str, service: Service) -> str:
    if service.external is not None:
        return service.external if "://" in service.external else f"{scheme}://{service.external}"
    return f"{scheme}://{address_mark(service.name)}"


# --- how each is started ---------------------------------------------------------------------------------------------


def service_groups(spec: DeploymentSpec, run_dir: str, uid: str, *, frontend: str) -> tuple[Group, ...]:
    """A group for each service that is started.

    Args:
        spec: of the deployment.
        run_dir: of the deployment: what they know is kept there, so that it outlives every one of their allocations.
        uid: of the deployment: one that is brought up anew knows nothing.
        frontend: name of its group.

    Raises:
        InputError: one of them cannot be started; `where` is the field's path.
    """
    mine = [service for service in services(spec) if service.external is None]
    first = tuple(service.name for service in mine if service.start == "infra" and service.critical)
    after = {"infra": (), "before_workers": first, "with_workers": (), "after_frontend": (frontend,)}
    for service in mine:
        if [one.name for one in mine].count(service.name) > 1:
            raise _wrong(spec, service.name, "name", f"{service.name} is the name of the service that Dynamo needs")
    return tuple(_group(spec, service, run_dir, uid, after[service.start]) for service in mine)


def image_of(spec: DeploymentSpec, name: str) -> str:
    """The image that a service runs in; empty: none."""
    own = next((service.container for service in services(spec) if service.name == name), None)
    return (own or spec.container or "") if not spec.backend.is_here else ""


def gates(spec: DeploymentSpec) -> tuple[str, ...]:
    """Services that must be ready before workers start."""
    return tuple(one.name for one in services(spec) if one.external is None and one.start in BEFORE and one.critical)


def terminal(spec: DeploymentSpec) -> str | None:
    """The service that the deployment ends with.

    Raises:
        InputError: there are two.
    """
    names = [service.name for service in services(spec) if service.terminal and service.external is None]
    if len(names) > 1:
        raise _wrong(spec, names[1], "terminal", f"a deployment ends with one service, not with {' and '.join(names)}")
    return names[0] if names else None


def _group(spec: DeploymentSpec, service: Service, run_dir: str, uid: str, after: tuple[str, ...]) -> Group:
    name = service.name
    if service.placement.per is not None or service.placement.node == "all" or service.nodes > 1:
        raise _wrong(spec, name, "placement", f"{name} would run on several nodes; services support one replica")
    command = _command(spec, service, run_dir, uid)
    fixed, path = _readiness(spec, service)
    texts = (*command.argv, *command.env.values())
    listens = fixed > 0 or path is not None or any(PORT_MARK in text for text in texts)
    listen = Listen(port=fixed or PORTS.get(service.type, PORTS["generic"]), fixed=fixed > 0) if listens else None
    ready = service.readiness
    probe = None if path is None else HealthProbe(
        path=path, interval_s=ready.interval_seconds if ready else 2.0, timeout_s=5.0, stall_s=0.0,
        startup_timeout_s=ready.timeout_seconds if ready else 120.0, unhealthy_restart_after_s=60.0,
    )  # fmt: skip
    once = RestartRule(policy="never"), Replace(policy="never")
    restart, replace = once if service.terminal else (_AGAIN, _REPLACED)
    return Group(
        name=name, role=Role.SERVICE, count=1, command=command, listen=listen, probe=probe, restart=restart,
        replace=replace, after=after, scan_log=False,
    )  # fmt: skip


def _command(spec: DeploymentSpec, service: Service, run_dir: str, uid: str) -> Command:
    argv, files = _start(spec, service, f"{run_dir}/services/{uid}/{service.name}")
    marks = {"{port}": PORT_MARK, "{host}": HOST_MARK}

    def filled(text: str) -> str:
        return re.sub(r"\{(port|host)\}", lambda found: marks[found[0]], text)

    return Command(
        argv=tuple(map(filled, (*argv, *words(service.args, as_written=True)))),
        env={
            # What everything is told, but not where services are: they would wait for each other, and for themselves.
            **{name: text for name, text in spec.env.items() if not _WORD.search(text)},
            **{name: filled(text) for name, text in service.env.items()},
        },
        secret_env=secrets_of(spec) if service.command else {},
        files=files,
    )


def _start(spec: DeploymentSpec, service: Service, data: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Its words, and the files that they name."""
    if service.command:
        return service.command, {}
    if service.type == "etcd":
        here = HOST_MARK if spec.backend.is_here else NODE_MARK
        peer = f"http://127.0.0.1:{named_mark('peer')}"  # it has none
        return (
            "etcd", "--data-dir", data, "--listen-client-urls", f"http://{HOST_MARK}:{PORT_MARK}",
            "--advertise-client-urls", f"http://{here}:{PORT_MARK}", "--listen-peer-urls", peer,
            "--initial-cluster", f"default={peer}", "--initial-advertise-peer-urls", peer,
        ), {}  # fmt: skip
    if service.type == "nats":
        size = _payload(spec, service)
        config = ("-c", f"{FILES_MARK}/nats.conf") if size else ()
        files = {"nats.conf": f"max_payload: {size}MB\n"} if size else {}
        return ("nats-server", "-a", HOST_MARK, "-p", PORT_MARK, "-js", "-sd", data, *config), files
    if service.type == "mooncake-master":
        return (
            "mooncake_master", f"--rpc_address={HOST_MARK}", f"--rpc_port={PORT_MARK}",
            f"--metrics_host={HOST_MARK}", f"--metrics_port={named_mark('metrics')}",
            "--enable_http_metadata_server=true", f"--http_metadata_server_host={HOST_MARK}",
            f"--http_metadata_server_port={named_mark('metadata')}",
        ), {}  # fmt: skip
    sentence = f"how a service of type {service.type} is started is not known"
    raise _wrong(spec, service.name, "type", sentence, "give its `command`")


def _payload(spec: DeploymentSpec, service: Service) -> int:
    size = service.options.get("max_payload_mb")
    other = sorted(set(service.options) - {"max_payload_mb"})
    if other:
        raise _wrong(spec, service.name, "options", f"nats has no option {other[0]!r}", "known: max_payload_mb")
    if size is None:
        return 0
    if not re.fullmatch(r"[1-9][0-9]?", str(size)) or int(str(size)) > 64:
        raise _wrong(spec, service.name, "options", f"max_payload_mb must be 1 to 64, not {size!r}")
    return int(str(size))


def _readiness(spec: DeploymentSpec, service: Service) -> tuple[int, str | None]:
    """The port that it must have (0: any), and the path that it is asked for (empty: its port alone; None: nothing)."""
    ready = service.readiness
    own = None if service.command and service.type == "generic" else _PATHS.get(service.type)
    if ready is None:
        return 0, own
    if ready.port is not None:
        return ready.port, own or ""
    if ready.tcp is not None:
        host, _, port = ready.tcp.rpartition(":")
        if host not in _OWN or not re.fullmatch(r"[0-9]{1,5}|\{port\}", port) or (port.isdigit() and int(port) > 65535):
            sentence = f"{service.name} is asked at its own port, not at {ready.tcp!r}"
            raise _wrong(spec, service.name, "readiness", sentence, "e.g. 127.0.0.1:8700, or {host}:{port}")
        return (0 if port == "{port}" else int(port)), own or ""
    if ready.http is not None:
        return _http(spec, service, ready.http)
    if ready.log is not None:
        sentence = f"lines of {service.name} cannot be waited for yet"
        raise _wrong(spec, service.name, "readiness", sentence, "say a port, or `http: {path: …}`")
    return 0, own


def _http(spec: DeploymentSpec, service: Service, said: Any) -> tuple[int, str]:
    if not isinstance(said, dict) or set(said) - {"port", "path", "status"}:
        raise _wrong(spec, service.name, "readiness", "`http` is a mapping of port, path and status")
    if str(said.get("status", 200)) != "200":
        raise _wrong(spec, service.name, "readiness", f"{service.name}: readiness must be an HTTP 200 check")
    port, path = str(said.get("port", 0)), str(said.get("path", "/"))
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535 or not re.fullmatch(r"/[!-~]*", path):
        raise _wrong(
            spec, service.name, "readiness", f"`http` has port {port} and path {path!r}", "e.g. 8080 and /health"
        )
    return int(port), path


# --- who is told where they are --------------------------------------------------------------------------------------


def addressed(spec: DeploymentSpec, groups: Sequence[Group]) -> tuple[Group, ...]:
    """Groups with marks where they say `{address:NAME}`, after the services whose address they are told.

    Raises:
        InputError: there is no such service, or it has no address.
    """
    known: dict[str, str] = {
        one.name: one.external.rpartition("://")[2] for one in services(spec) if one.external is not None
    }
    known |= {group.name: address_mark(group.name) for group in groups
              if group.role.stays and group.listen is not None}  # fmt: skip
    return tuple(_with_addresses(group, known) for group in groups)


def _with_addresses(group: Group, known: Mapping[str, str]) -> Group:
    def filled(text: str) -> str:
        return _WORD.sub(lambda found: _known(found[1], known, group.name), text)

    command = group.command.model_copy(update={
        "argv": tuple(map(filled, group.command.argv)),
        "env": {name: filled(text) for name, text in group.command.env.items()},
    })  # fmt: skip
    names = [name for text in (*command.argv, *command.env.values()) for name in ADDRESS.findall(text)]
    after = tuple(dict.fromkeys((*group.after, *names)))
    return group.model_copy(update={"command": command, "after": after})


def _known(name: str, known: Mapping[str, str], group: str) -> str:
    if name not in known:
        hint = f"known: {', '.join(known)}" if known else "a service has one that says {port} or a port of `readiness`"
        raise InputError(f"{group} needs the address of {name!r}, but no service of that name has one", hint=hint,
                         where="services")  # fmt: skip
    return known[name]


def _wrong(spec: DeploymentSpec, name: str, field: str, sentence: str, hint: str = "") -> InputError:
    index = next((index for index, one in enumerate(spec.services) if one.name == name), 0)
    return InputError(sentence, hint=hint, where=f"services.{index}.{field}")
