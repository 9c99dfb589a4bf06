"""`remuda apply --sweep` as it is typed: which points on how many deployments, what is known, what the host is told."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.bench.test_store import point

from remuda.base.disk.paths import state_paths
from remuda.bench.load import Load
from remuda.bench.store import PointStore
from remuda.cli import main
from remuda.client.bench import search
from remuda.client.bench.deployed import foreseen
from remuda.look import planning
from remuda.plan.deployment.bench import TOGETHER, TOLD

if TYPE_CHECKING:
    from pathlib import Path

RECIPE = """\
kind: deployment
name: grid
model: {path: ./model, name: m}
engine: mocker
roles: {agg: {args: {max-num-seqs: '{seqs}'}}}
benchmark: {type: sa-bench, isl: '{isl}', osl: 8, concurrencies: [1, 4]}
sweep: {seqs: [8, 16], isl: [64, 128], max_running: 2}
"""
SEARCH = "benchmark.search={slo: {ttft_p50: 200ms}, max: 16}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    (tmp_path / "grid.yaml").write_text(RECIPE)
    return tmp_path


def points(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["apply", "grid.yaml", "--sweep", "--dry-run", "--json", *words]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["points"]
    return found


def test_points_that_differ_in_the_client_share_a_deployment(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "grid.yaml", "--sweep", "--dry-run"]) == 0
    head, *rows, _, points, missing = capsys.readouterr().out.splitlines()
    assert head.split() == ["PARAMETERS", "LOAD", "DEPLOYMENT", "STATE"]
    assert [row.split()[:3] for row in rows] == [
        [f"seqs={seqs}", f"isl={isl}", f"c={load}"] for seqs in (8, 16) for isl in (64, 128) for load in (1, 4)
    ]
    names = [row.split()[3] for row in rows]
    assert len(set(names[:4])) == len(set(names[4:])) == 1
    assert len(set(names)) == 2
    assert all(name.startswith("grid-") for name in names)
    assert points == "8 points on 2 deployments, at most 2 at once"
    assert missing == "to measure: 8 points on 2 deployments"
    assert not (folder / "home").exists(), "nothing is written"


def test_what_counts_is_known_until_something_of_it_changes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked, kept = points(capsys), PointStore(state_paths().root / "bench")
    assert len({one["address"] for one in asked}) == 8
    for one, verdict in zip(asked, ("valid", "suspect", "invalid"), strict=False):
        kept.write(replace(point(), id=one["address"], verdict=verdict), [])
    assert [one["state"] for one in points(capsys)] == ["known", "known", *["new"] * 6]
    assert [one["state"] for one in points(capsys, "--set", "sweep.repeats=2")][:3] == ["in part", "in part", "new"]
    for same in (["-n", "other"], ["--set", "frontend.port=9999"], ["--set", "home_directory=/elsewhere"]):
        assert [one["address"] for one in points(capsys, *same)] == [one["address"] for one in asked]
    os.utime(folder / "model/config.json", (1, 1))
    assert {one["state"] for one in points(capsys)} == {"new"}, "another model may lie there"


def begun(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code of `apply --sweep`, and what it hands to the host."""
    sent: list[dict[str, Any]] = []

    def post(_host: object, path: str, body: dict[str, Any]) -> dict[str, Any]:
        sent.append(body)
        assert path == "/campaigns"
        return {"name": body["name"], "bound": body["bound"], "rows": []}

    monkeypatch.setattr("remuda.cli.serve.sweeps.connect", lambda: None)
    monkeypatch.setattr("remuda.client.reconnect.post", post)
    code = main(["apply", "grid.yaml", "--sweep", "--no-wait", *words])
    return code, sent[0] if sent else {}


def measured_by(row: dict[str, Any]) -> list[tuple[int, list[int], int]]:
    """Input length, requests in flight and repeats of what the driver of a deployment is told."""
    (bench,) = (group for group in row["workload"]["groups"] if group["name"] == "bench")
    told = json.loads(bench["command"]["files"][TOLD])
    assert {one["name"] for one in told[TOGETHER]} == {one["load"]["name"] for one in told[TOGETHER]} == {told["name"]}
    loads = [one["load"] for one in told[TOGETHER]]
    return [(one["isl"], one["concurrency"], one["repeats"]) for one in loads]


