"""Executors: how a rank is, what becomes of arguments, and what is refused."""

from __future__ import annotations

import json
import pickle
import sys
from typing import TYPE_CHECKING, Any

import pytest

import remuda
from remuda.base.errors import InputError
from remuda.client.api import entrypoint, executor
from remuda.client.api.executor import Executor, ReplicaHandle, state_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def view(phase: str, *ranks: tuple[str, str], reason: str = "") -> dict[str, Any]:
    tasks = [
        {"task": f"rank/{index}", "phase": rank, "reason": why, "exit_code": None, "native": "/nowhere"}
        for index, (rank, why) in enumerate(ranks)
    ]
    return {"phase": phase, "reason": reason, "uid": "u1", "tasks": tasks}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(view("PENDING"), "pending", id="not begun"),
        pytest.param(view("PENDING", ("submitting", "")), "pending", id="submitting"),
        pytest.param(view("RUNNING", ("ready", "")), "running", id="runs"),
        pytest.param(view("STARTING", ("waiting", "exit code 3")), "pending", id="waits for its next attempt"),
        pytest.param(view("STOPPING", ("stopping", "taken down")), "running", id="it still ends"),
        pytest.param(view("DONE", ("done", "exit code 0")), "succeeded", id="done"),
        pytest.param(view("DOWN", ("done", "exit code 0")), "succeeded", id="done before it was taken down"),
        pytest.param(view("FAILED", ("failed", "given up")), "failed", id="failed"),
        pytest.param(view("FAILED", ("stopped", "it failed: rank/2; ended")), "cancelled", id="ended for another"),
        pytest.param(view("DOWN", ("stopped", "taken down; ended")), "cancelled", id="taken down"),
        pytest.param(view("DOWN", ("waiting", "")), "cancelled", id="taken down while it waited"),
        pytest.param(view("DOWN"), "cancelled", id="taken down before it began"),
        pytest.param(view("FAILED", ("stopped", "its time is over; ended")), "failed", id="too late"),
    ],
)
def test_states(seen: dict[str, Any], expected: str) -> None:
    assert state_of(seen, 0) == expected


def test_public_names_are_imported_late() -> None:
    assert remuda.Executor is Executor
    assert remuda.ReplicaHandle is ReplicaHandle


