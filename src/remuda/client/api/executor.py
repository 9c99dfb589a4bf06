"""The Python API of gangs: launch replicas, ask how they are, read what they write, collect what they came to."""

from __future__ import annotations

import inspect
import json
import sys
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeGuard

from remuda import enter
from remuda.backends.base import TaskKey, make_token
from remuda.backends.local.devices import gpu_type
from remuda.backends.rundir import allocation_dir
from remuda.base.errors import InputError, NotFound
from remuda.base.ids import api_path, new_suffix, slug
from remuda.client import ending, mirror, reconnect, submission
from remuda.client.api import entrypoint as call
from remuda.client.api.entrypoint import ARGUMENTS
from remuda.client.http import connect
from remuda.look import planning, rendering
from remuda.look.kinds.gang import read as read_gang
from remuda.plan.gang import RANK, RENDEZVOUS, RUN_ID
from remuda.plan.model import FILES_MARK
from remuda.plan.placing.gpus import GPUS, gpu_named, is_kind
from remuda.specs.gang import NOWHERE, OF_RANKS
from remuda.specs.places import BACKENDS, in_images, is_here
from remuda.specs.reading.load import mapping_overrides
from remuda.supervise.model import TIME_OVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from remuda.plan.model import Workload

State = Literal["pending", "running", "succeeded", "failed", "cancelled"]
_ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
_OVER: Final = frozenset({"DOWN", "STOPPING"})
"""Phases of a gang that nobody wants any more."""
_CALLS: Final = "remuda_call.py"
"""What calls a function in an image."""
_OWN: Final = ("PATH", "HOME", "USER", "SHELL", "TMPDIR", "WORLD_SIZE", "RANK", ARGUMENTS, *OF_RANKS)
_OWN_PREFIXES: Final = ("LD_", "PYTHON", "KUBERNETES_", "CUDA_", "REMUDA_", "RANK_")


@dataclass(frozen=True)
class ReplicaHandle:
    """One replica that was launched. It may be kept, sent elsewhere and used by another process of the same user."""

    rank: int
    backend_name: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """`job_name` and `uid` of the gang, and `rendezvous_uri` where its ranks meet."""

    @property
    def job_name(self) -> str:
        """The gang, as commands call it: `remuda status NAME`."""
        return str(self.metadata["job_name"])