@pytest.mark.usefixtures("folder")
def test_the_host_is_told_a_deployment_for_each_config(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = points(capsys)
    code, body = begun(monkeypatch, "--set", "sweep.repeats=2")
    assert (code, body["name"], body["kind"], body["bound"], body["again"]) == (0, "grid", "sweep", 2, True)
    assert [row["workload"]["name"] for row in body["rows"]] == list(dict.fromkeys(one["deployment"] for one in asked))
    assert [measured_by(row) for row in body["rows"]] == [[(64, [1, 4], 2), (128, [1, 4], 2)]] * 2
    assert [(row["outcome"], row["reason"]) for row in body["rows"]] == [("", "")] * 2
    assert all(row["workload"]["digest"] == row["workload"]["uid"] for row in body["rows"])
    err = capsys.readouterr().err
    assert "to measure: 8 points on 2 deployments, at most 2 at once; follow it: remuda sweep wait grid" in err


@pytest.mark.usefixtures("folder")
def test_known_deployments_are_done_and_a_sweep_that_is_known_as_a_whole_is_recorded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = PointStore(state_paths().root / "bench")
    for one in points(capsys):
        kept.write(replace(point(), id=one["address"], verdict="suspect"), [])
    code, body = begun(monkeypatch)
    shown = capsys.readouterr()
    assert (code, body["name"], [row["outcome"] for row in body["rows"]]) == (0, "grid", ["done", "done"])
    assert sum(len(row["points"]) for row in body["rows"]) == 8
    assert "nothing to measure: all points are known" in shown.err
    assert {row.split()[-1] for row in shown.out.splitlines()[1:]} == {"known"}
    _, first = begun(monkeypatch, "--set", "sweep.seqs=[8, 16, 32]")
    assert [row["outcome"] for row in first["rows"]] == ["done", "done", ""]
    _, more = begun(monkeypatch, "--set", "benchmark.concurrencies=[1, 4, 8]")
    assert [row["outcome"] for row in more["rows"]] == ["", ""]
    assert {row["address"] for row in more["rows"]}.isdisjoint(row["address"] for row in first["rows"])


@pytest.mark.usefixtures("folder")
def test_again_measures_all_once_more_than_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = PointStore(state_paths().root / "bench")
    first, *_, last = points(capsys)
    for address, verdict in ((first["address"], "valid"), (first["address"], "valid"), (last["address"], "invalid")):
        kept.write(replace(point(), id=address, verdict=verdict), [])
    asked = points(capsys, "--again")
    assert [one["repeats"] for one in asked] == [3, 3, 1, 1, 1, 1, 1, 1], "loads of one recipe are repeated alike"
    assert [one["state"] for one in asked] == ["in part", *["new"] * 7]
    code, body = begun(monkeypatch, "--again")
    assert [measured_by(row) for row in body["rows"]] == [
        [(64, [1, 4], 3), (128, [1, 4], 1)], [(64, [1, 4], 1), (128, [1, 4], 1)],
    ]  # fmt: skip
    assert [one["repeats"] for row in body["rows"] for one in row["points"]] == [one["repeats"] for one in asked]
    capsys.readouterr()
    for one in points(capsys):
        kept.write(replace(point(), id=one["address"]), [])
    assert {one["state"] for one in points(capsys)} == {"known"}
    code, body = begun(monkeypatch, "--again")
    assert (code, [row["outcome"] for row in body["rows"]]) == (0, ["", ""])


def test_one_that_would_fail_is_told_to_the_host_with_the_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "grid.yaml").write_text(
        RECIPE.replace("./model", "'./{model}'").replace("{seqs:", "{model: [model, no], seqs:")
    )
    _, body = begun(monkeypatch, "--set", "sweep.seqs=8", "--set", "sweep.isl=64")
    first, second = body["rows"]
    assert first["outcome"] == ""
    assert (second["outcome"], second["reason"]) == ("failed", "grid.yaml:3:9: there is no folder of a model './no'")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--sweep", "--dry-run", "--write", "d"], "--sweep is several deployments: it goes without --write"),
        (["--sweep", "--write", "d"], "--sweep is several deployments: it goes without --write"),
        (["other.yaml"], "apply brings up one deployment, not 2: --sweep has several measured"),
        (["--sweep", "--set", "benchmark.type=manual"], "--set benchmark.type: manual measures no points"),
        (
            ["--sweep", "--dry-run", "--set", "benchmark.type=manual"],
            "  known: sa-bench, sglang-bench, gsm8k, mmlu, gpqa, lm-eval, custom",
        ),
        (
            ["--sweep", "--dry-run", "--set", "sweep.seqs=[]"], "--set sweep.seqs: `sweep.seqs` has no values",
        ),
        (["--dry-run"], "grid.yaml:7:1: unknown key 'sweep'"),
        (["--again"], "--again goes with --sweep: what `apply` measures is always measured"),
        (["--sweep", "--again", "--unset", "benchmark.concurrencies", "--set", SEARCH],
         "--again: a search measures no load twice\n  leave --again out"),
        (["--sweep", "--dry-run", "--set", "sweep.repeats=101"],
         "--set sweep.repeats: `sweep.repeats` must be a whole number from 1 to 100, not 101"),
        (
            ["--sweep", "--set", SEARCH],
            "`concurrencies` cannot be given beside `search`, which chooses the load",
        ),
        (["--sweep", "--unset", "benchmark.concurrencies", "--set", SEARCH, "--set", "sweep.repeats=2"],
         "--set benchmark.search: measures no load twice\n  leave `repeats` of `sweep` out"),
        (["--sweep", "--set", "benchmark.type=gsm8k", "--set", "sweep.repeats=2"],
         "--set benchmark.type: measures no load twice\n  leave `repeats` of `sweep` out"),
        (["--sweep", "--set", "benchmark.type=custom", "--set", "benchmark.command=[a]", "--again"],
         "--again: custom measures no load twice\n  leave --again out"),
        (["--sweep", "--set", "benchmark.search={slo: {ttft: 1}}"],
         "--set benchmark.search: has 'ttft', which is not a percentile"),
        (["--sweep", "--set", "benchmark.search={slo: {ttft_p99: 1}, max: 1.5}"],
         "`max` must be a whole number of requests in flight"),
        (["--sweep", "--set", "benchmark.search={slo: {ttft_p99: 1}, min: 8, max: 4}"],
         "`max` is 4, less than `min`"),
        (["--sweep", "--set", "benchmark.search={slo: {}}"], "`slo` is empty, and a search needs a latency target"),
        (["--sweep", "--set", "benchmark.type=manual", "--set", SEARCH],
         "`search` has no meaning for manual"),
    ],
)  # fmt: skip
def test_what_is_wrong(folder: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", str(folder / "grid.yaml"), *words]) == 2
    assert sentence in capsys.readouterr().err


def test_several_files_and_variants_are_one_sweep(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files differ in the model's name alone; of the variants one measures more."""
    (folder / "b.yaml").write_text(RECIPE.replace("name: m", "name: other"))
    (folder / "v.yaml").write_text(
        "base:\n" + "".join(f"  {line}\n" for line in RECIPE.splitlines()[:-1]).replace("'{seqs}'", "8")
        .replace("'{isl}'", "64") + "override_long:\n  benchmark: {isl: 256}\n"
    )  # fmt: skip
    assert main(["apply", "grid.yaml", "b.yaml", "v.yaml:*", "--sweep", "--dry-run", "--json", "-n", "all"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["points"]), found["deployments"]) == (20, 4)
    words = {one["parameters"] for one in found["points"]}
    assert {"grid.yaml seqs=16 isl=128", "b.yaml seqs=8 isl=64", "v.yaml base", "v.yaml override_long"} <= words
    assert all(one["deployment"].startswith("all-") for one in found["points"])
    same = {one["address"]: one for one in found["points"]}
    assert len(same) == 18, "the first variant is what the grid's first recipe is"


def test_recipes_that_share_a_deployment_are_planned_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned: list[str] = []
    compiled = planning.compiled

    def counting(kind: str, *more: Any) -> Any:
        planned.append(kind)
        return compiled(kind, *more)

    monkeypatch.setattr(planning, "compiled", counting)
    isl = ", ".join(str(64 + one) for one in range(50))
    (folder / "grid.yaml").write_text(RECIPE.replace("[64, 128]", f"[{isl}]"))
    assert len(points(capsys)) == 200
    assert len(planned) == 4, "what is known of two configs, and their plans, as they are new"
    kept = PointStore(state_paths().root / "bench")
    for one in points(capsys)[:100]:
        kept.write(replace(point(), id=one["address"]), [])
    planned.clear()
    assert [one["state"] for one in points(capsys)] == [*["known"] * 100, *["new"] * 100]
    assert len(planned) == 3, "what is known is not planned"


class Host:
    """What is asked of the sweeps that a host has."""

    def __init__(self, sweeps: dict[str, list[dict[str, Any]]]) -> None:
        self.sweeps = sweeps

    def get(self, path: str, **query: Any) -> Any:
        assert query.pop("kind") == "sweep"
        if path == "/campaigns":
            return [{"name": name, "document": "g.yaml", "deployments": 2, "waiting": 1, "going": 0, "done": 1,
                     "failed": 0, "since": 1.0} for name in self.sweeps]  # fmt: skip
        name = path.rpartition("/")[2]
        return {"name": name, "document": "g.yaml", "bound": 1, "points": self.sweeps[name], "rows": []}


@pytest.fixture
def two(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, list[Any]]:
    """Two sweeps that differ in the model's name, `a` measured whole, `b` but for its last load."""
    kept, found = PointStore(state_paths().root / "bench"), {}
    for number, name in enumerate("ab"):
        (folder / "grid.yaml").write_text(RECIPE.replace("name: m", f"name: {name}"))
        asked = found[name] = points(capsys)
        for one, load in list(zip(asked, itertools.cycle((1, 4)), strict=False))[: len(asked) - number]:
            load_ = replace(point().load, concurrency=load, isl=one["params"]["isl"])
            metrics = {**point().metrics, "output_tok_s": 100.0 + one["params"]["seqs"] * (1 + number)}
            kept.write(replace(point(), id=one["address"], load=load_, metrics=metrics), [])
    monkeypatch.setattr("remuda.cli.serve.sweep.connect", lambda: Host(found))
    monkeypatch.setattr("remuda.cli.serve.sweep.looking", lambda **_: Host(found))
    return found


def test_sweeps_are_listed_and_say_how_far_they_are(
    two: dict[str, list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "DEPLOYMENTS", "WAITING", "GOING", "DONE", "FAILED", "CHANGED", "FILE"]
    assert [row.split()[:6] for row in rows] == [[name, "2", "1", "0", "1", "0"] for name in "ab"]
    assert main(["sweep", "list", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["a", "b"]
    assert main(["sweep", "status", "b", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["state"] for one in told["points"]] == [*["known"] * 7, "new"]
    assert all({"params", "points", "deployment", "address"} <= one.keys() for one in told["points"])
    assert main(["sweep", "status", "b"]) == 0
    assert capsys.readouterr().err == "7 of 8 points known\n"


@pytest.mark.usefixtures("two")
def test_points_of_a_sweep_are_reported_with_a_line_for_each_recipe(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "report", "a", "-o", "a.html"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("a.html\n", "8 points, 8 drawn\n")
    page = (folder / "a.html").read_text()
    assert "Sweep a" in page
    assert all(f"seqs={seqs} isl={isl}" in page for seqs in (8, 16) for isl in (64, 128))


@pytest.mark.usefixtures("two")
def test_sweeps_are_compared_where_parameters_and_load_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "compare", "a", "b", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["load"] for one in found["pairs"]] == [
        f"seqs={seqs} isl={isl} c={load}" for seqs in (8, 16) for isl in (64, 128) for load in (1, 4)
    ][:-1]
    assert found["alone"] == ["A seqs=16 isl=128 c=4"]
    change = {one["load"]: metric["change"] for one in found["pairs"] for metric in one["metrics"]
              if metric["metric"] == "output_tok_s"}  # fmt: skip
    assert change["seqs=8 isl=64 c=1"] == pytest.approx(116 / 108 - 1)
    assert change["seqs=16 isl=64 c=4"] == pytest.approx(132 / 116 - 1)
    assert main(["sweep", "compare", "a", "b"]) == 0
    assert "A: 1 repeat of seqs=8 isl=64 c=1 (" in capsys.readouterr().out


def test_a_sweep_of_which_nothing_is_measured_has_no_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("remuda.cli.serve.sweep.connect", lambda: Host({"a": points(capsys)}))
    assert main(["sweep", "report", "a"]) == 3
    assert "nothing of sweep 'a' is measured yet\n  see how far it is: remuda sweep status a" in capsys.readouterr().err
    assert not (folder / "report.html").exists()


def test_a_search_is_known_once_stored_points_answer_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "grid.yaml").write_text(RECIPE.replace(", concurrencies: [1, 4]", "").replace(", isl: [64, 128]", "")
                                      .replace("'{isl}'", "64"))  # fmt: skip
    one, _ = points(capsys, "--set", SEARCH)
    assert (one["load"], one["state"], one["found"]) == ("largest up to c=16", "new", "")
    hunt = search.hunt_of(one["search"][0], foreseen(*one["search"]))
    assert hunt.at(4) == Load(isl=64, osl=8, range_ratio=0.8, concurrency=4)
    kept = PointStore(state_paths().root / "bench")
    slo = {"ttft_p50": 0.2}
    for count, ttft in ((1, 0.1), (2, 0.1), (8, 0.4), (6, 0.3), (4, 0.1), (5, 0.15)):
        load = hunt.at(count)
        metrics = {"ttft": {"p50": ttft}, "output_tok_s": 1.0}
        kept.write(replace(point(), id=hunt.session.address(load), load=load, slo=slo, metrics=metrics), [])
        now = points(capsys, "--set", SEARCH)
        assert [it["state"] for it in now] == ["known" if count == 5 else "in part", "new"]
    assert now[0]["found"] == "c=5 is the largest load that meets ttft p50 ≤ 200 ms; c=6 misses it"
    assert len(now[0]["points"]) == 6
    assert main(["apply", "grid.yaml", "--sweep", "--dry-run", "--set", SEARCH]) == 0
    assert f"seqs=8: {now[0]['found']}" in capsys.readouterr().out
    for other in ("{slo: {ttft_p50: 100ms}, max: 16}", "{slo: {ttft_p50: 200ms}, max: 16, maximise: rate}"):
        assert points(capsys, "--set", f"benchmark.search={other}")[0]["state"] == "new"
    monkeypatch.setattr("remuda.cli.serve.sweep.connect", lambda: Host({"g": points(capsys, "--set", SEARCH)}))
    assert main(["sweep", "report", "g"]) == 0
    assert capsys.readouterr().err == "6 points, 6 drawn\n"


def test_a_command_is_known_by_where_it_runs_and_by_its_script(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = folder / "ask.sh"
    script.write_text("#!/bin/sh\n")
    said = ("benchmark.type=custom", "benchmark.command=[./ask.sh, --to, out]", "sweep.seqs=8")
    words = [word for one in said for word in ("--set", one)]

    def address() -> str:
        return str(points(capsys, *words)[0]["address"])

    first = address()
    (folder / "out").write_text("what it wrote")
    assert address() == first
    script.write_text("#!/bin/sh\necho other\n")
    second = address()
    (folder / "elsewhere").mkdir()
    for name in ("grid.yaml", "model", "ask.sh"):
        (folder / "elsewhere" / name).symlink_to(folder / name)
    monkeypatch.chdir(folder / "elsewhere")
    assert len({first, second, address()}) == 3


@pytest.mark.usefixtures("folder")
def test_questions_to_one_deployment_have_one_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.cli.serve.sweeps.connect", lambda: None)
    words = ["benchmark.type=lm-eval", "benchmark.tasks=[sums]", "sweep.seqs=8", "benchmark.env={HF_HOME: '/{isl}'}"]
    said = [word for one in words for word in ("--set", one)]
    assert main(["apply", "grid.yaml", "--sweep", "--no-wait", *said]) == 2
    assert "benchmark.env: HF_HOME is not the same for all questions to a deployment" in capsys.readouterr().err
