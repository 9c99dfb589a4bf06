"""What exactly is started: marks replaced, secrets read, the environment that the child sees."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import remuda
from remuda.node.private import open_new
from remuda.node.script import progress
from remuda.wire.child import CONTAINER_MARK, FILES_MARK, HOST_MARK, NODE_MARK, PORT_MARK, PROGRAM_MARK, named_mark
from remuda.wire.spread import OWN_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.wire.child import ChildSpec

FILES = "files"
"""In the allocation's directory: what is written for the child to read."""
NODE_VARIABLE = "REMUDA_NODE"
ADDRESS_VARIABLE = "REMUDA_ADDRESS"
"""Its name as the scheduler has it, where the machine's own is another."""
PORTS_VARIABLE = "REMUDA_PORTS"
"""JSON object: the child's ports by name, where it has any."""


_ITSELF = (
    "import sys; sys.path.insert(0, sys.argv[1]); from remuda.node.program import main; sys.exit(main(sys.argv[2:]))"
)


class SecretMissing(Exception):
    """A secret is not where the document says; the message names the place, never a value."""


class NotHere(Exception):
    """Something that the child cannot do without is not on this node; the message says what."""


class Launch(NamedTuple):
    """One start of the child."""

    argv: list[str]
    env: dict[str, str]
    secrets: tuple[str, ...]
    """Values that must not be written anywhere."""
    bearer: str
    """Token for probes, empty for none."""


def prepare(
    spec: ChildSpec, port: int, environ: Mapping[str, str], ports: Mapping[str, int] = MappingProxyType({})
) -> Launch:
    """Put together how the child is started on `port` (0: it has none).

    Args:
        spec: the document.
        port: chosen port.
        environ: environment of this program, the base of the child's.
        ports: those that it asks for by name.

    Raises:
        SecretMissing: see there.
        NotHere: see there.
    """
    missing = [f"{what} {path!r}" for path, what in spec.needs.items() if not os.path.exists(path)]  # noqa: PTH110
    if missing:
        raise NotHere(f"there is no {missing[0]} on node {node_name(environ)}")
    secrets = {name: read_secret(name, source, environ) for name, source in spec.secret_env.items()}
    env = dict(environ)
    marks = {PORT_MARK: str(port), HOST_MARK: spec.bind_host, FILES_MARK: f"{spec.run_dir}/{FILES}"}
    marks |= {named_mark(name): str(number) for name, number in ports.items()}
    if any(OWN_MARK in value for value in spec.env.values()):
        marks[OWN_MARK] = own_ip(spec)
    env.update({name: _fill(value, marks) for name, value in spec.env.items()})
    env.update(secrets)
    env.update(
        REMUDA_PORT=str(port) if port else "",
        REMUDA_HOST=spec.bind_host,
        REMUDA_TOKEN=spec.token,
        REMUDA_TASK=spec.task,
        REMUDA_ATTEMPT=str(spec.attempt),
        REMUDA_WORKLOAD=spec.workload,
        REMUDA_RUN_DIR=spec.run_dir,
        PYTHONUNBUFFERED="1",
    )
    env.update({PORTS_VARIABLE: json.dumps(dict(ports))} if ports else {})
    if spec.watch is not None:
        env.update(progress.environment(Path(spec.run_dir), env))
    elif not spec.listens():  # a program of ours, which needs no tools to tell how far it is
        env[progress.VARIABLE] = str(Path(spec.run_dir) / progress.FILE)
    bearer = secrets.get(spec.probe.bearer, "") if spec.probe is not None else ""
    argv = [_fill(word, marks) for word in spec.argv]
    _write({name: _fill(text, marks) for name, text in spec.files.items()}, Path(spec.run_dir, FILES))
    if argv[0] == CONTAINER_MARK:
        argv[0] = container_program(env)
    argv[:1] = node_program() if argv[0] == PROGRAM_MARK else argv[:1]
    if spec.spread is not None:
        argv = [*spec.spread.launcher, "spread", f"{spec.run_dir}/child.json", "--", *argv]
    return Launch(argv, env, tuple(secrets.values()), bearer)


