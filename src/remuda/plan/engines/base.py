"""What an engine is, what is asked of one of its servers, and the command that comes of it. Pure; no shell sees it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.plan.engines.flags import DP, PP, TP, counted, dashed, has, merged, words
from remuda.plan.model import Secret, named_mark
from remuda.plan.placing.spanning import nodes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from remuda.specs.deployment import DeploymentSpec
    from remuda.specs.strict import SecretSource
    from remuda.specs.swarm import SwarmSpec

RESERVED: Final[Mapping[str, str]] = {
    "--host": "set `backend.endpoint.host` instead",
    "--port": "set `port` instead",
    "--api-key": "a key on a command line is visible to all users: set `api_key: {env: NAME}` instead",
}
"""Arguments that remuda gives itself, and what to set instead."""
_LAST: Final = ("--revision", "--served-model-name", "--enable-metrics", "--metrics")
"""Flags of the launcher that a swarm's command has after all others of it."""


@dataclass(frozen=True)
class EngineCommand:
    """How one server is started and asked.

    Args:
        argv: on its first node; `HOST_MARK` and `PORT_MARK` stand for what the node chooses.
        member: the same on each other node, where it spans some.
        env: environment of the engine's own.
        secret_env: the same of secrets.
        key_env: name in `secret_env` of the key that the engine itself asks for; empty: it asks for none.
        files: name -> text.
        ports: names of ports that the document fixes -> number.
        head_port: at which its nodes meet, where the document fixes it.
        ranks: of MPI, which the scheduler starts over all nodes; 0: it is no MPI program.
        probe_path: answers 200 once it can take requests.
        metrics_path: Prometheus text with running, waiting and token counts; empty: there is none.
        help_argv: prints the arguments that the engine knows; empty where it cannot be asked.
    """

    argv: tuple[str, ...]
    member: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, Secret] = field(default_factory=dict)
    key_env: str = ""
    files: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    head_port: int = 0
    ranks: int = 0
    probe_path: str = "/health"
    metrics_path: str = ""
    help_argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class Serve:
    """One server, as a document of either kind asks for it: a swarm's replica has the role `agg`.

    Args:
        python: interpreter that has the engine.
        model: as engines take it.
        name: of the model, in requests.
        role: `agg`, `prefill` or `decode`.
        gpus: of all its nodes.
        nodes: that it spans.
        by_ray: whether Ray holds them together, or the engine's own ranks.
        cpus: that it may use; 0: not said.
        path: interpreter or program that the user names instead.
        revision: of the model.
        key: that clients must send.
        said: flags by name, of which those of the launcher cannot be said otherwise.
        words: of the command, verbatim and last.
        settings: what a deployment says of the engine; None: it is a swarm's.
        frontend: of the deployment.
        is_older: whether Dynamo is one before 1.0.
        kv_events: what is said of publishing what its cache holds; None: it is not.
        gpu_type: of its nodes.
        on_slurm: whether Slurm starts it.
    """

    python: str
    model: str = ""
    name: str | None = None
    role: str = "agg"
    gpus: int = 0
    nodes: int = 1
    by_ray: bool = False
    cpus: int = 0
    path: str = ""
    revision: str | None = None
    key: Secret | None = None
    said: Mapping[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    settings: Any = None
    frontend: str = ""
    is_older: bool = False
    kv_events: Mapping[str, Any] | None = None
    gpu_type: str = ""
    on_slurm: bool = False

    @property
    def dynamo(self) -> bool:
        """Whether Dynamo's program is around the engine, and its port says how it is."""
        return self.frontend == "dynamo"

    @property
    def where(self) -> str:
        """Path of `said`, for messages."""
        return f"roles.{self.role}.args"

    @property
    def is_swarm(self) -> bool:
        """Whether it is a replica of a swarm, whose words are the user's as they stand."""
        return self.settings is None

    @property
    def other_name(self) -> str | None:
        """The name, where it must be said; a swarm leaves out what engines take by themselves."""
        return None if self.is_swarm and self.name == self.model else self.name

    def flags(self, names: Mapping[str, str] | None = None) -> tuple[dict[str, Any], dict[str, int]]:
        """What is said without the flags of ports, which are fixed numbers of ports that we name; and these.

        The address to listen on may be said, too, where it is everybody's: on a cluster that is what is meant.
        """
        said, ports = {}, {}
        for key, value in counted(self.said).items():
            name = (names or {}).get(dashed(key).removeprefix("--"))
            if name is not None and str(value).isdigit():
                ports[name] = int(str(value))
            elif dashed(key) != "--host" or str(value) not in ("0.0.0.0", "::"):  # noqa: S104 - read, not bound
                said[key] = value
        return said, ports

    def mode(self) -> dict[str, Any]:
        """The flag that says which half of the work it does."""
        return {"--disaggregation-mode": self.role if self.role != "agg" else None}

    def parallel(self, said: Mapping[str, Any], flag: str = "--tensor-parallel-size") -> dict[str, Any]:
        """The flag that spreads the model over all GPUs, where no flag spreads it otherwise."""
        return {flag: self.gpus if self.gpus > 1 and not has(said, (*TP, *DP, *PP)) else None}

    def events(self, **more: Any) -> dict[str, Any]:
        """The flag by which it publishes what its cache holds, where it is asked to.

        That has no key. SGLang listens only where the address has a `*`, and connects to any other; Dynamo's part of
        the same worker reads at the node's own address. So it is everybody's under Dynamo, and left out where nothing
        reads it.
        """
        if self.kv_events is None or not (self.dynamo or "endpoint" in self.kv_events):
            return {}
        topic = {"publisher": "zmq", "topic": "kv-events", "endpoint": f"tcp://*:{named_mark('kv_events')}"}
        return {"--kv-events-config": json.dumps({**topic, **more, **self.kv_events})}


@dataclass(frozen=True)
class Engine:
    """One kind of server program: all that is so of it, whatever document asks for it.

    Args:
        name: that documents use.
        build: the command of one server; ends with `made`.
        program: module that an interpreter runs, with its own first word, or script beside one, and words after it,
            which a program that the user names has, too; empty: there is none.
        dynamo: whether Dynamo has a program around it; then it is called so.
        help: flag that makes it print the arguments that it knows; empty: they are in a file.
        alone: roles that it has without Dynamo.
        spans: what may hold its nodes together, the usual first.
        probe_path: answers 200 when the server can take requests.
        metrics_path: of its counters; empty: it has none.
        key_env: variable in which it takes a key and asks for it; empty: it takes none safely.
        reserved: arguments that users may not give, and what to set instead.
        fatal: lines after which its launcher may live on and never serve.
        alike: what prefill and decode must have in common -> its flags, nested ones with a dot.
    """

    name: str
    build: Callable[[Engine, Serve], EngineCommand]
    program: tuple[str, ...] = ()
    dynamo: bool = False
    help: str = "--help"
    alone: tuple[str, ...] = ("agg",)
    spans: tuple[str, ...] = ()
    probe_path: str = "/health"
    metrics_path: str = "/metrics"
    key_env: str = ""
    reserved: Mapping[str, str] = field(default_factory=lambda: RESERVED)
    fatal: tuple[str, ...] = ()
    alike: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def command(self, serve: Serve) -> EngineCommand:
        """The command of one server.

        Raises:
            InputError: the engine cannot do what is asked, or a flag is the launcher's; `where` is the field.
        """
        return self.build(self, serve)

    def start(self, serve: Serve) -> tuple[str, ...]:
        """How it is called: as a module of an interpreter, or as the program that the user named."""
        path = serve.path or serve.python
        if serve.dynamo and self.dynamo:
            return (path, "-m", f"dynamo.{self.name}")
        program, *verb = self.program or ("",)
        if serve.path and not is_python(path):
            return (path, *verb)
        if "." not in program:
            return (str(PurePosixPath(path).with_name(program)), *verb) if program else ()
        return (path, "-m", *program.split(), *verb)

    def help_argv(self, serve: Serve) -> tuple[str, ...]:
        """What makes it print its arguments; empty where no command does."""
        start, flag = self.start(serve), "--help" if serve.dynamo and self.dynamo else self.help
        return (*start, flag) if start and self.help else ()

    def made(
        self, serve: Serve, own: Mapping[str, Any], said: Mapping[str, Any], *, start: tuple[str, ...] = (),
        meet: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}), negates: bool = False,
    ) -> EngineCommand:  # fmt: skip
        """The command of a server.

        Args:
            serve: what is asked.
            own: flags of the launcher; None is nothing.
            said: flags of the document.
            start: program and words before the flags; empty: only the program.
            meet: flags by which the first node, and each other, find the rest.
            negates: whether false is `--no-flag`.

        Raises:
            InputError: a flag of the document is the launcher's.
        """
        flags = {name: value for name, value in own.items() if value is not None}
        start = start or self.start(serve)
        if serve.is_swarm:
            flags |= {name: flags.pop(name) for name in _LAST if name in flags}
            argv, member = ((*start, *words(flags), *serve.words, *words(more)) for more in meet)
        else:
            argv, member = (
                (*start, *words(merged({**flags, **more}, said, serve.where), negates=negates), *serve.words)
                for more in meet
            )
        key = self.key_env if serve.key else ""
        return EngineCommand(
            argv, member, secret_env={key: serve.key} if serve.key and key else {}, key_env=key,
            probe_path=self.probe_path, metrics_path=self.metrics_path, help_argv=self.help_argv(serve),
        )  # fmt: skip

    def render(self, spec: SwarmSpec, python: str) -> EngineCommand:
        """The command of a swarm's replica.

        Args:
            spec: without gaps, see `remuda.plan.derive`.
            python: interpreter that has the engine, unless the spec names another.

        Raises:
            InputError: the engine cannot do what is asked.
        """
        for word in spec.args:
            flag = word.split("=", maxsplit=1)[0].replace("_", "-")
            if flag in self.reserved:
                raise InputError(f"`args` contains {flag}", hint=self.reserved[flag], where="args")
        by_ray = spec.spanning == "ray"
        serve = Serve(
            python, spec.model, spec.served_model_name, gpus=spec.gpus_per_replica or 0, nodes=nodes_of(spec),
            by_ray=by_ray, cpus=spec.cpus_per_task or 0, path=spec.engine_path or "", revision=spec.revision,
            key=secret(spec.api_key) if spec.api_key else None, words=(*spec.command, *spec.args),
        )  # fmt: skip
        made = self.command(serve)
        if serve.nodes > 1 and ("ray" if by_ray else "engine") not in self.spans:
            what = f"`gpus_per_replica` is {spec.gpus_per_replica} and a node has {spec.gpus_per_node}"
            if self.spans:
                raise InputError(f"{what}: {self.name} spans nodes by itself, not through Ray",
                                 hint="leave `spanning` out", where="spanning")  # fmt: skip
            raise InputError(f"{what}: the {self.name} engine cannot span nodes",
                             hint="set `gpus_per_node` to what a node has, or use fewer GPUs for each replica",
                             where="gpus_per_replica")  # fmt: skip
        return replace(made, env={**made.env, **spec.env}, secret_env={**secrets_of(spec), **made.secret_env})


def is_python(path: str) -> bool:
    """Whether the path names a Python interpreter."""
    return re.fullmatch(r"python[0-9.]*", PurePosixPath(path).name) is not None


def secret(source: SecretSource) -> Secret:
    """The reference as the workload has it."""
    return Secret(**dict(source))


def secrets_of(spec: SwarmSpec | DeploymentSpec) -> dict[str, Secret]:
    """The secret variables of servers that the user names."""
    return {name: secret(source) for name, source in spec.secret_env.items()}