class Executor:
    """Runs replicas of one program as a gang. `Executor.of("local")` makes one.

    Args:
        backend: `local`, which is this machine, `slurm` or `kubernetes`.
        run_id: name of what is trained; default: the gang's name, which is new with every launch.
        fields: fields of a gang's document that hold for every launch: `max_retries=3`, `rendezvous="s3://…"`.

    Raises:
        InputError: there is no such backend.
    """

    supports_inter_replica_network = True

    def __init__(self, backend: str = "local", *, run_id: str = "", **fields: Any) -> None:
        if backend not in BACKENDS:
            hint = f"known: {', '.join(BACKENDS)}"
            raise InputError(f"there is no executor {backend!r} in this version", hint=hint, where="backend")
        self.backend_name = backend
        self._fields = {**fields, **({"run_id": run_id} if run_id else {})}
        self._base, self._command = run_id, tuple[str, ...]()

    @classmethod
    def of(cls, backend: str = "local", **fields: Any) -> Self:
        """The executor of a backend; `fields` as for the constructor."""
        return cls(backend, **fields)

    def launch_replicas(
        self,
        n_replicas: int,
        entrypoint: str | Callable[..., Any],
        entrypoint_args: Mapping[str, Any] | Sequence[str] = (),
        *,
        gpu: str | int | None = None,
        timeout: float = 0.0,
    ) -> list[ReplicaHandle]:
        """Launch a gang; returns one handle for each rank, in their order, as soon as it is accepted.

        Args:
            n_replicas: how many.
            entrypoint: a file, `module:function`, or a function of a module that the replicas can import. On
                Kubernetes a file's first line says what runs it, and of functions the module's one file travels, if it
                is here; what it imports, and packages, are the image's.
            entrypoint_args: words for a file. A mapping: keyword arguments of a function; for a file they are in the
                variable `REMUDA_ARGS` as JSON, and plain values in variables of their upper-cased names, too. On
                Kubernetes `rendezvous_uri` is where replicas meet, unless the executor's fields say it.
            gpu: GPUs of each replica: a number, or a kind and a number (`H100`, `H100:2`).
            timeout: seconds after which all replicas are ended, and have failed; 0: never.

        Raises:
            InputError: something is wrong with what was asked; says what.
            Conflict: there are not enough GPUs for all of them.
        """
        if self._command:
            words, env = _arguments(entrypoint_args)
            program, files = {"command": [*self._command, *words]}, dict[str, str]()
        else:
            python = str(self._fields.get("python") or "python3")
            program, env, files = _program(entrypoint, entrypoint_args, self.backend_name, python)
        fields: dict[str, Any] = {
            "kind": "gang",
            "name": f"{slug(self._base or _name_of(entrypoint))}-{new_suffix()}",
            **({"rendezvous": _meeting(entrypoint_args)} if in_images(self.backend_name) else {}),
            **self._fields,
            **self._resources(gpu),
            "backend": self.backend_name,
            "ranks": n_replicas,
            **program,
            "env": {**self._fields.get("env", {}), **env, "WORLD_SIZE": str(n_replicas)},
            "timeout": timeout,
        }
        facts = planning.facts_of()
        planned = planning.plan("gang", read_gang("", mapping_overrides(fields, "launch_replicas(…)")), facts)
        if files:
            planned = replace(planned, workload=_with_files(planned.workload, files))
            rendering.calls([planned.workload], facts)  # there may be too much of them
        view = submission.send_plans([planned], facts=facts)[0]
        return _handles(view, n_replicas)

    @staticmethod
    def attach(name: str) -> list[ReplicaHandle]:
        """Handles of a gang that was launched before, from wherever; one for each rank, in their order.

        Raises:
            NotFound: there is no gang of that name.
        """
        view = reconnect.get(connect(), api_path(name))
        if RENDEZVOUS not in view["labels"]:
            raise NotFound(f"{name!r} is a {view['kind']}, and no gang")
        ranks = max(view["wanted"], *(int(task["task"].rpartition("/")[2]) + 1 for task in view["tasks"]), 0)
        return _handles(view, ranks)

    def _resources(self, gpu: str | int | None) -> dict[str, Any]:
        """The fields that say which GPUs a rank has."""
        return {**_kind_of(gpu, self.backend_name), "resources": {"gpus": _gpus(gpu, self.backend_name)}}

    def poll(self, handle: ReplicaHandle) -> State:
        """How a replica is now: pending, running, succeeded, failed or cancelled.

        Raises:
            NotFound: its gang was removed.
        """
        return state_of(_view(handle), handle.rank)

    def stream_logs(self, handle: ReplicaHandle, *, n_lines: int = 200) -> str:
        """The last lines that a replica printed; a line in angle brackets where it has not begun."""
        path = api_path(handle.job_name, "logs")
        try:
            _view(handle)  # its gang may be another's by now
            return "\n".join(connect().lines(path, task=f"{RANK}/{handle.rank}", tail=n_lines))
        except NotFound as error:
            return f"<rank {handle.rank}: no output: {error.message}>"

    def cancel(self, handle: ReplicaHandle) -> None:
        """End all replicas that were launched with this one; returns when nothing of them is left.

        Those that have ended stay what they were. Again, or when there is nothing any more, it does nothing.

        Raises:
            TimedOut: something is left.
        """
        try:
            view = _view(handle)
        except NotFound:
            return
        if view["phase"] != "DOWN":
            deque(ending.take_down([handle.job_name]), maxlen=0)

    def collect(self, handles: Sequence[ReplicaHandle], *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Wait until all replicas have ended, or `timeout` seconds are over; what became of each, in their order.

        Returns:
            `rank`, `status` (as `poll`), `exit_code` (of the last attempt; None where it did not end by itself),
            `error` (a sentence; None for one that succeeded), `job_name` and `result`: what the replica wrote as JSON
            into the file that `REMUDA_RESULT_FILE` names, else the last line of its output that is an object or a list
            in JSON, else None.

        Raises:
            NotFound: a gang was removed.
        """
        names, seen = list(dict.fromkeys(handle.job_name for handle in handles)), dict[str, dict[str, Any]]()

        def over(views: list[dict[str, Any]]) -> bool:
            seen.update(zip(names, views, strict=True))
            mine = [(handle, _checked(handle, seen[handle.job_name])) for handle in handles]
            return all(state_of(view, handle.rank) in _ENDED for handle, view in mine)

        deque(mirror.wait(connect(), names, over, timeout), maxlen=0)
        return [self._came_to(handle, seen[handle.job_name]) for handle in handles]

    def _came_to(self, handle: ReplicaHandle, view: Mapping[str, Any]) -> dict[str, Any]:
        state, task = state_of(view, handle.rank), _task(view, handle.rank)
        return {
            "rank": handle.rank,
            "status": state,
            "exit_code": task["exit_code"] if task is not None and state in ("succeeded", "failed") else None,
            "error": _error(view, handle.rank, state),
            "job_name": handle.job_name,
            "result": (
                _result(_folder(view, handle.rank, task["attempt"]), self.stream_logs(handle))
                if task is not None and state in _ENDED
                else None
            ),
        }


def _handles(view: Mapping[str, Any], ranks: int) -> list[ReplicaHandle]:
    labels = view["labels"]
    metadata = {
        "job_name": view["name"], "uid": view["uid"], "rendezvous_uri": labels[RENDEZVOUS], RUN_ID: labels[RUN_ID],
    }  # fmt: skip
    return [ReplicaHandle(rank, view["backend"], {**metadata, "rank": rank}) for rank in range(ranks)]


def state_of(view: Mapping[str, Any], rank: int) -> State:
    """How a rank is, as executors say it. Pure.

    A rank that waits for its next attempt is pending. One that was ended because another failed is cancelled.
    """
    task = _task(view, rank)
    phase = "waiting" if task is None else task["phase"]
    match phase:
        case "done":
            return "succeeded"
        case "failed":
            return "failed"
        case "stopped":
            return "failed" if str(task and task["reason"]).startswith(TIME_OVER) else "cancelled"
        case "starting" | "ready" | "unhealthy" | "stopping":
            return "running"
    return "cancelled" if view["phase"] in _OVER else "pending"


def _error(view: Mapping[str, Any], rank: int, state: State) -> str | None:
    task = _task(view, rank)
    reason = task["reason"] if task is not None else view["reason"]
    match state:
        case "succeeded":
            return None
        case "failed":
            return f"rank {rank} failed: {reason}"
        case "cancelled":
            return f"rank {rank} was cancelled: {view['reason'] or reason}"
    return f"rank {rank} has not ended yet, it is {state}" + (f": {reason}" if reason else "")


def _task(view: Mapping[str, Any], rank: int) -> Mapping[str, Any] | None:
    """The rank in its gang's view; None for one that was never begun."""
    found: Iterable[Mapping[str, Any]] = view["tasks"]
    return next((task for task in found if task["task"] == f"{RANK}/{rank}"), None)


def _view(handle: ReplicaHandle) -> dict[str, Any]:
    """The gang of a replica.

    Raises:
        NotFound: it was removed, and another may have its name.
    """
    return _checked(handle, reconnect.get(connect(), api_path(handle.job_name)))


def _checked(handle: ReplicaHandle, view: dict[str, Any]) -> dict[str, Any]:
    if view["uid"] != handle.metadata["uid"]:
        raise NotFound(f"the gang {handle.job_name!r} of this handle was removed, and another has its name")
    return view


def _folder(view: Mapping[str, Any], rank: int, attempt: int) -> Path:
    """Where an attempt of a rank has its files."""
    token = make_token(TaskKey(view["name"], RANK, rank), attempt, view["uid"])
    return allocation_dir(Path(view["run_dir"]).parent, token)


def _result(folder: Path, output: str) -> Any:
    """What a rank left: its result file, else the last line of its output that is JSON: an object or a list.

    In an image there is no such file, and a function's result is told in that line.
    """
    lines = [line for line in reversed(output.splitlines()) if line.lstrip().startswith(("{", "["))]
    for text in (_read(folder / "result.json"), *lines):
        try:
            found = json.loads(text)
            return found[call.TOLD] if isinstance(found, dict) and [*found] == [call.TOLD] else found
        except ValueError:
            continue
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _name_of(entrypoint: str | Callable[..., Any]) -> str:
    if callable(entrypoint):
        return str(getattr(entrypoint, "__name__", "replicas"))
    return entrypoint.rpartition(":")[2] if ":" in entrypoint else Path(entrypoint).stem


def _program(
    entrypoint: str | Callable[..., Any], args: Mapping[str, Any] | Sequence[str], backend: str, python: str = "python3"
) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """What a rank runs, as fields of its gang, the variables in which its arguments are, and the files that travel.

    Raises:
        InputError: it cannot be run, or its arguments cannot be handed on.
    """
    target = _importable(entrypoint) if callable(entrypoint) else entrypoint
    is_file = isinstance(entrypoint, str) and Path(entrypoint).is_file()
    if not is_file and ":" not in target:
        raise InputError(f"{target!r} is neither a file nor module:function", where="entrypoint")
    words, env = _arguments(args)
    if not is_file:
        if words:
            raise InputError("a function takes its arguments as a mapping", where="entrypoint_args")
        if in_images(backend):
            files = {_CALLS: inspect.getsource(call), **_travelling(target.partition(":")[0])}
            return {"command": [python, f"{FILES_MARK}/{_CALLS}", target, "told"]}, env, files
        return {"command": [sys.executable, *enter.words("rank"), target]}, env, {}
    path = str(Path(target).absolute())
    if in_images(backend):
        return {"script": path, "args": words}, env, {}
    return {"command": [*([sys.executable] if path.endswith(".py") else []), path, *words]}, env, {}


def _arguments(args: Mapping[str, Any] | Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Words for a command line, and variables.

    Raises:
        InputError: they cannot be handed on.
    """
    if isinstance(args, str):
        raise InputError("entrypoint_args must be a mapping or a list of words, not one text", where="entrypoint_args")
    return ([], _variables(args)) if _is_mapping(args) else ([str(word) for word in args], {})


def _meeting(args: Mapping[str, Any] | Sequence[str]) -> str:
    """Where replicas meet that share no files, as arguments say it where the executor's fields do not."""
    return str((args.get("rendezvous_uri") if _is_mapping(args) else None) or NOWHERE)


def _travelling(module: str) -> dict[str, str]:
    """The one file of a module that is not of a package: imported here, or in the current folder."""
    file = Path(getattr(sys.modules.get(module), "__file__", None) or f"{module}.py")
    if module in sys.stdlib_module_names or file.name != f"{module}.py" or not file.is_file():
        return {}
    return {file.name: file.read_text(encoding="utf-8")}


def _with_files(workload: Workload, files: Mapping[str, str]) -> Workload:
    (group,) = workload.groups
    command = group.command.model_copy(update={"files": dict(files)})
    return workload.model_copy(update={"groups": (group.model_copy(update={"command": command}),)})


def _is_mapping(args: object) -> TypeGuard[Mapping[str, Any]]:
    return hasattr(args, "keys")


def _importable(function: Callable[..., Any]) -> str:
    """`module:function`.

    Raises:
        InputError: other processes cannot import it.
    """
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not name or "<" in name:
        raise InputError(
            f"{name or function!r} cannot be imported by the replicas",
            hint="define it at the top of a module, or write it into a file and give the file", where="entrypoint",
        )  # fmt: skip
    return f"{module}:{name}"


def _variables(args: Any) -> dict[str, str]:
    """Arguments as JSON in one variable, and plain ones under their own names, too.

    Raises:
        InputError: a name would change how the rank is run, or a value is none of JSON's.
    """
    try:
        env = {ARGUMENTS: json.dumps(dict(args))}
    except (TypeError, ValueError) as error:
        raise InputError(f"the arguments cannot be written as JSON: {error}", where="entrypoint_args") from error
    for name, value in args.items():
        upper = str(name).upper()
        if upper in _OWN or upper.startswith(_OWN_PREFIXES):
            raise InputError(f"an argument cannot be called {name!r}: {upper} says how a replica is run",
                             hint="give it another name", where="entrypoint_args")  # fmt: skip
        if isinstance(value, (str, int, float)) and upper.isidentifier():
            env[upper] = str(value)
    return env


def _kind_of(gpu: str | int | None, backend: str) -> dict[str, str]:
    """The field with the kind of GPU that is asked for, where there may be several.

    Raises:
        InputError: nodes are told apart by a label, and it is none.
    """
    if not isinstance(gpu, str) or is_here(backend):
        return {}
    kind = gpu.partition(":")[0]
    if in_images(backend) and kind.lower() in GPUS:
        raise InputError(f"no node of Kubernetes is labelled {kind!r}", where="gpu",
                         hint="give its label nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3:8")  # fmt: skip
    return {"gpu_type": kind}


def _gpus(gpu: str | int | None, backend: str = "local") -> int:
    """How many GPUs each replica gets.

    Raises:
        InputError: the kind is not known, or is not what this machine has.
    """
    if gpu is None or isinstance(gpu, int):
        return gpu or 0
    kind, _, count = gpu.partition(":")
    if not (count or "1").isdigit():
        raise InputError(f"{gpu!r} is not a kind and a number of GPUs", hint="write H100 or H100:2", where="gpu")
    if gpu_named(kind) is None:
        known = ", ".join(sorted(name for name in GPUS if "-" not in name))
        raise InputError(f"no GPU is called {kind!r}", hint=f"known: {known}", where="gpu")
    here = gpu_type() if is_here(backend) else ""
    if here and not is_kind(kind, here):
        raise InputError(f"this machine's GPUs are {here}, not {kind}", hint="give a number for any", where="gpu")
    return int(count or 1)
