"""What a swarm on a cluster would fail of, told before anything of it is recorded."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.plan.engines import engine_of
from remuda.plan.engines.llamacpp import LAUNCHER
from remuda.serving.llamacpp_server import INSTALL as INSTALL_LLAMACPP
from remuda.serving.nginx_launcher import words as words_of_nginx
from remuda.serving.smg_launcher import INSTALL as INSTALL_SMG
from remuda.specs.backend import SlurmBackend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.look.facts import Looked
    from remuda.plan.model import Command
    from remuda.specs.swarm import SwarmSpec

_ASK_S: Final = 20.0
_HAS_MODULE: Final = (
    "import importlib.util, sys\n"
    "print('remuda:', 'yes' if importlib.util.find_spec(sys.argv[1]) else 'no')\n"
)  # fmt: skip


_BEHIND: Final = {LAUNCHER: "xllamacpp"}
"""Our own launcher of an engine -> the module that has the engine."""
_INSTALL: Final = {
    "vllm": "pip install vllm",
    "sglang": "pip install 'sglang[all]'",
    "llamacpp": INSTALL_LLAMACPP,
    "transformers": "pip install 'transformers[serving]'",
}


def check_files(spec: SwarmSpec, needs: dict[str, str], facts: Looked) -> None:
    """Look for what the replicas need, where this machine sees the same files as the nodes.

    Args:
        spec: without gaps.
        needs: absolute path -> what it is.
        facts: of the command.

    Raises:
        InputError: something is surely not there; `where` is the field.
    """
    for path, what in needs.items():
        if not Path(path).exists() and facts.sees(Path(path)):
            raise InputError(f"there is no {what} {path!r}", where=what)
    backend = spec.backend
    if isinstance(backend, SlurmBackend) and backend.venv_path and not spec.image:
        python = Path(backend.venv_path) / "bin" / "python"
        if not python.exists() and facts.sees(python):
            raise InputError(f"{backend.venv_path!r} is no virtual environment: there is no {str(python)!r}",
                             where="backend.venv_path")  # fmt: skip


def check_engine(spec: SwarmSpec, python: str) -> None:
    """Look whether the interpreter that starts the engine has it, where it is one that this machine can ask.

    Raises:
        InputError: it has not.
    """
    if spec.image or spec.engine == "command" or not isinstance(spec.backend, SlurmBackend):
        return
    argv = engine_of(spec).render(spec, python).argv
    if argv[1:2] != ("-m",) or not Path(argv[0]).exists():
        return
    module = argv[2].partition(".")[0]
    if _lacks(argv[0], module, {}):
        field = "engine_path" if spec.engine_path else "backend.venv_path"
        raise InputError(f"{argv[0]} has no {module}, so it cannot start the {spec.engine} engine",
                         hint=f"set `{field}` to an environment that has it, or `image`", where=field)  # fmt: skip


def check_here(spec: SwarmSpec, python: str, routers: Sequence[Command]) -> None:
    """Look for the engine and the router on this machine, where the swarm is to run.

    Args:
        spec: without gaps.
        python: interpreter that has the engine, unless the document names another.
        routers: what is started before the replicas.

    Raises:
        InputError: one of them is surely not there; `where` is the field.
    """
    for command in routers:
        _check_router(spec, command)
    if spec.image:
        return
    argv = engine_of(spec).render(spec, python).argv
    field = "command" if spec.engine == "command" else "engine_path"
    program = _program(argv[0], spec)
    if program is None:
        what = "engine" if spec.engine == "command" else f"{spec.engine} engine"
        known = _INSTALL.get(spec.engine, "install it, or name the program")
        raise InputError(f"there is no program {argv[0]!r} on this machine, so the {what} cannot be started",
                         hint=f"{known} (`{field}`)", where=field)  # fmt: skip
    if argv[1:2] == ("-m",) and spec.engine != "command":
        module = _BEHIND.get(argv[2], argv[2].partition(".")[0])
        if _lacks(program, module, spec.env):
            raise InputError(f"{program} has no {module}, so it cannot start the {spec.engine} engine",
                             hint=f"{_INSTALL[spec.engine]}, or set `engine_path` to an environment that has it",
                             where="engine_path")  # fmt: skip


def _program(name: str, spec: SwarmSpec) -> str | None:
    """Where the program is that a replica would start; None where there is none."""
    if "/" in name:
        return shutil.which(str(Path(spec.cwd or ".") / name))
    return shutil.which(name, path=spec.env.get("PATH", os.environ.get("PATH")))


def _check_router(spec: SwarmSpec, command: Command) -> None:
    """Look for the router behind its launcher."""
    kind = spec.router.type
    if kind == "smg" and _lacks(command.argv[0], "smg", {}):
        raise InputError("the router smg is not installed", where="router.type",
                         hint=f"{INSTALL_SMG}, or set the router to nginx or none")  # fmt: skip
    if kind == "nginx" and "--image" not in command.argv:
        try:
            words_of_nginx("nginx", "", "")
        except InputError as error:
            raise InputError("the router nginx is not installed", where="router.type", hint=error.hint) from error


def _lacks(python: str, module: str, env: Mapping[str, str]) -> bool:
    """Whether an interpreter says that it has no such module."""
    if python == sys.executable and "PYTHONPATH" not in env:
        return importlib.util.find_spec(module) is None
    argv = [python, "-c", _HAS_MODULE, module]
    try:
        done = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=_ASK_S,
                              stdin=subprocess.DEVNULL, check=False)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "remuda: no"
