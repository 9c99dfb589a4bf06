"""How many GPUs an environment gives, as a table."""

from __future__ import annotations

import pytest

from remuda.node.gpu import gpus
from remuda.node.gpu.smoke import GpuSmokeResult, judge


@pytest.mark.parametrize(
    ("env", "number"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": "0"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "0,1,3"}, 3),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,2"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1a2b3c4d,MIG-9"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_GPUS": "0,1"}, 1),
        ({"ROCR_VISIBLE_DEVICES": "0,1"}, 2),
        ({"HIP_VISIBLE_DEVICES": "4"}, 1),
        ({"ZE_AFFINITY_MASK": "0.0,0.1"}, 2),
        ({"SLURM_JOB_GPUS": "0-3,6"}, 5),
        ({"SLURM_GPUS_ON_NODE": "8"}, 8),
        ({"SLURM_GPUS_ON_NODE": "many"}, None),
    ],
)
def test_visible(env: dict[str, str], number: int | None) -> None:
    assert gpus.visible(env).number == number


@pytest.mark.parametrize(
    ("asked", "env", "sentence"),
    [
        (0, {}, ""),
        (2, {}, ""),
        (2, {"CUDA_VISIBLE_DEVICES": "0,1,2"}, ""),
        (1, {"CUDA_VISIBLE_DEVICES": ""}, "1 GPU was asked for and 0 are visible (CUDA_VISIBLE_DEVICES=)"),
        (2, {"SLURM_GPUS_ON_NODE": "1"}, "2 GPUs were asked for and 1 is visible (SLURM_GPUS_ON_NODE=1)"),
    ],
)
def test_missing(asked: int, env: dict[str, str], sentence: str) -> None:
    assert gpus.missing(asked, gpus.visible(env)) == sentence


@pytest.mark.parametrize(
    ("env", "given"),
    [
        ({}, False),
        ({"CUDA_VISIBLE_DEVICES": "0"}, False),
        ({"SLURM_JOB_GPUS": "0"}, True),
        ({"SLURM_JOB_GPUS": ""}, False),
        ({"SLURM_GPUS_ON_NODE": "0"}, False),
        ({"SLURM_GPUS_ON_NODE": "2"}, True),
    ],
)
def test_are_given(env: dict[str, str], given: bool) -> None:
    assert gpus.are_given(env) is given


@pytest.mark.parametrize("text", ["", '{"step": "count", "count": 1, "driver": 1}\n', '{"step": "dev'])
def test_a_test_that_breaks_off_anywhere_is_broken(text: str) -> None:
    assert judge(text, "it was ended by signal 9", is_late=False).fault == "cuda-crash"
    assert judge(text, "there was no end within 1 s", is_late=True).outcome == "timeout"


def test_no_gpu_at_all_is_no_failed_test() -> None:
    result = judge('{"step": "count", "count": 0, "driver": 1}\n{"step": "end"}\n', "", is_late=False)
    assert (result.outcome, result.devices) == ("ok", [])
    assert gpus.missing_in(1, result) == "1 GPU was asked for and CUDA sees 0"
    assert gpus.missing_in(1, GpuSmokeResult("broken")) == ""
