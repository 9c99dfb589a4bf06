"""Arguments that the engine does not know are told before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.serving.tiny import make_tiny_model

if TYPE_CHECKING:
    from tests.conftest import Home


def test_an_unknown_argument_of_a_real_engine_is_told(home: Home) -> None:
    make_tiny_model(home.root / "tiny.gguf")
    (home.root / "pony.yaml").write_text("model: tiny.gguf\nengine: llamacpp\nargs: --ctx-sizes 512 --parallel 2\n")
    done = home.run("config", "check", "pony.yaml")
    assert "note: llamacpp does not know --ctx-sizes (did you mean --ctx-size?)" in done.stderr
    assert "--parallel" not in done.stderr
    (home.root / "pony.yaml").write_text("model: tiny.gguf\nengine: llamacpp\nargs: --ctx-size 512\n")
    assert home.run("config", "check", "pony.yaml").stderr == ""


def test_an_engine_that_is_not_here_cannot_be_asked(home: Home) -> None:
    (home.root / "far.yaml").write_text("model: m\nengine: sglang\nengine_path: /no/such/python3\nargs: --what 1\n")
    assert "does not know" not in home.run("config", "check", "far.yaml").stderr


def test_a_model_that_is_not_there_is_told_at_once(home: Home) -> None:
    (home.root / "pony.yaml").write_text("engine: llamacpp\nmodel: absent.gguf\n")
    done = home.run("up", "-c", "pony.yaml", check=False)
    assert done.returncode == 2
    assert f"error: pony.yaml:2:1: there is no model '{home.root}/absent.gguf'" in done.stderr
    assert not home.paths.socket.exists()
    (home.root / "pony.yaml").write_text("engine: vllm\nmodel: some-org/some-model\n")
    assert home.run("config", "check", "pony.yaml").returncode == 0
