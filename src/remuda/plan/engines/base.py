"""What every engine module does: render the command of one replica. Pure; nothing goes through a shell."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol

from remuda.base.errors import InputError
from remuda.plan.model import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.specs.deployment import DeploymentSpec
    from remuda.specs.strict import SecretSource
    from remuda.specs.swarm import SwarmSpec


@dataclass(frozen=True)
class EngineCommand:
    """How one replica is started and asked for its health."""

    argv: tuple[str, ...]
    """`HOST_MARK` and `PORT_MARK` stand for what the node chooses."""
    env: dict[str, str] = field(default_factory=dict)
    secret_env: dict[str, Secret] = field(default_factory=dict)
    probe_path: str = "/health"
    metrics_path: str = ""
    """Prometheus text with running, waiting and token counts; empty where there is none."""
    help_argv: tuple[str, ...] = ()
    """Prints the arguments that the engine knows, for `flags.unknown_flags`; empty where it cannot be asked."""
    key_env: str = ""
    """Name in `secret_env` of the key that the engine asks for on its health or metrics paths."""
    checks_key: bool = False
    """Whether the engine itself asks for the API key; otherwise only the router does."""


class Engine(Protocol):
    """One kind of server program."""

    name: str
    probe_path: str
    """Path that answers 200 when the server can take requests."""

    def render(self, spec: SwarmSpec, python: str) -> EngineCommand:
        """The command of one replica.

        Args:
            spec: without gaps, see `remuda.plan.derive`.
            python: interpreter that has the engine, unless `spec.engine_path` names another.

        Raises:
            InputError: the engine cannot do what is asked.
        """
        ...


def program(spec: SwarmSpec, python: str, module: str) -> tuple[str, ...]:
    """How the engine is called: as a module of an interpreter, or as the program that the user named."""
    path = spec.engine_path
    if path and not is_python(path):
        return (path,)
    return (path or python, "-m", module)


def is_python(path: str) -> bool:
    """Whether the path names a Python interpreter."""
    return re.fullmatch(r"python[0-9.]*", PurePosixPath(path).name) is not None


def option(name: str, value: str | None, unless: str | None = None) -> tuple[str, ...]:
    """`name value`, or nothing when the value is missing or is `unless`."""
    return () if value is None or value == unless else (name, value)


def secret(source: SecretSource) -> Secret:
    """The reference as the workload has it."""
    return Secret(file=source.file, env=source.env)


def secrets_of(spec: SwarmSpec | DeploymentSpec, key_name: str = "") -> dict[str, Secret]:
    """The secret variables of servers: the user's, and the API key under the name that the engine reads."""
    found = {name: secret(source) for name, source in spec.secret_env.items()}
    if key_name and spec.api_key is not None:
        found[key_name] = secret(spec.api_key)
    return found


RESERVED: Mapping[str, str] = {
    "--host": "set `backend.endpoint.host` instead",
    "--port": "set `port` instead",
    "--api-key": "a key on a command line can be seen by everybody: set `api_key: {env: NAME}` instead",
}
"""Arguments that remuda gives itself, and what to set instead."""


def refuse_reserved(args: Sequence[str], more: Mapping[str, str] | None = None) -> None:
    """Check that the user's arguments do not undo what the supervisor relies on.

    Raises:
        InputError: one of them does.
    """
    reserved = {**RESERVED, **(more or {})}
    for word in args:
        flag = word.split("=", maxsplit=1)[0].replace("_", "-")
        if flag in reserved:
            raise InputError(f"`args` contains {flag}", hint=reserved[flag], where="args")
