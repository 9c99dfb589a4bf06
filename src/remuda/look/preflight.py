"""The parts that a swarm is made of, looked for before anything of it is recorded."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.plan.compile import Finding
from remuda.plan.engines import engine_of
from remuda.plan.engines.llamacpp import LAUNCHER
from remuda.plan.placing.cluster import engine_python
from remuda.serving.llamacpp_server import INSTALL as INSTALL_LLAMACPP
from remuda.serving.nginx_launcher import words as words_of_nginx
from remuda.serving.smg_launcher import INSTALL as INSTALL_SMG
from remuda.specs.backend import SlurmBackend
from remuda.specs.places import is_here

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan
    from remuda.plan.model import Command
    from remuda.specs.swarm import SwarmSpec

_ASK_S: Final = 20.0
_HAS_MODULE: Final = (
    "import importlib.util, sys\n"
    "print('remuda:', 'yes' if importlib.util.find_spec(sys.argv[1]) else 'no')\n"
)  # fmt: skip


_INSTALL: Final = {
    "vllm": "pip install vllm",
    "sglang": "pip install 'sglang[all]'",
    "llamacpp": INSTALL_LLAMACPP,
    "transformers": "pip install 'transformers[serving]'",
}


def parts(plan: Plan, facts: Looked) -> Iterator[Finding]:
    """What of a swarm is surely not there: files that nodes see, too, engine and router."""
    spec, workload = plan.spec, plan.workload
    for path, what in workload.groups[0].command.needs.items():
        if not Path(path).exists() and facts.sees(Path(path)):
            yield Finding((what,), f"there is no {what} {path!r}")
    python = engine_python(spec, facts.context().python)
    router = workload.endpoint.router if workload.endpoint is not None else ""
    for group in workload.groups:
        if group.name == router and is_here(group.backend or workload.backend):
            yield from _router(spec, group.command)
    if not workload.is_here:
        yield from _elsewhere(spec, python, facts)
    elif not spec.image:
        yield from _engine(spec, python)


def _elsewhere(spec: SwarmSpec, python: str, facts: Looked) -> Iterator[Finding]:
    """The interpreter of the nodes that has the engine, where it is one that this machine can ask."""
    if spec.image:
        return
    backend = spec.backend
    if isinstance(backend, SlurmBackend) and backend.venv_path:
        there = Path(backend.venv_path) / "bin" / "python"
        if not there.exists() and facts.sees(there):
            words = f"{backend.venv_path!r} is not a virtual environment: there is no {str(there)!r}"
            yield Finding(("backend", "venv_path"), words)
    if spec.engine == "command":
        return
    argv = engine_of(spec).render(spec, python).argv
    module = argv[2].partition(".")[0] if argv[1:2] == ("-m",) else ""
    if module and Path(argv[0]).exists() and _lacks(argv[0], module, {}):
        field = ("engine_path",) if spec.engine_path else ("backend", "venv_path")
        hint = f"set `{'.'.join(field)}` to an environment that has it, or `image`"
        yield Finding(field, f"{argv[0]} has no {module}, so it cannot start the {spec.engine} engine", hint=hint)


def _engine(spec: SwarmSpec, python: str) -> Iterator[Finding]:
    """The engine on this machine."""
    is_own = spec.engine == "command"
    argv = engine_of(spec).render(spec, python).argv
    program = _program(argv[0], spec)
    if program is None:
        field, what = ("command", "engine") if is_own else ("engine_path", f"{spec.engine} engine")
        words = f"there is no program {argv[0]!r} on this machine, so the {what} cannot be started"
        yield Finding(
            (field,), words, hint=f"{_INSTALL.get(spec.engine, 'install it, or name the program')} (`{field}`)"
        )
    elif argv[1:2] == ("-m",) and not is_own:
        module = "xllamacpp" if LAUNCHER in " ".join(argv) else argv[2].partition(".")[0]
        if _lacks(program, module, spec.env):
            hint = f"{_INSTALL[spec.engine]}, or set `engine_path` to an environment that has it"
            words = f"{program} has no {module}, so it cannot start the {spec.engine} engine"
            yield Finding(("engine_path",), words, hint=hint)


def _program(name: str, spec: SwarmSpec) -> str | None:
    """Where the program is that a replica would start; None where there is none."""
    if "/" in name:
        return shutil.which(str(Path(spec.cwd or ".") / name))
    return shutil.which(name, path=spec.env.get("PATH", os.environ.get("PATH")))


def _router(spec: SwarmSpec, command: Command) -> Iterator[Finding]:
    """The router behind its launcher."""
    kind, hint = spec.router.type, ""
    if kind == "smg" and _lacks(command.argv[0], "smg", {}):
        hint = f"{INSTALL_SMG}, or set the router to nginx or none"
    if kind == "nginx" and "--image" not in command.argv:
        try:
            words_of_nginx("nginx", "", "")
        except InputError as error:
            hint = error.hint
    if hint:
        yield Finding(("router", "type"), f"the router {kind} is not installed", hint=hint)


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
