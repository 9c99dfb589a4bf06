"""What a plain install leaves out is asked for in one sentence, before anything is started; all else does without."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from remuda.cli import main
from remuda.client import http
from remuda.look import caller

ROOT = Path(__file__).parents[3]
SAYS = "error: {} pyarrow, which is not installed\n  pip install 'remuda[batch]'\n"
RECIPE = """\
kind: deployment
name: apart
model: {path: ./model, name: tiny}
engine: mocker
roles: {agg: {workers: 1}}
benchmark: {type: sa-bench, isl: 8, osl: 8, concurrencies: [1]}
"""
POOL = "swarms: [{name: one, config: swarm.yaml, job: {input: in.jsonl, output: out.jsonl}}]\n"
SWARM = "name: herd\nmodel: m\nengine: command\ncommand: ['true']\nrouter: none\nbackend: {type: local}\n"
ENDPOINT = ("--endpoint", "http://127.0.0.1:9/v1")
WITHOUT = """\
import importlib, pkgutil, sys
sys.modules |= {"pyarrow": None, "numpy": None}
import remuda
for info in pkgutil.walk_packages(remuda.__path__, "remuda."):
    if not info.name.endswith("__main__") and not info.name.startswith(("remuda.store.migrations", "remuda.testing")):
        try:
            importlib.import_module(info.name)
        except ImportError as error:
            if "pyarrow" in str(error) or "numpy" in str(error):
                print(info.name)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a document of each kind, and no pyarrow; whoever starts a host fails."""
    (tmp_path / "in.jsonl").write_text('{"messages": "hi"}\n')
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    for name, text in (("recipe.yaml", RECIPE), ("pool.yaml", POOL), ("swarm.yaml", SWARM)):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(caller, "present_gpus", lambda: ())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(http, "start_host", lambda *_: pytest.fail("a host was started"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("job", "submit", *ENDPOINT, "-i", "in.jsonl", "-o", "out.jsonl"), "a batch job takes"),
        (("job", "submit", "-c", "swarm.yaml", "-i", "in.jsonl", "-o", "out.jsonl"), "a batch job takes"),
        (("pool", "-c", "pool.yaml", "--dry-run"), "a batch job takes"),
        (("bench", *ENDPOINT), "a benchmark takes"),
        (("bench", "run", *ENDPOINT, "--detach"), "a benchmark takes"),
        (("bench", "search", *ENDPOINT, "--maximise", "rate", "--slo", "ttft_p99=1s"), "a benchmark takes"),
        (("apply", "recipe.yaml"), "recipe.yaml: its benchmark takes"),
        (("up", "recipe.yaml", "--no-wait"), "recipe.yaml: its benchmark takes"),
        (("profiler", "analyze", "exp1"), "to read a recording takes"),
    ],
)
def test_it_is_asked_for_before_anything_is_started(
    home: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], what: str
) -> None:
    assert main([*words]) == 2
    assert capsys.readouterr().err.endswith(SAYS.format(what))
    assert not home.exists()
    assert not Path("out.jsonl").exists()


def test_a_benchmark_of_answers_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "pyarrow")
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert main(["bench", "accuracy", "sums", *ENDPOINT]) == 2
    said = "error: a benchmark of answers takes lm_eval, which is not installed\n  pip install 'remuda[accuracy]'\n"
    assert capsys.readouterr().err == said


def test_all_else_does_without() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    need = {name for name in done.stdout.split() if not name.startswith("remuda.batch.")}
    assert need == {"remuda.gang", "remuda.profile", "remuda.client.bench.answers"}


def test_the_extra_has_what_a_plain_install_lacks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plain = {Requirement(text).name for text in project["dependencies"]}
    assert plain & {"numpy", "pyarrow", "pandas", "matplotlib"} == set()
    assert {Requirement(text).name for text in project["optional-dependencies"]["batch"]} == {"numpy", "pyarrow"}
    (everything,) = project["optional-dependencies"]["all"]
    assert Requirement(everything).extras == project["optional-dependencies"].keys() - {"all"}
