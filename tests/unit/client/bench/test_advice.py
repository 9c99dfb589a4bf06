"""Which config to choose under latency targets, what to measure beside it, and the command that does."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.bench.invented import keep, point

from remuda.bench.judging.verdict import INVALID, SUSPECT
from remuda.bench.load import Load
from remuda.cli import main
from remuda.client.bench.advice import advise
from remuda.plan.identity import CONFIG

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.bench.point import Point

SLO = {"ttft_p99": 0.5}
"""`point` has a p99 of twice its p50."""


def measured(counts: dict[int, float], **said: Any) -> list[Point]:
    """A config by the p50 of its TTFT at some concurrencies; throughput grows with the load."""
    said = {"gpus": 2, "rate_of": 100.0, **said}
    rate = said.pop("rate_of")
    return [point(f"{said}{one}", load=Load(concurrency=one), ttft=ttft, rate=rate * one, **said)
            for one, ttft in counts.items()]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "best", "neighbours"),
    [
        ({1: 0.1, 8: 0.2, 64: 0.9}, 8, (4, 36)),
        ({1: 0.1, 2: 0.2, 3: 0.9}, 2, ()),
        ({8: 0.2}, 8, (16,)),
        ({4: 0.1, 8: 0.2}, 8, (6, 16)),
        ({64: 0.9, 128: 1.0}, None, (32,)),
        ({1: 0.9}, None, ()),
    ],
)
def test_the_largest_throughput_that_keeps_the_target_and_what_lies_beside(
    counts: dict[int, float], best: int | None, neighbours: tuple[int, ...]
) -> None:
    (one,) = advise(measured(counts), SLO, [])
    assert (one.best.load.concurrency if one.best else None, one.neighbours) == (best, neighbours)
    assert bool(one.command) == bool(neighbours)


def test_answers_to_questions_are_no_load() -> None:
    assert advise([replace(point("a"), accuracy={"tasks": ["sums"]})], SLO, []) == []


def test_invalid_points_were_not_measured_and_suspect_ones_are_no_answer() -> None:
    points = measured({1: 0.1, 4: 0.1, 8: 0.1})
    points[1:] = [replace(points[1], verdict=INVALID), replace(points[2], verdict=SUSPECT)]
    (one,) = advise(points, SLO, [])
    assert (one.best, one.neighbours) == (points[0], (4.0,))


def test_configs_are_apart_and_the_best_comes_first() -> None:
    slow, fast = measured({8: 0.1}, config="aa"), measured({8: 0.1}, config="bb", rate_of=300.0)
    other = [replace(one, load=replace(one.load, isl=64), id="c" * 64) for one in slow]
    late = measured({8: 0.9}, config="dd", rate_of=900.0)
    found = advise([*slow, *late, *fast, *other], SLO, [])
    assert [(one.best.config if one.best else "", one.shape.isl) for one in found] == [
        ("bb", 1024), ("aa", 1024), ("aa", 64), ("", 1024),
    ]  # fmt: skip


def test_rates_are_apart_from_concurrencies_and_traces_are_left_out() -> None:
    rates = [replace(one, load=replace(one.load, concurrency=0, rate=float(one.load.concurrency)), id=str(number) * 64)
             for number, one in enumerate(measured({2: 0.1, 8: 0.9}))]  # fmt: skip
    trace = replace(rates[0], load=replace(rates[0].load, arrival="trace:ab"), id="e" * 64)
    (one,) = advise([*rates, trace], SLO, [])
    assert one.neighbours == (4.0,)
    assert one.command.split()[-4:] == ["--rate", "4", "--slo", "ttft_p99=0.5s"]


def view(phase: str, **labels: str) -> dict[str, Any]:
    return {"name": "herd", "phase": phase, "labels": {CONFIG: "aa", **labels}}


@pytest.mark.parametrize(
    ("views", "config", "expected"),
    [
        ([], "", (
            "remuda bench --endpoint http://host:8000 --model org/model --gpus 2 --gpu-type '' --isl 1024 --osl 128"
            " --concurrency 16 --slo ttft_p99=0.5s"
        )),
        ([], "aa", ""),
        ([view("RUNNING", directory="/d")], "aa",
         "remuda bench --name herd --isl 1024 --osl 128 --concurrency 16 --slo ttft_p99=0.5s"),
        ([view("DONE", directory="/d")], "aa", (
            "remuda apply /d/resolved.yaml --sweep --set benchmark.isl=1024 --set benchmark.osl=128"
            " --set benchmark.random_range_ratio=1.0 --set benchmark.search=null --set benchmark.use_chat_template=true"
            " --set 'benchmark.concurrencies=[16]'"
        )),
    ],
)  # fmt: skip
def test_the_command_that_measures_what_is_missing(views: list[Any], config: str, expected: str) -> None:
    assert advise(measured({8: 0.1}, config=config), SLO, views)[0].command == expected


RECIPE = """\
kind: deployment
name: grid
model: {path: ./model, name: m}
engine: mocker
roles: {agg: {args: {max-num-seqs: 8}}}
benchmark: {type: sa-bench, isl: 64, osl: 8, search: {slo: {ttft_p99: 500ms}}}
"""


def test_what_it_says_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command for a config that is down measures the same config, under the load that was missing."""
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    (tmp_path / "r.yaml").write_text(RECIPE)
    assert main(["apply", "r.yaml", "--dry-run", "--write", "d"]) == 0
    capsys.readouterr()
    plain = ["--unset", "benchmark.search", "--set", "benchmark.concurrencies=[16]", "--sweep", "--dry-run", "--json"]
    assert main(["apply", "r.yaml", *plain]) == 0
    asked = json.loads(capsys.readouterr().out)["points"]
    shape = Load(isl=64, osl=8, range_ratio=0.8, concurrency=8)
    (one,) = advise([point(load=shape, config="aa")], SLO, [view("DONE", directory=str(tmp_path / "d"))])
    _, *words = shlex.split(one.command)
    assert main([*words, "--dry-run", "--json"]) == 0
    assert [it["address"] for it in json.loads(capsys.readouterr().out)["points"]] == [it["address"] for it in asked]


def test_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path))
    assert main(["advise", "--slo", "ttft_p99=500ms"]) == 0
    assert capsys.readouterr().out == "no points yet\n"
    keep(measured({1: 0.1, 8: 0.2, 64: 0.9}), tmp_path)
    assert main(["advise", "--slo", "ttft_p99=500ms"]) == 0
    head, row, command = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["TOK/S/GPU", "TTFT", "P99", "POINT"]
    assert row.split()[1:6] == ["1,024/128", "c=8", "400", "400", "ms"]
    assert " --concurrency 4,36 " in command
    assert main(["advise", "--slo", "ttft_p99=500ms", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["neighbours"], told["tok_s_gpu"], told["best"]["load"]["concurrency"]) == ([4, 36], 400, 8)
    assert main(["advise", "--slo", "ttft=1"]) == 2
    assert "--slo: has 'ttft', which is not a percentile" in capsys.readouterr().err
