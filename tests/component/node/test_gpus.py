"""The test of the GPUs: against a library with the driver's own interface that is well, ill, crashes or hangs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.node.conftest import PYTHON
from tests.component.node.test_program import oldest_python

from remuda.wire import exit as codes
from remuda.wire.child import RunWatch

if TYPE_CHECKING:
    from tests.component.node.conftest import Allocation

GIVEN = {"CUDA_VISIBLE_DEVICES": "0,1", "FAKE_CUDA_COUNT": "2"}
ABSENT = "/nowhere"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Directory with a `libcuda.so.1`, for LD_LIBRARY_PATH."""
    folder = tmp_path_factory.mktemp("cuda")
    source = Path(__file__).with_name("libcuda.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return str(folder)


def ask(command: list[str], env: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Exit code and the line of JSON of the command."""
    end = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=200)
    assert end.stderr == ""
    assert end.stdout.count("\n") == 1
    return end.returncode, json.loads(end.stdout)


def smoke(program: Path, *words: str, **env: str) -> tuple[int, dict[str, Any]]:
    """The same for the Python that runs the tests."""
    return ask([*PYTHON, str(program), "smoke", "--json", *words], env)


def test_gpus_that_work(program: Path, library: str) -> None:
    code, found = smoke(program, "--gpus", "2", LD_LIBRARY_PATH=library, FAKE_CUDA_COUNT="2")
    assert (code, found["outcome"], found["error"], found["driver"]) == (0, "ok", "", 12040)
    assert [(gpu["index"], gpu["name"], gpu["address"], gpu["ok"]) for gpu in found["devices"]] == [
        (0, "Fake 0", "0000:3A:00.0", True),
        (1, "Fake 1", "0000:3B:00.0", True),
    ]


def test_no_driver_library_is_no_fault(program: Path) -> None:
    code, found = smoke(program, LD_LIBRARY_PATH=ABSENT)
    assert (code, found["outcome"], found["fault"]) == (3, "no-cuda", "")


def test_the_stub_for_building_is_no_driver(program: Path, library: str) -> None:
    code, found = smoke(program, LD_LIBRARY_PATH=library, FAKE_CUDA_INIT="34")
    assert (code, found["outcome"]) == (3, "no-cuda")


@pytest.mark.parametrize("number", [100, 802, 999, 46, 2, 3, 12345])
def test_a_driver_that_cannot_begin(program: Path, library: str, number: int) -> None:
    code, found = smoke(program, LD_LIBRARY_PATH=library, FAKE_CUDA_INIT=str(number))
    assert (code, found["outcome"], found["code"], found["fault"]) == (1, "broken", number, f"cuda-{number}")
    assert found["error"].startswith(f"cuInit returned {number}")


@pytest.mark.parametrize(
    ("ill", "fault", "error"),
    [
        ("46", "cuda-46", "cuCtxCreate_v2 returned 46: the GPU is busy or unavailable: something else holds it"),
        ("2", "cuda-2", "cuCtxCreate_v2 returned 2: out of memory: something else holds the GPU's memory"),
        ("214", "cuda-214", "cuCtxCreate_v2 returned 214: uncorrectable memory error"),
        ("wrong", "cuda-wrong-result", "1 of 1048576 bytes came back wrong"),
    ],
)
def test_one_gpu_is_ill(program: Path, library: str, ill: str, fault: str, error: str) -> None:
    env = {"LD_LIBRARY_PATH": library, "FAKE_CUDA_COUNT": "3", "FAKE_CUDA_GPU": "1", "FAKE_CUDA_ILL": ill}
    code, found = smoke(program, **env)
    assert (code, found["fault"], found["error"]) == (1, fault, f"GPU 1 (0000:3B:00.0): {error}")
    assert [gpu["ok"] for gpu in found["devices"]] == [True, False, True]


@pytest.mark.parametrize("where", ["FAKE_CUDA_INIT", "FAKE_CUDA_ILL"])
def test_a_driver_that_crashes(program: Path, library: str, where: str) -> None:
    code, found = smoke(program, LD_LIBRARY_PATH=library, **{where: "crash"})
    assert (code, found["outcome"], found["fault"]) == (1, "broken", "cuda-crash")
    assert found["error"].endswith("it was ended by signal 6")


@pytest.mark.parametrize("where", ["FAKE_CUDA_INIT", "FAKE_CUDA_ILL"])
def test_a_driver_that_hangs(program: Path, library: str, where: str) -> None:
    code, found = smoke(program, "--timeout", "0.7", LD_LIBRARY_PATH=library, **{where: "hang"})
    assert (code, found["outcome"], found["fault"]) == (4, "timeout", "cuda-hang")
    assert found["error"].endswith("there was no end within 0.7 s")


def test_too_few(program: Path, library: str) -> None:
    code, found = smoke(program, "--gpus", "2", LD_LIBRARY_PATH=library)
    assert (code, found["fault"], found["error"]) == (1, "gpu-missing", "2 GPUs were asked for and CUDA sees 1")


def test_it_runs_under_the_oldest_python(program: Path, library: str) -> None:
    command = [oldest_python(), "-I", "-S", str(program), "smoke", "--json"]
    assert ask(command, {"LD_LIBRARY_PATH": library})[0] == 0
    assert ask(command, {"LD_LIBRARY_PATH": ABSENT})[0] == 3


@pytest.mark.parametrize("words", [["--gpus"], ["--gpus", "two"], ["--what", "1"], ["1"]])
def test_wrong_arguments(program: Path, words: list[str]) -> None:
    end = subprocess.run([*PYTHON, str(program), "smoke", *words], capture_output=True, text=True, check=False)
    assert (end.returncode, end.stdout) == (2, "")
    assert end.stderr == "usage: remuda-node smoke [--json] [--gpus N] [--timeout SECONDS]\n"


def test_a_plain_line_for_people(program: Path, library: str) -> None:
    command = [*PYTHON, str(program), "smoke"]
    end = subprocess.run(command, env={"LD_LIBRARY_PATH": library}, capture_output=True, text=True, check=False)
    assert end.stdout == "ok: GPUs that work: 1\n"


# --- before a script -------------------------------------------------------------------------------------------------


def check(allocation: Allocation, env: dict[str, str], **watch: Any) -> int:
    """Run a script that prints «ran»; the exit code of the program."""
    fields = {"gpus": 2, **watch}
    allocation.start(["/bin/sh", "-c", "echo ran"], env=env, watch=RunWatch(**fields))
    return allocation.code()


def test_a_script_starts_on_gpus_that_work(allocation: Allocation, library: str) -> None:
    assert check(allocation, {**GIVEN, "LD_LIBRARY_PATH": library}) == 0
    assert allocation.log() == "ran\n"
    assert "GPUs that work: 2, tested in" in (allocation.run_dir / "node.log").read_text()


def test_a_script_starts_where_there_is_no_cuda(allocation: Allocation) -> None:
    assert check(allocation, {"LD_LIBRARY_PATH": ABSENT, "ROCR_VISIBLE_DEVICES": "0,1"}) == 0
    assert "the GPUs are not tested: no CUDA driver library" in (allocation.run_dir / "node.log").read_text()


def test_a_script_that_asks_for_none_is_not_held_up(allocation: Allocation, library: str) -> None:
    assert check(allocation, {"LD_LIBRARY_PATH": library, "FAKE_CUDA_INIT": "999"}, gpus=0) == 0


def test_the_check_can_be_switched_off(allocation: Allocation, library: str) -> None:
    assert check(allocation, {"LD_LIBRARY_PATH": library, "FAKE_CUDA_INIT": "999"}, gpu_check=False) == 0


def test_gpus_that_the_scheduler_gave_are_tested_unasked(allocation: Allocation, library: str) -> None:
    env = {"LD_LIBRARY_PATH": library, "FAKE_CUDA_INIT": "999", "SLURM_JOB_GPUS": "3"}
    assert check(allocation, env, gpus=0) == codes.GPU_BROKEN


def test_too_few_are_visible(allocation: Allocation) -> None:
    assert check(allocation, {"CUDA_VISIBLE_DEVICES": "3"}) == codes.NO_GPU
    record = allocation.record()
    assert record.reason == "2 GPUs were asked for and 1 is visible (CUDA_VISIBLE_DEVICES=3)"
    assert [(fault["kind"], fault["name"]) for fault in record.faults] == [("node", "gpu-missing")]
    assert record.ran_s == 0
    assert allocation.log() == ""


def test_too_few_work(allocation: Allocation, library: str) -> None:
    assert check(allocation, {**GIVEN, "FAKE_CUDA_COUNT": "1", "LD_LIBRARY_PATH": library}) == codes.NO_GPU
    assert allocation.record().reason == "2 GPUs were asked for and CUDA sees 1"


@pytest.mark.parametrize(
    ("ill", "kind", "name"),
    [("46", "node-busy", "cuda-46"), ("wrong", "node", "cuda-wrong-result"), ("crash", "node", "cuda-crash")],
)
def test_a_broken_gpu_keeps_the_script_from_starting(
    allocation: Allocation, library: str, ill: str, kind: str, name: str
) -> None:
    env = {**GIVEN, "LD_LIBRARY_PATH": library, "FAKE_CUDA_ILL": ill, "FAKE_CUDA_GPU": "1"}
    assert check(allocation, env) == codes.GPU_BROKEN
    (fault,) = allocation.record().faults
    assert (fault["kind"], fault["name"]) == (kind, name)
    assert fault["device"] == ("1" if ill == "crash" else "0000:3b:00")
    assert allocation.log() == ""


def test_a_driver_that_hangs_does_not_hang_us(allocation: Allocation, library: str) -> None:
    env = {**GIVEN, "LD_LIBRARY_PATH": library, "FAKE_CUDA_INIT": "hang"}
    watch = {"gpu_check_timeout_s": 1.5, "heartbeat_interval_s": 0.1}
    assert check(allocation, env, **watch) == codes.GPU_BROKEN
    assert allocation.record().faults[0]["name"] == "cuda-hang"
    assert (allocation.run_dir / "heartbeat").exists()


def test_asked_to_end_while_the_gpus_are_tested(allocation: Allocation, library: str) -> None:
    env = {**GIVEN, "LD_LIBRARY_PATH": library, "FAKE_CUDA_INIT": "hang"}
    allocation.start(["/bin/true"], env=env, watch=RunWatch(gpus=2))
    allocation.state("starting", reason="tests the GPUs")
    assert allocation.stop() == codes.STOPPED
