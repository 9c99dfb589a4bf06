"""Pages as the three engines write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.node.child.metrics import parse, with_rates

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:prompt_tokens_total{engine="0",model_name="a } b{"} 1.5e+06
vllm:generation_tokens_total{engine="0",model_name="m"} 42.0 1712345678000
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
python_gc_objects_collected_total{generation="0"} 5.0
"""
SGLANG = b"""sglang:num_running_reqs{model_name="m"} 1
sglang:num_queue_reqs{model_name="m"} 2
sglang:prompt_tokens_total{model_name="m"} 3
sglang:generation_tokens_total{model_name="m"} 4
"""
LLAMACPP = b"""# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 10
llamacpp:tokens_predicted_total 20
llamacpp:requests_processing 1
llamacpp:requests_deferred 0
"""


@pytest.mark.parametrize(
    ("page", "running", "waiting", "prompt", "generated"),
    [
        pytest.param(VLLM, 5.0, 7.0, 1.5e6, 42.0, id="vllm"),
        pytest.param(SGLANG, 1.0, 2.0, 3.0, 4.0, id="sglang"),
        pytest.param(LLAMACPP, 1.0, 0.0, 10.0, 20.0, id="llama.cpp"),
    ],
)
def test_engines(page: bytes, running: float, waiting: float, prompt: float, generated: float) -> None:
    expected = {"running": running, "waiting": waiting, "prompt_tokens": prompt, "generated_tokens": generated}
    assert parse(page) == expected


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"vllm:num_requests_running",
        b"vllm:num_requests_running{",
        b"vllm:num_requests_running{} many",
        b"vllm:num_requests_running NaN",
        b"vllm:num_requests_running +Inf",
        b"vllm:num_requests_running_total 3",
        b"vllm:\xff\xfe 3",
        b"vllm:",
    ],
)
def test_what_cannot_be_read_is_passed_over(page: bytes) -> None:
    assert parse(page) == {}


@given(st.binary(max_size=100))
def test_no_page_raises(page: bytes) -> None:
    parse(b"vllm:num_requests_running" + page)
    parse(b"vllm:" + page)


@pytest.mark.parametrize(
    ("now", "before", "elapsed_s", "expected"),
    [
        pytest.param({"generated_tokens": 50.0}, {"generated_tokens": 10.0}, 10.0, {"tokens_per_s": 4.0}, id="grown"),
        pytest.param({"generated_tokens": 5.0}, {"generated_tokens": 10.0}, 10.0, {"tokens_per_s": 0.5}, id="again"),
        pytest.param({"prompt_tokens": 3.0}, {"prompt_tokens": 3.0}, 2.0, {"prompt_tokens_per_s": 0.0}, id="idle"),
        pytest.param({"generated_tokens": 5.0}, {}, 10.0, {}, id="first page"),
        pytest.param({"generated_tokens": 5.0}, {"generated_tokens": 1.0}, 0.0, {}, id="no time"),
        pytest.param({"running": 5.0}, {"running": 1.0}, 1.0, {}, id="no total"),
    ],
)
def test_rates(now: dict[str, float], before: dict[str, float], elapsed_s: float, expected: dict[str, float]) -> None:
    assert with_rates(now, before, elapsed_s) == now | expected
