"""A dry run of every kind has one form, and writes nothing: also where the state directory cannot be written."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from remuda.cli import main, plans
from remuda.look import caller

if TYPE_CHECKING:
    from pathlib import Path

UNWRITABLE = "/proc/remuda-home"
ENDPOINT = ("--endpoint", "http://127.0.0.1:9/v1")
DOCUMENTS = {
    "train.sh": "#!/bin/bash\n#REMUDA --backend local\necho trained\n",
    "run.yaml": "kind: run\nscript: train.sh\nbackend: local\n",
    "gang.yaml": "kind: gang\nranks: 2\nscript: train.sh\n",
    "swarm.yaml": "name: herd\nmodel: m\nengine: command\ncommand: [sh, '{port}']\nrouter: none\nreplicas: 1\n",
    "recipe.yaml": "kind: deployment\nname: apart\nmodel: {path: MODEL, name: m}\nengine: mocker\n"
    "roles: {prefill: {}, decode: {workers: 2}}\n",
    "pool.yaml": "swarms: [{name: one, config: swarm.yaml}]\n",
    "in.jsonl": '{"prompt": "a"}\n',
}
COMMANDS = {
    "run": ("run", "train.sh", "--backend", "local"),
    "runs": ("run", "train.sh", "run.yaml", "--backend", "local"),
    "gang up": ("gang", "up", "gang.yaml"),
    "up": ("up", "swarm.yaml"),
    "serve": ("serve", "m", "--engine", "transformers"),
    "apply": ("apply", "recipe.yaml"),
    "job submit": ("job", "submit", *ENDPOINT, "-m", "m", "-i", "in.jsonl", "-o", "out.jsonl"),
    "job submit-script": ("job", "submit-script", *ENDPOINT, "-m", "m", "train.sh"),
    "bench": ("bench", *ENDPOINT, "--model", "m", "--isl", "8", "--osl", "8", "--concurrency", "1"),
    "profiler start": ("profiler", "start", "--name", "watts"),
}
KEYS = {"token", "argv", "command", "env", "files", "pools", "notes", "findings"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of documents, a machine without GPUs, and a state directory that nobody can make."""
    monkeypatch.setenv("REMUDA_HOME", UNWRITABLE)
    monkeypatch.setattr(caller, "present_gpus", lambda: ())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    for name, text in DOCUMENTS.items():
        (tmp_path / name).write_text(text.replace("MODEL", "./model"))


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_dry_run_writes_nothing_and_shows_the_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    assert main([*words, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("# ")
    assert "would fail" not in shown.err
    if words[:2] != ("job", "submit-script"):  # it has no --json
        assert main([*words, "--dry-run", "--json"]) == 0
        items = json.loads(capsys.readouterr().out)
        assert [item.keys() for item in items] == [KEYS] * len(items)
        assert shown.out.count("# ") >= len(items)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("file", "text", "finding"),
    [
        pytest.param("swarm.yaml", "model: ./gone\nengine: vllm\nrouter: none\nreplicas: 1\n",
                     "swarm.yaml:1:1: there is no model 'PATH/gone' (relative paths start at `cwd`, by default where "
                     "the command was typed)", id="up"),
        pytest.param("gang.yaml", "kind: gang\nranks: 1\nworkdir: /gone\nscript: train.sh\n",
                     "gang.yaml:3:1: there is no directory '/gone' (make it first)", id="gang up"),
        pytest.param("run.yaml", "kind: run\nscript: train.sh\nbackend: local\nworkdir: /gone\n",
                     "run.yaml:4:1: there is no directory '/gone' (make it first)", id="run"),
        pytest.param("recipe.yaml", "kind: deployment\nmodel: {path: /gone, name: m}\nengine: mocker\n"
                     "roles: {agg: {}}\n", "recipe.yaml:2:9: there is no folder of a model '/gone'", id="apply"),
    ],
)  # fmt: skip
def test_what_would_fail_is_told_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, text: str, finding: str
) -> None:
    """In the same words by a dry run, by `preflight`, and by the command itself, which ends with it."""
    (tmp_path / file).write_text(text)
    command = {"swarm.yaml": ("up",), "gang.yaml": ("gang", "up"), "run.yaml": ("run",), "recipe.yaml": ("apply",)}[
        file
    ]
    finding = finding.replace("PATH", str(tmp_path))
    assert main([*command, file, "--dry-run"]) == 0
    assert f"would fail: {finding}\n" in capsys.readouterr().err
    assert main(["preflight", file]) == 1
    assert finding in capsys.readouterr().out.splitlines()
    assert main([*command, file]) == 2
    assert finding.partition(" (")[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("train.sh", ("run", "train.sh")),
        ("run.yaml", ("run", "run.yaml")),
        ("gang.yaml", ("gang", "up", "gang.yaml")),
        ("recipe.yaml", ("apply", "recipe.yaml")),
        ("pool.yaml", ("pool", "-c", "pool.yaml")),
        ("swarm.yaml", ("up", "-c", "swarm.yaml")),
    ],
)
def test_up_is_the_word_for_every_kind(capsys: pytest.CaptureFixture[str], file: str, words: tuple[str, ...]) -> None:
    shown = []
    for typed in (words, ("up", file), (file,), (f"./{file}",)):
        assert main([*typed, "--dry-run"]) == 0
        seen = capsys.readouterr()
        shown.append(re.sub(r"\b[a-z2-9]{8}\b", "UID", seen.out.replace("./", "")) + seen.err)
    assert len({*shown}) == 1


