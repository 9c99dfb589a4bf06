"""What of a deployment cannot work is told from its spec, its model's configuration and its engine's help."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.base.errors import InputError
from remuda.plan.compile import Finding
from remuda.plan.deployment.preflight import check_flags, check_spec, gpus_of, heads_of, help_argv
from remuda.specs.deployment import DeploymentSpec

SLURM = {"type": "slurm"}


def spec(
    engine: str = "sglang",
    prefill: dict[str, Any] | None = None,
    decode: dict[str, Any] | None = None,
    agg: dict[str, Any] | None = None,
    **fields: Any,
) -> DeploymentSpec:
    """A deployment by the flags of its roles; what is no flag has its own name."""
    own = {"nodes", "workers", "gpus", "extra_args", "engine"}

    def role(said: dict[str, Any]) -> dict[str, Any]:
        flags = {key: value for key, value in said.items() if key not in own}
        return {**{key: value for key, value in said.items() if key in own}, "args": flags}

    roles = {"agg": role(agg)} if agg is not None else {"prefill": role(prefill or {}), "decode": role(decode or {})}
    said = {"model": {"path": "/m"}, "engine": engine, "roles": roles, **fields}
    return DeploymentSpec.model_validate(said)


@pytest.mark.parametrize(
    ("said", "path", "sentence"),
    [
        pytest.param(
            spec(prefill={"page_size": 64}, decode={"page-size": 1}), "roles.decode.args.page-size",
            "the page size of decode is 1, and that of prefill 64: they must be the same", id="page size",
        ),
        pytest.param(
            spec("vllm", {"block-size": 64}, {"extra_args": ["--block-size=16"]}), "roles.decode.extra_args",
            "the page size of decode is 16, and that of prefill 64: they must be the same", id="in further words",
        ),
        pytest.param(
            spec("mocker", {"block-size": 16}, {"extra_args": ["--x", "--block-size", "32"]}),
            "roles.decode.extra_args",
            "the page size of decode is 32, and that of prefill 16: they must be the same", id="the last word counts",
        ),
        pytest.param(
            spec("trtllm", {"kv_cache_config": {"tokens_per_block": 32}},
                 {"kv_cache_config": {"tokens_per_block": 64}}),
            "roles.decode.args.kv_cache_config.tokens_per_block",
            "the page size of decode is 64, and that of prefill 32: they must be the same", id="nested",
        ),
        pytest.param(
            spec("vllm", {"kv-cache-dtype": "fp8_e5m2"}, {"kv_cache_dtype": "fp8"}), "roles.decode.args.kv_cache_dtype",
            "the type of the cache of decode is fp8, and that of prefill fp8_e5m2: they must be the same", id="cache",
        ),
        pytest.param(
            spec(prefill={"context-length": 9000}, decode={"context-length": 9600}), "roles.decode.args.context-length",
            "the context length of decode is 9600, and that of prefill 9000: they must be the same", id="context",
        ),
        pytest.param(
            spec(prefill={"tp": 8, "gpus": 4}), "roles.prefill.args.tp",
            "a worker of prefill is for 8 GPUs, and it has 4", id="more ranks than GPUs",
        ),
        pytest.param(
            spec("vllm", {"gpus": 8, "tensor-parallel-size": 4, "pp": 2, "data_parallel_size": 2}),
            "roles.prefill.args.tensor-parallel-size",
            "a worker of prefill is for 16 GPUs, and it has 8", id="all kinds of ranks",
        ),
        pytest.param(
            spec(agg={"nodes": 2, "workers": 4, "tp-size": 8}, backend=SLURM, gpus_per_node=8),
            "roles.agg.args.tp-size",
            "a worker of agg is for 8 GPUs, and it has 4", id="GPUs of its share of the nodes",
        ),
        pytest.param(
            spec(agg={"tp": 7}), "roles.agg.args.tp",
            "the model has 48 attention heads, which 7 ranks of agg cannot share", id="heads",
        ),
        pytest.param(
            spec("vllm", agg={"gpus": 0, "block-size": 16}), "roles.agg.args.block-size",
            "the block size of agg is 16: without a GPU, vLLM takes multiples of 32 only", id="vLLM without a GPU",
        ),
        pytest.param(
            spec("vllm", agg={"block-size": 100}, env={"VLLM_CPU_KVCACHE_SPACE": "1"}), "roles.agg.args.block-size",
            "the block size of agg is 100: without a GPU, vLLM takes multiples of 32 only", id="vLLM on the CPU",
        ),
    ],
)  # fmt: skip
def test_what_fails(said: DeploymentSpec, path: str, sentence: str) -> None:
    failures = [one for one in check_spec(said, heads=48) if one.fails]
    assert [(".".join(map(str, one.path)), one.sentence) for one in failures] == [(path, sentence)]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        pytest.param(
            spec(prefill={"kv-cache-dtype": "fp8_e4m3"}, decode={"kv-cache-dtype": "auto"}),
            "the type of the cache of prefill is fp8_e4m3, and decode leaves it to the engine: they must be the same",
            id="one says it",
        ),
        pytest.param(
            spec(agg={"tp": 4, "gpus": 8}), "a worker of agg is for 4 GPUs, and 4 of its 8 stay idle", id="idle GPUs",
        ),
        pytest.param(
            spec(agg={"tensor-parallel-size": 4, "tp-size": 8, "gpus": 8}),
            "--tensor-parallel-size is said again below by another of its names, which counts", id="two names",
        ),
    ],
)  # fmt: skip
def test_what_is_a_note(said: DeploymentSpec, sentence: str) -> None:
    found = check_spec(said)
    assert [(one.sentence, one.fails) for one in found] == [(sentence, False)]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(spec(), id="nothing said"),
        pytest.param(spec("vllm", {"kv-cache-dtype": "fp8"}, {"kv-cache-dtype": "fp8_e4m3"}), id="two names for one"),
        pytest.param(
            spec("trtllm", {"max_seq_len": 100, "tensor_parallel_size": 1, "pipeline_parallel_size": 8, "gpus": 8},
                 {"max_seq_len": 200, "tensor_parallel_size": 16, "enable_attention_dp": True, "gpus": 16}),
            id="TensorRT-LLM's lengths, and attention that is not split",
        ),
        pytest.param(
            spec(agg={"tp-size": 32, "dp-size": 32, "enable-dp-attention": True, "nodes": 8}, backend=SLURM),
            id="ranks of attention among those of tensors",
        ),
        pytest.param(spec("vllm", agg={"tp": 1, "data-parallel-size": 16, "gpus": 16}), id="ranks of data"),
        pytest.param(spec("mocker", agg={"tp": 64}), id="a simulated engine"),
        pytest.param(spec("vllm", agg={"gpus": 0, "block-size": 64}), id="vLLM without a GPU"),
        pytest.param(spec("vllm", agg={"gpus": 1, "block-size": 16}), id="vLLM with one"),
        pytest.param(spec(agg={"tp": "{tp}", "gpus": 4}), id="no number"),
        pytest.param(spec(agg={"tp": "9" * 5000, "pp": "²", "dp": 0, "gpus": 4}), id="no number that counts"),
    ],
)  # fmt: skip
def test_what_is_good(said: DeploymentSpec) -> None:
    assert check_spec(said, heads=48) == []


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (spec(agg={"gpus": 3}), 3),
        (spec(agg={}), None),
        (spec(agg={"tp": 2, "pp": 2}), 4),
        (spec(agg={"nodes": 3, "workers": 3}, backend=SLURM, gpus_per_node=4), 4),
        (spec(agg={"nodes": 3, "workers": 2}, backend=SLURM, gpus_per_node=4), None),
        (spec(decode={"nodes": "colocate"}, backend=SLURM), 4),
        (spec("mocker", agg={"gpus": 8}), 0),
    ],
)
def test_gpus_of_a_worker(said: DeploymentSpec, expected: int | None) -> None:
    assert gpus_of(said, next(iter(said.by_name()))) == expected


def test_no_gpus_are_known_of_a_role_on_the_nodes_of_another() -> None:
    assert gpus_of(spec(decode={"nodes": "colocate"}, backend=SLURM), "decode") is None


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"num_attention_heads": 64}, 64), ({"text_config": {"num_attention_heads": 8}}, 8), ({"n_layer": 1}, 0)],
)
def test_heads_of_a_model(config: dict[str, Any], expected: int) -> None:
    assert heads_of(config) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "is not a mapping"),
        ({"num_attention_heads": "many"}, "has 'many' for num_attention_heads"),
        ({"num_attention_heads": 0}, "has 0 for num_attention_heads"),
        ({"num_attention_heads": True}, "has True for num_attention_heads"),
    ],
)
def test_a_configuration_that_is_none(config: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        heads_of(config)
    assert error.value.message == message


@pytest.mark.parametrize(
    ("engine", "frontend", "expected"),
    [
        ("sglang", "dynamo", ("py", "-m", "dynamo.sglang", "--help")),
        ("mocker", "dynamo", ("py", "-m", "dynamo.mocker", "--help")),
        ("sglang", "sglang-router", ("py", "-m", "sglang.launch_server", "--help")),
        ("vllm", "vllm-router", ("py", "-m", "vllm.entrypoints.cli.main", "serve", "--help=all")),
        ("trtllm", "dynamo", ()),
        ("mocker", "none", ()),
    ],
)
def test_who_is_asked_for_flags(engine: str, frontend: str, expected: tuple[str, ...]) -> None:
    assert help_argv(spec(engine, frontend={"type": frontend}), "prefill", "py") == expected


HELP = """\
usage: x [-h] [--model-path PATH]
  --model-path PATH
  --tensor-parallel-size N, --tp N
  --disable-cuda-graph
"""


def test_flags_that_an_engine_does_not_know() -> None:
    flags = {"tensor_parallel_size": 2, "tp": 2, "disable-cuda-graf": True, "gone": False}
    said = spec(agg={**flags, "extra_args": ["--model-pat", "/m", "--tp=1", "x"]})
    assert check_flags(said, "agg", HELP) == [
        Finding(
            ("roles", "agg", "args", "disable-cuda-graf"),
            "sglang does not know --disable-cuda-graf (did you mean --disable-cuda-graph?)",
        ),
    ]
    assert check_flags(spec(agg={"extra_args": ["--blok", "1"]}), "agg", HELP) == [
        Finding(("roles", "agg", "extra_args"), "sglang does not know --blok"),
    ]


@pytest.mark.parametrize("text", ["", "no module", "usage: x [-h]\n  --help  for all: --help=all\n"])
def test_a_help_that_lists_no_flags_tells_nothing(text: str) -> None:
    assert check_flags(spec(agg={"x": 1}), "agg", text) is None