def test_a_handle_can_be_sent_elsewhere() -> None:
    handle = ReplicaHandle(3, "local", {"job_name": "g", "uid": "u1"})
    assert pickle.loads(pickle.dumps(handle)) == handle
    assert handle.job_name == "g"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        pytest.param(lambda: Executor.of("eks"), "backend: there is no executor 'eks' in this version", id="backend"),
        pytest.param(
            lambda: Executor.of().launch_replicas(1, "nowhere"),
            "entrypoint: 'nowhere' is neither a file nor module:function", id="no file",
        ),
        pytest.param(
            lambda: Executor.of().launch_replicas(1, lambda: None),
            "entrypoint: '<lambda>.<locals>.<lambda>' cannot be imported by the replicas", id="lambda",
        ),
        pytest.param(
            lambda: Executor.of().launch_replicas(1, "m:f", ["x"]),
            "entrypoint_args: a function takes its arguments as a mapping", id="words",
        ),
        pytest.param(
            lambda: Executor.of().launch_replicas(1, "m:f", {"path": "/x"}),
            "entrypoint_args: an argument cannot be called 'path': PATH says how a replica is run", id="PATH",
        ),
        pytest.param(
            lambda: Executor.of().launch_replicas(1, "m:f", {"replica_rank": 1}),
            "entrypoint_args: an argument cannot be called 'replica_rank': REPLICA_RANK says how a replica is run",
            id="rank",
        ),
        pytest.param(
            lambda: Executor.of().launch_replicas(1, "m:f", {"ld_preload": "x"}),
            "entrypoint_args: an argument cannot be called 'ld_preload': LD_PRELOAD says how a replica is run",
            id="prefix",
        ),
        pytest.param(
            lambda: Executor.of().launch_replicas(1, "m:f", {"x": object()}),
            "entrypoint_args: the arguments cannot be written as JSON: Object of type object is not JSON serializable",
            id="no JSON",
        ),
        pytest.param(lambda: Executor.of().launch_replicas(1, "m:f", gpu="X9"), "gpu: no GPU is called 'X9'", id="gpu"),
        pytest.param(
            lambda: Executor.of().launch_replicas(1, "m:f", gpu="H100:many"),
            "gpu: 'H100:many' is not a kind and a number of GPUs", id="number",
        ),
        pytest.param(
            lambda: Executor.of().launch_replicas(0, "m:f"), "launch_replicas(…): `ranks` must be at least 1, not 0",
            id="no replicas",
        ),
        pytest.param(
            lambda: Executor.of(mode="rigid", quorum=1).launch_replicas(1, "m:f"),
            "launch_replicas(…): `quorum` lets ranks train on without the others, which no `rigid` gang does",
            id="rigid",
        ),
        pytest.param(
            lambda: Executor.of("kubernetes", image="r/t:1").launch_replicas(1, "m:f"),
            "entrypoint: functions are not run in images, which have none of the modules of this machine",
            id="a function in an image",
        ),
        pytest.param(
            lambda: Executor.of("kubernetes", image="r/t:1").launch_replicas(1, __file__),
            "launch_replicas(…): ranks on Kubernetes share no files: they need a `rendezvous` in an object store",
            id="no place to meet",
        ),
        pytest.param(
            lambda: Executor.of("kubernetes", image="r/t:1").launch_replicas(1, __file__, gpu="H100:8"),
            "gpu: no node of Kubernetes is labelled 'H100'", id="no label",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        ask()
    assert str(caught.value).splitlines()[0] == message


@pytest.mark.parametrize(("gpu", "here", "count"), [(None, "", 0), (2, "", 2), ("H100", "", 1), ("A100:4", "", 4),
                                                   ("H100:2", "NVIDIA H100 80GB HBM3", 2)])  # fmt: skip
def test_gpus(gpu: str | int | None, here: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "gpu_type", lambda: here)
    assert executor._gpus(gpu) == count


def test_a_kind_of_gpu_is_asked_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "gpu_type", lambda: "NVIDIA A10G")
    assert executor._gpus("H100:2", "slurm") == 2
    assert executor._kind_of("H100:2", "slurm") == {"gpu_type": "H100"}
    label = "NVIDIA-H100-80GB-HBM3"
    assert executor._kind_of(f"{label}:8", "kubernetes") == {"gpu_type": label}
    assert executor._gpus(f"{label}:8", "kubernetes") == 8
    assert executor._kind_of("H100:2", "local") == executor._kind_of(2, "slurm") == {}


def test_another_kind_than_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "gpu_type", lambda: "NVIDIA A10G")
    with pytest.raises(InputError, match="this machine's GPUs are NVIDIA A10G, not H100"):
        executor._gpus("H100")


def test_arguments_travel_in_the_environment(tmp_path: Path) -> None:
    script = tmp_path / "fit.py"
    script.write_text("")
    program, env = executor._program(str(script), {"lr": 0.1, "layers": [1, 2], "name": "a b"}, "local")
    assert program == {"command": [sys.executable, str(script)]}
    assert json.loads(env.pop("REMUDA_ARGS")) == {"lr": 0.1, "layers": [1, 2], "name": "a b"}
    assert env == {"LR": "0.1", "NAME": "a b"}
    words = ["--lr", "0.1"]
    assert executor._program(str(script), words, "slurm") == ({"command": [sys.executable, str(script), *words]}, {})
    assert executor._program(str(script), words, "kubernetes") == ({"script": str(script), "args": words}, {})


@pytest.mark.parametrize(
    ("file", "output", "result"),
    [
        pytest.param('{"loss": 1}', '{"loss": 2}', {"loss": 1}, id="the file first"),
        pytest.param("", 'step 1\n{"loss": 2}\nbye', {"loss": 2}, id="the last line that is JSON"),
        pytest.param("", "[1, 2]\n17", [1, 2], id="a number says nothing"),
        pytest.param('{"los', "{cut", None, id="nothing whole"),
        pytest.param("null", '{"loss": 2}', None, id="nothing, said in the file"),
    ],
)
def test_results(file: str, output: str, result: object, tmp_path: Path) -> None:
    if file:
        (tmp_path / "result.json").write_text(file)
    assert executor._result(tmp_path, output) == result


def test_a_function_leaves_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_RESULT_FILE", str(tmp_path / "result.json"))
    monkeypatch.setenv("REMUDA_ARGS", '{"a": "x", "b": 2}')
    entrypoint.main("builtins:dict")
    assert json.loads((tmp_path / "result.json").read_text()) == {"a": "x", "b": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