def tokens(shown: str) -> list[str]:
    return re.findall(r"^# ([\w-]+\.[\w-]+\.\d+)\.1\.\w{8}", shown, re.MULTILINE)


@pytest.mark.parametrize(
    "words",
    [("apply", "recipe.yaml"), ("up", "recipe.yaml"), ("recipe.yaml",), ("gang", "up", "gang.yaml")],
    ids=" ".join,
)
def test_verbose_shows_every_task(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert main([*words, "--dry-run", "--json"]) == 0
    every = [item["token"].rpartition(".1.")[0] for item in json.loads(capsys.readouterr().out)]
    assert main([*words, "--dry-run", "-v"]) == 0
    whole = capsys.readouterr()
    assert tokens(whole.out) == every
    assert "-v shows" not in whole.err
    assert main([*words, "--dry-run"]) == 0
    folded = capsys.readouterr()
    assert tokens(folded.out) == list({name.rpartition(".")[0]: name for name in reversed(every)}.values())[::-1]
    assert ("like it" in folded.out) == ("-v shows every task" in folded.err) == (len(every) > len(tokens(folded.out)))


def test_marks_are_explained_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "recipe.yaml", "--dry-run", "-v"]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("# __REMUDA_PORT_bootstrap__: filled in where a task runs, when it starts\n")
    assert main(["up", "swarm.yaml", "--dry-run"]) == 0
    assert "filled in" not in capsys.readouterr().out


def test_tasks_name_the_pools_of_their_own_group(capsys: pytest.CaptureFixture[str]) -> None:
    def group(name: str) -> dict[str, object]:
        return {"group": name}

    plan = {"name": "d", "groups": [group("prefill"), group("decode")], "pools": [["a"], ["b", "c"]]}
    one = {"argv": ["x"], "env": {}, "files": {}}
    names = ("d.prefill.0.1.u", "d.decode.0.1.u", "runs.script.0.1.u")
    answer = {
        "said": "",
        "notes": [],
        "findings": [],
        "plans": [plan],
        "tasks": [{**one, "token": name} for name in names],
    }
    assert plans.tell(answer, dry_run=True, as_json=True)
    assert [item["pools"] for item in json.loads(capsys.readouterr().out)] == [["a"], ["b", "c"], ["a"]]


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (("gang.yaml", "-r", "2"), "gang: leave it out, or say how many ranks: -s ranks=2"),
        (("train.sh", "-r", "3"),
         "run: leave it out, or start it that many times: remuda run train.sh --array 1-3"),
        (("recipe.yaml", "-r", "2"),
         "deployment: leave it out, or say how many workers of a role once it is up: remuda scale NAME ROLE=2"),
        (("train.sh", "--reverse-proxy"), "run: leave it out"),
    ],
)  # fmt: skip
def test_what_is_for_swarms_only_says_what_to_do(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], more: str
) -> None:
    assert main(["up", *words]) == 2
    assert capsys.readouterr().err.endswith(f"Error: {words[1]} is for swarms, and {words[0]} is a {more}\n")


def test_what_is_wrong_is_told_by_up_as_by_the_command_of_the_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "train.sh", "-s", "gpus=one", "-s", "backend=local"]) == 2
    assert "--set gpus: `gpus` must be a whole number, not one" in capsys.readouterr().err


@pytest.mark.parametrize("file", [name for name in DOCUMENTS if name != "in.jsonl"])
def test_preflight_knows_every_kind(capsys: pytest.CaptureFixture[str], file: str) -> None:
    assert main(["preflight", file, *(("--backend", "local") if file == "train.sh" else ())]) == 0
    assert capsys.readouterr().out.rstrip().endswith(": good")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("in.jsonl",), "in.jsonl:1: the first line does not say what runs the script"),
        (("bench.yaml",), "bench.yaml:2:1: unknown key 'endpont'"),
        (("swarm.yaml", "--unset", "model"), "swarm.yaml: --unset and --cluster are for recipes"),
        (("gone.yaml",), "gone.yaml: there is no such file"),
    ],
)
def test_what_preflight_cannot_look_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "bench.yaml").write_text("kind: benchmark\nendpont: http://127.0.0.1:9/v1\n")
    assert main(["preflight", *words]) == 2
    assert f"error: {sentence}\n" in capsys.readouterr().err


def test_of_a_benchmark_the_document_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench.yaml").write_text("kind: benchmark\nendpoint: http://127.0.0.1:9/v1\n")
    assert main(["preflight", "bench.yaml"]) == 0
    seen = capsys.readouterr()
    assert seen.out == "bench.yaml: good\n"
    told = "the endpoint is not asked: the benchmark asks it when it begins, before the first load"
    assert seen.err == f"note: {told}\n"
    assert main(["config", "check", "bench.yaml"]) == 0


def test_a_wrong_defaults_file_troubles_only_what_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "defaults.yaml").write_text("run: {max_retrys: 3}\n")
    monkeypatch.setenv("REMUDA_DEFAULTS", str(tmp_path / "defaults.yaml"))
    assert main([*COMMANDS["profiler start"], "--dry-run"]) == 0
    assert main([*COMMANDS["run"], "--dry-run"]) == 2
    assert "unknown key 'max_retrys' in the defaults" in capsys.readouterr().err
