"""What a swarm on a cluster would fail of, told before anything of it is recorded."""

from __future__ import annotations

import asyncio
import difflib
import os
import pwd
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from remuda.base.errors import InputError, RemudaError
from remuda.plan.engines import engine_of
from remuda.specs.backend import SlurmBackend

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from remuda.backends.base import Rendered
    from remuda.backends.slurm.client import SlurmClient
    from remuda.specs.swarm import SwarmSpec

T = TypeVar("T")
_FIELDS: Final = (
    ("invalid partition", "backend.partition"),
    ("required partition", "backend.partition"),
    ("partition configuration", "backend.partition"),
    ("invalid qos", "backend.qos"),
    ("invalid account", "backend.account"),
    ("time limit", "backend.time_limit"),
    ("feature", "backend.preamble"),
)
"""Part of Slurm's refusal -> field that it speaks of."""
_ASK_S: Final = 20.0
_HAS_MODULE: Final = (
    "import importlib.util, sys\n"
    "print('remuda:', 'yes' if importlib.util.find_spec(sys.argv[1]) else 'no')\n"
)  # fmt: skip


def check_files(spec: SwarmSpec, needs: dict[str, str], root: Path) -> None:
    """Look for what the replicas need, where this machine sees the same files as the nodes.

    Args:
        spec: without gaps.
        needs: absolute path -> what it is.
        root: state directory, which nodes see, too.

    Raises:
        InputError: something is surely not there; `where` is the field.
    """
    for path, what in needs.items():
        if not Path(path).exists() and is_shared(Path(path), root):
            raise InputError(f"there is no {what} {path!r}", where=what)
    backend = spec.backend
    if isinstance(backend, SlurmBackend) and backend.venv_path and not spec.image:
        python = Path(backend.venv_path) / "bin" / "python"
        if not python.exists() and is_shared(python, root):
            raise InputError(f"{backend.venv_path!r} is no virtual environment: there is no {str(python)!r}",
                             where="backend.venv_path")  # fmt: skip


def is_shared(path: Path, root: Path) -> bool:
    """Whether nodes surely see the same at `path`: it would be on the file system of the state directory."""
    parent = next((parent for parent in path.parents if parent.exists()), None)
    try:
        return parent is not None and parent.stat().st_dev == root.stat().st_dev
    except OSError:
        return False


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
    try:
        done = subprocess.run([argv[0], "-c", _HAS_MODULE, module], capture_output=True, text=True, timeout=_ASK_S,
                              stdin=subprocess.DEVNULL, check=False)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.stdout.strip() == "remuda: no":
        field = "engine_path" if spec.engine_path else "backend.venv_path"
        raise InputError(f"{argv[0]} has no {module}, so it cannot start the {spec.engine} engine",
                         hint=f"set `{field}` to an environment that has it, or `image`", where=field)  # fmt: skip


def check_scheduler(calls: Sequence[Rendered], client: SlurmClient) -> None:
    """Ask Slurm whether it would take the jobs: `sbatch --test-only` with the very words and script that are sent.

    Silence, and what may pass by itself, is no refusal here.

    Raises:
        InputError: Slurm refuses one for good; `where` is the field it speaks of.
    """
    apart(_check(calls, client))


def apart(question: Coroutine[Any, Any, T]) -> T:
    """The answer to a question of a backend, also where the caller is in an event loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, question).result()


async def _check(calls: Sequence[Rendered], client: SlurmClient) -> None:
    for call in calls:
        if call.argv[0] != "sbatch":
            continue  # what runs beside the host
        with tempfile.NamedTemporaryFile("w", suffix=".sh", encoding="utf-8") as script:
            script.write(call.files[call.argv[-1]])
            script.flush()
            words = [word for word in call.argv[1:-1] if word not in ("--hold", "--parsable")]
            try:
                said = await client.refusal(("sbatch", "--test-only", *words, script.name))
            except RemudaError:
                return
        if said:
            raise await _located(said, words, client)


async def _located(said: str, words: Sequence[str], client: SlurmClient) -> InputError:
    """The refusal at the field it speaks of, with what there is instead."""
    where = next((field for part, field in _FIELDS if part in said.lower()), "")
    if "node name" in said.lower():
        where = "backend.node_list" if _value(words, "--nodelist=") else "backend.exclude_nodes"
    hint = ""
    if where == "backend.partition":
        hint = await _known(("sinfo", "-h", "-o", "%R"), _value(words, "--partition="), client)
    elif where in ("backend.account", "backend.qos"):
        fields = where.removeprefix("backend.")
        user = f"user={pwd.getpwuid(os.getuid()).pw_name}"
        asked = ("sacctmgr", "-nP", "show", "assoc", "where", user, f"format={fields}")
        hint = await _known(asked, _value(words, f"--{fields}="), client)
    return InputError(said, hint=hint, where=where)


def _value(words: Sequence[str], option: str) -> str:
    return next((word.removeprefix(option) for word in words if word.startswith(option)), "")


async def _known(argv: tuple[str, ...], wrong: str, client: SlurmClient) -> str:
    """What there is instead, nearest first; empty where that cannot be asked."""
    try:
        text = await client.commands.ask(argv)
    except RemudaError:
        return ""
    names = sorted({name for line in text.splitlines() for name in line.strip().split(",") if name})
    near = difflib.get_close_matches(wrong, names, 1)
    told = f"there are {', '.join(names[:20])}" if names else ""
    return f"did you mean {near[0]!r}? {told}" if near else told
