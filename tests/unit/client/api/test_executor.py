"""Executors: how a rank is, what becomes of arguments, and what is refused."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import remuda
from remuda.base.errors import InputError
from remuda.client.api import eks, entrypoint, executor
from remuda.client.api.eks import EKSExecutor
from remuda.client.api.executor import Executor, ReplicaHandle, state_of

if TYPE_CHECKING:
    from collections.abc import Callable


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
    assert remuda.EKSExecutor is EKSExecutor
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
            lambda: Executor.of("kubernetes", image="r/t:1", rendezvous="file:///x").launch_replicas(1, __file__),
            "launch_replicas(…): ranks on Kubernetes share no files: they need a `rendezvous` in an object store",
            id="no place to meet",
        ),
        pytest.param(
            lambda: EKSExecutor("r/t:1", batch_api=object()),
            "batch_api: remuda speaks with the API server itself, by the kubeconfig", id="a client of one's own",
        ),
        pytest.param(
            lambda: EKSExecutor("r/t:1", cpu_request="500m"),
            "cpu_request: must be whole CPUs, not '500m'", id="a part of a CPU",
        ),
        pytest.param(
            lambda: EKSExecutor("r/t:1", tolerations=[{"operator": "Exists"}]),
            "tolerations: a toleration needs a key, and this has none: {'operator': 'Exists'}", id="every taint",
        ),
        pytest.param(
            lambda: EKSExecutor("r/t:1").launch_replicas(1, "m:f", gpu="B300"),
            "gpu: no type of instance is known for 'B300'", id="a GPU that no instance has",
        ),
        pytest.param(
            lambda: EKSExecutor("r/t:1", ttl_seconds_after_finished=-1).launch_replicas(1, "m:f"),
            "launch_replicas(…): `ttl` must not be negative, but is -1", id="a field of the document",
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
    program, env, files = executor._program(str(script), {"lr": 0.1, "layers": [1, 2], "name": "a b"}, "local")
    assert (program, files) == ({"command": [sys.executable, str(script)]}, {})
    assert json.loads(env.pop("REMUDA_ARGS")) == {"lr": 0.1, "layers": [1, 2], "name": "a b"}
    assert env == {"LR": "0.1", "NAME": "a b"}
    words = ["--lr", "0.1"]
    typed = {"command": [sys.executable, str(script), *words]}
    assert executor._program(str(script), words, "slurm") == (typed, {}, {})
    assert executor._program(str(script), words, "kubernetes") == ({"script": str(script), "args": words}, {}, {})


def test_a_function_travels_into_an_image_with_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "fits", raising=False)  # another test may have loaded one
    (tmp_path / "fits.py").write_text("def fit(): ...\n")
    program, _, files = executor._program("fits:fit", {}, "kubernetes", "python3.12")
    assert program == {"command": ["python3.12", "__REMUDA_FILES__/remuda_call.py", "fits:fit", "told"]}
    assert files.pop("remuda_call.py") == Path(entrypoint.__file__).read_text()
    assert files == {"fits.py": "def fit(): ...\n"}
    for own in ("json:dumps", "torch.nn:Linear", "of_the_image:fit"):
        assert [*executor._program(own, {}, "kubernetes")[2]] == ["remuda_call.py"]


@pytest.mark.parametrize("result", [{"loss": 1.5}, [1, "a\n"], "text", 3, False])
def test_a_function_tells_its_result_where_no_file_comes_back(
    result: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "call.py").write_text(Path(entrypoint.__file__).read_text())
    (tmp_path / "fits.py").write_text(
        "import sys\ndef fit(value):\n    sys.stdout.write('half a line')\n    return value\n"
    )
    env = {"PATH": "/usr/bin:/bin", "REMUDA_ARGS": json.dumps({"value": result})}
    argv = ["python3", "call.py", "fits:fit", "told"]
    told = subprocess.run(argv, cwd=tmp_path, env=env, check=True, capture_output=True, text=True).stdout
    assert told.splitlines()[0] == "half a line"
    assert executor._result(tmp_path, told) == result


SEEDS = {
    "image": "r/t:1", "namespace": "default", "cpus_per_task": 4, "mem": "16Gi", "ttl": 3600, "max_retries": 0,
    "gpu_resource": "nvidia.com/gpu",
}  # fmt: skip


def test_the_words_of_the_executor_for_eks() -> None:
    assert EKSExecutor("r/t:1")._fields == SEEDS
    taint = SimpleNamespace(key="gpu", operator="Exists", value=None, effect="NoSchedule")
    made = EKSExecutor(
        "r/t:1", namespace="ml", service_account_name="sa", runtime_class_name="gvisor", run_id="x",
        tolerations=[taint, {"key": "a", "operator": "Equal", "value": "b"}, "c"], cpu_request=8, backoff_limit=2,
        node_selector={"zone": "a", eks.INSTANCE: "p5e.48xlarge"}, command="python -m train", context="prod",
    )  # fmt: skip
    assert made._fields == {
        **SEEDS, "namespace": "ml", "service_account": "sa", "runtime_class": "gvisor", "cpus_per_task": 8,
        "max_retries": 2, "tolerations": ["gpu:NoSchedule", "a=b", "c"], "context": "prod",
    }  # fmt: skip
    assert (made._command, made._base) == (("python", "-m", "train"), "x")
    assert made._resources("H100:8") == {
        "node_selector": {"zone": "a", eks.INSTANCE: "p5e.48xlarge"}, "resources": {"gpus": 8}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "kind", "count"),
    [("A100", "p4d.24xlarge", 1), ("H100:8", "p5.48xlarge", 8), ("A10G", "g5.xlarge", 1), ("T4", "g4dn.xlarge", 1)],
)
def test_a_kind_of_gpu_is_a_type_of_instance(gpu: str, kind: str, count: int) -> None:
    asked = EKSExecutor("r/t:1")._resources(gpu)
    assert asked == {"node_selector": {eks.INSTANCE: kind}, "resources": {"gpus": count}}
    assert EKSExecutor("r/t:1")._resources(2) == {"node_selector": {}, "resources": {"gpus": 2}}


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
