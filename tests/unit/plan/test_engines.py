"""What all engines keep, and what a help page tells about arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.plan.context import Context
from remuda.plan.derive import derive
from remuda.plan.engines import ENGINES, EngineCommand
from remuda.plan.engines.flags import known_flags, unknown_flags
from remuda.plan.model import HOST_MARK, PORT_MARK
from remuda.specs.deployment import Engine
from remuda.specs.strict import SecretSource
from remuda.specs.swarm import EngineName, SwarmSpec

CASES = Path(__file__).parents[2] / "cases" / "flags"
PYTHON = "/env/bin/python"
SWARMS = get_args(EngineName)
DEPLOYED = {get_args(one.model_fields["type"].annotation)[0] for one in get_args(get_args(Engine)[0])}


def rendered(engine: str, **fields: object) -> EngineCommand:
    own = {"command": ["server", "{host}", "{port}", "{model}"]} if engine == "command" else {}
    spec = SwarmSpec.model_validate({"model": "m", "engine": engine, "gpus_per_replica": 0, **own, **fields})
    return ENGINES[engine].render(derive(spec, Context()).spec, PYTHON)


def test_all_engines_that_specs_name_are_there() -> None:
    assert set(get_args(EngineName)) | DEPLOYED == set(ENGINES)
    assert all(name == engine.name for name, engine in ENGINES.items())


@pytest.mark.parametrize("engine", SWARMS)
@given(words=st.lists(st.text(max_size=12).map(lambda text: f"x{text}"), max_size=4), model=st.text(min_size=1))
def test_words_arrive_verbatim_and_last(engine: str, words: list[str], model: str) -> None:
    words = [word.replace("{", "") for word in words]
    model = f"m{model}"
    argv = rendered(engine, args=words, model=model).argv
    assert argv[len(argv) - len(words) :] == tuple(words)
    assert model in argv
    assert HOST_MARK in argv
    assert PORT_MARK in argv


@pytest.mark.parametrize("engine", SWARMS)
def test_the_key_is_a_reference(engine: str) -> None:
    command = rendered(engine, api_key=SecretSource(env="MY_KEY"), secret_env={"A": {"file": "/f"}})
    assert "MY_KEY" not in " ".join(command.argv)
    assert command.secret_env["A"].file == "/f"
    assert ("MY_KEY" in {ref.env for ref in command.secret_env.values()}) >= bool(command.key_env)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "transformers"])
@pytest.mark.parametrize("flag", ["--host", "--port=1", "--api-key", "--api_key=x"])
def test_what_the_supervisor_needs_cannot_be_undone(engine: str, flag: str) -> None:
    with pytest.raises(InputError) as caught:
        rendered(engine, args=[flag])
    assert caught.value.where == "args"
    assert "=x" not in str(caught.value)


def test_engines_that_cannot_say_so() -> None:
    with pytest.raises(InputError, match="`engine_path` is not an interpreter"):
        rendered("sglang", engine_path="/opt/sglang/bin/sglang")
    with pytest.raises(InputError, match="under its own name only"):
        rendered("transformers", served_model_name="other")


@pytest.mark.parametrize("file", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_unknown_arguments(file: Path) -> None:
    help_text = file.with_suffix(".txt").read_text()
    for case in json.loads(file.read_text()):
        found = [[item.flag, item.nearest] for item in unknown_flags(case["args"], help_text)]
        assert found == case["unknown"], case["args"]


def test_descriptions_are_no_flags() -> None:
    text = "options:\n  -a, --alpha N  like --beta, but\n                 --gamma is better\n"
    assert known_flags(text) >= {"-a", "--alpha"}
    assert "--beta" not in known_flags(text)


def test_a_page_without_flags_says_nothing() -> None:
    assert unknown_flags(["--anything"], "command not found") == ()


def test_llamacpp_launcher_knows_what_we_render() -> None:
    from remuda.serving.llamacpp_server import parser

    command = rendered("llamacpp", api_key={"env": "K"}, args=["--ctx-size", "512", "--parallel", "2"])
    own = ["--host", "127.0.0.1", "--port", "1"]
    words = [word for word in command.argv[4:] if word not in ("--host", HOST_MARK, "--port", PORT_MARK)]
    options = parser().parse_args([*words, *own])
    assert (str(options.model), options.alias, options.n_gpu_layers) == ("m", "m", 0)
    assert (options.ctx_size, options.parallel, options.metrics) == (512, 2, True)
    assert options.api_key_env in command.secret_env
    assert unknown_flags(["--ctx-sise", "1"], parser().format_help())[0].nearest == "--ctx-size"