def node_program() -> list[str]:
    """The words that start this program anew, from its archive or its sources."""
    return [sys.executable, "-I", "-S", "-c", _ITSELF, str(Path(remuda.__file__).parent.parent)]


def told_ports() -> dict[str, str]:
    """Marks and numbers of the ports by name that this program, as a child, was given."""
    ports = json.loads(os.environ.get(PORTS_VARIABLE, "{}"))
    return {named_mark(name): str(number) for name, number in ports.items()}


def _fill(text: str, marks: Mapping[str, str]) -> str:
    if NODE_MARK in text:
        text = text.replace(NODE_MARK, node_name(os.environ))
    for mark, value in marks.items():
        text = text.replace(mark, value)
    return text


def _write(files: Mapping[str, str], folder: Path) -> None:
    """Write what the child reads when it starts.

    Raises:
        NotHere: it cannot be written.
    """
    try:
        for name, text in files.items():
            folder.mkdir(mode=0o700, exist_ok=True)
            with open_new(folder / name) as file:
                file.write(text)
    except OSError as error:
        raise NotHere(f"a file of the child cannot be written: {error}") from error


def node_name(environ: Mapping[str, str]) -> str:
    """What the scheduler calls this node, else its own name."""
    return environ.get("SLURMD_NODENAME") or environ.get(NODE_VARIABLE) or os.uname().nodename


def container_program(env: Mapping[str, str]) -> str:
    """Apptainer or Singularity, whichever there is.

    Raises:
        NotHere: neither is.
    """
    for name in ("apptainer", "singularity"):
        found = shutil.which(name, path=env.get("PATH"))
        if found:
            return found
    raise NotHere(f"neither apptainer nor singularity is in the PATH of node {node_name(os.environ)}")


def read_secret(name: str, source: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """The value of one secret, without the newline that editors leave at a file's end.

    Raises:
        SecretMissing: see there.
    """
    if source.get("file"):
        try:
            return Path(source["file"]).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = os.strerror(error.errno or 0) if isinstance(error, OSError) else "not UTF-8 text"
            raise SecretMissing(f"secret {name}: cannot read {source['file']}: {why}") from None
    variable = source.get("env", "")
    if variable not in environ:
        raise SecretMissing(f"secret {name}: environment variable {variable!r} is not set on this node")
    return environ[variable]


def probe_host(bind_host: str) -> str:
    """Address, never a name, at which a child that listens on `bind_host` is reached from its own machine.

    Raises:
        OSError: a name that this machine cannot resolve; looking it up may block.
    """
    reached = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound
    if bind_host in reached or ":" in bind_host or bind_host.replace(".", "").isdigit():
        return reached.get(bind_host, bind_host)
    return socket.gethostbyname(bind_host)


def url(spec: ChildSpec, port: int) -> str:
    """Where others reach the child; empty without a port."""
    if not port:
        return ""
    wildcard = spec.bind_host in ("0.0.0.0", "::", "")  # noqa: S104 - read, not bound
    host = spec.advertise_host or (own_address(spec.host_file) if wildcard else spec.bind_host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def own_ip(spec: ChildSpec) -> str:
    """Address, never a name, at which other nodes reach what the child opens.

    Raises:
        NotHere: this machine does not know its own name.
    """
    wildcard = spec.bind_host in ("0.0.0.0", "::", "")  # noqa: S104 - read, not bound
    try:
        return probe_host(own_address(spec.host_file) if wildcard else spec.bind_host)
    except OSError as error:
        raise NotHere(f"this node's own address is not known: {error}") from error


def own_address(host_file: str) -> str:
    """This machine's address: what it was told, or that on the way to the host, whom others are near.

    The machine's name, which may be unknown elsewhere, where the host takes reports on its own machine only, or does
    not say where. Nothing is sent and no name is looked up.
    """
    if told := os.environ.get(ADDRESS_VARIABLE):
        return told
    name = os.uname().nodename
    try:
        host = str(json.loads(Path(host_file).read_text(encoding="utf-8"))["report_host"])
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.inet_pton(family, host)  # an address, not a name
        if host.startswith("127.") or host == "::1":
            return name
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect((host, 9))
            return str(way.getsockname()[0])
    except (OSError, ValueError, KeyError, TypeError):
        return name
