from __future__ import annotations

import json
import random
import statistics
from typing import TYPE_CHECKING

import pytest
from tests.unit.bench.invented import keep, point

from remuda.base.errors import InputError, NotFound
from remuda.bench.generator.reading import RequestRow
from remuda.bench.judging.compare import (
    BETTER,
    SAME,
    UNKNOWN,
    WORSE,
    Difference,
    compare,
    difference,
    judge,
    read_floor,
)
from remuda.bench.judging.measures import VERSION
from remuda.bench.judging.verdict import INVALID, SUSPECT, Check
from remuda.bench.load import Load
from remuda.cli import main
from remuda.client.bench.points import chosen

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.bench.point import Point


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


def of(metric: str, a: list[Point], b: list[Point]) -> Difference:
    (pair,) = compare(a, b).pairs
    return next(one for one in pair.metrics if one.metric == metric)


@pytest.mark.parametrize(
    ("change", "interval", "more", "word"),
    [
        pytest.param(0.10, (0.06, 0.14), False, WORSE, id="longer"),
        pytest.param(0.10, (0.06, 0.14), True, BETTER, id="more"),
        pytest.param(-0.10, (-0.14, -0.06), False, BETTER, id="shorter"),
        pytest.param(-0.10, (-0.14, -0.06), True, WORSE, id="less"),
        pytest.param(0.10, (-0.01, 0.21), False, UNKNOWN, id="may be nothing"),
        pytest.param(0.02, (0.01, 0.029), False, SAME, id="real, but small"),
        pytest.param(0.02, (0.01, 0.04), False, UNKNOWN, id="real, and perhaps not small"),
        pytest.param(0.0, (-0.02, 0.02), True, SAME, id="surely small"),
        pytest.param(0.0, (-0.05, 0.05), True, UNKNOWN, id="not surely small"),
    ],
)
def test_words(change: float, interval: tuple[float, float], more: bool, word: str) -> None:
    assert judge(change, interval, 0.03, more_is_better=more) == word


def test_three_repeats_speak_for_themselves() -> None:
    a = [point("a", n, ttft=value) for n, value in enumerate((0.100, 0.101, 0.099), 1)]
    b = [point("b", n, ttft=value) for n, value in enumerate((0.120, 0.121, 0.119), 1)]
    found = of("ttft_p50", a, b)
    assert (found.by, found.word) == ("repeats", WORSE)
    assert found.change == pytest.approx(0.2)
    assert found.low is not None
    assert found.high is not None
    assert 0.1 < found.low < 0.2 < found.high < 0.3
    assert of("ttft_p50", b, a).word == BETTER
    assert of("output_tok_s", a, b).word == SAME
    assert compare(a, b).has_regression


def test_repeats_that_scatter_tell_nothing() -> None:
    a = [point("a", n, rate=value) for n, value in enumerate((500.0, 400.0, 600.0), 1)]
    b = [point("b", n, rate=value) for n, value in enumerate((420.0, 520.0, 380.0), 1)]
    found = of("output_tok_s", a, b)
    assert (found.by, found.word) == ("repeats", UNKNOWN)
    assert not compare(a, b).has_regression


def test_the_interval_over_repeats_holds_the_truth_as_often_as_it_says() -> None:
    draw = random.Random(7)
    hits = 0
    for _ in range(400):
        a = [point("a", n, rate=draw.gauss(500, 15)) for n in range(1, 4)]
        b = [point("b", n, rate=draw.gauss(525, 15)) for n in range(1, 4)]
        found = difference("output_tok_s", a, b, 0.03)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 0.05 <= found.high
    assert hits / 400 > 0.93


def test_one_run_each_is_compared_by_its_own_intervals_at_their_far_ends() -> None:
    found = of("ttft_p50", [point("a", ttft=0.1)], [point("b", ttft=0.12)])
    assert (found.by, found.word) == ("blocks", WORSE)
    assert found.low == pytest.approx(0.12 * 0.98 / (0.1 * 1.02) - 1)
    assert found.high == pytest.approx(0.12 * 1.02 / (0.1 * 0.98) - 1)
    assert of("ttft_p50", [point("a", ttft=0.1)], [point("b", ttft=0.103)]).word == UNKNOWN


def test_three_against_two_use_the_intervals_of_all() -> None:
    a = [point("a", n, ttft=0.1 * n) for n in (1, 2, 3)]
    found = of("ttft_p50", a, [point("b", 1, ttft=0.2)])
    assert (found.by, found.word) == ("blocks", UNKNOWN)
    assert found.change == pytest.approx(0.0)
    assert found.low == pytest.approx(0.2 * 0.98 / (0.3 * 1.02) - 1)


def test_without_intervals_a_difference_is_shown_and_not_judged() -> None:
    found = of("ttft_p50", [point("a", ttft=0.1, with_intervals=False)], [point("b", ttft=0.9)])
    assert (found.low, found.by, found.word) == (None, "", UNKNOWN)
    assert found.change == pytest.approx(8.0)
    assert of("output_tok_s", [point("a", rate=0.0)], [point("b")]).word == UNKNOWN


def test_metrics_that_nobody_has_are_left_out() -> None:
    (pair,) = compare([point("a")], [point("b")]).pairs
    assert "goodput_req_s" not in [one.metric for one in pair.metrics]


def test_a_point_that_does_not_count_is_refused() -> None:
    bad = point("b", verdict=INVALID, checks=(Check("V3", INVALID, "12 % are too short"),))
    with pytest.raises(InputError, match=rf"invalid.*{bad.name} \(V3\)") as error:
        compare([point("a")], [bad])
    assert "--allow-invalid" in error.value.hint
    (pair,) = compare([point("a")], [bad], with_invalid=True).pairs
    assert f"B is invalid: {bad.name}" in pair.differ


def test_what_else_differs_is_named() -> None:
    b = point("b", load=Load(concurrency=16), model="other", definitions=9, verdict=SUSPECT)
    (pair,) = compare([point("a")], [b]).pairs
    assert pair.label == "c=8 / c=16"
    assert set(pair.differ) == {
        "model: org/model / other", "concurrency: 8 / 16", f"definitions of metrics, version: {VERSION} / 9",
        f"B is suspect: {b.name}",
    }  # fmt: skip
    (pair,) = compare([point("a")], [point("b")]).pairs
    assert pair.differ == ()


def test_several_loads_are_compared_each_with_its_own() -> None:
    a = [point(f"a{count}", load=Load(concurrency=count)) for count in (1, 8, 64)]
    b = [point(f"b{count}", load=Load(concurrency=count, seed=3)) for count in (8, 64, 128)]
    found = compare(a, b)
    assert sorted(pair.label for pair in found.pairs) == ["c=64", "c=8"]
    assert set(found.alone) == {"A c=1", "B c=128"}
    with pytest.raises(InputError, match="no load in common"):
        compare(a[:2], b[1:])


def test_names_of_points() -> None:
    points = [point("a", 1), point("a", 2), point("b", 1)]
    begin = points[0].id[:6]
    assert chosen(points, [begin]) == points[:2]
    assert chosen(points, [f"{begin}-2"]) == points[1:2]
    assert chosen(points, [f"{begin}-2, {begin}"]) == [points[1], points[0]]
    with pytest.raises(NotFound, match="there is no point 'zz'"):
        chosen(points, ["zz"])
    with pytest.raises(InputError, match="is empty"):
        chosen(points, ["a,"])


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), ("0.05", 0.05), ("0", 0.0), ("0.5%", 0.005)])
def test_floors(text: str, share: float) -> None:
    assert read_floor(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "%", "three", "-1%", "100%", "nan", "3 %%"])
def test_no_floors(text: str) -> None:
    with pytest.raises(InputError, match=r"--floor: .* is not a percentage"):
        read_floor(text)


# What a point is stored with


def test_what_comes_a_second_has_an_interval() -> None:
    from remuda.bench.judging.measures import measure

    draw = random.Random(1)
    rows = []
    for index in range(400):
        begin = index * 50_000_000
        took = int(draw.uniform(0.3, 0.5) * 1e9)
        row = RequestRow(index, sched=begin, sent=begin, first=begin + 100_000_000, n_in=10, n_out=20)
        row.last = row.ended = begin + took
        row.chunks.extend([100_000, took // 1000])
        rows.append(row)
    _, metrics = measure(rows, Load(isl=10, osl=20, rate=20.0), {"e2e": 0.4})
    for name in ("output_tok_s", "req_s", "goodput_req_s"):
        low, high = metrics["ci95"][name]
        assert low < metrics[name] < high, name
    low, high = metrics["ci95"]["output_tok_s"]
    assert high / low < 1.1
    assert statistics.mean([low, high]) == pytest.approx(400, rel=0.05)


def test_a_short_window_has_no_interval() -> None:
    from remuda.bench.judging.measures import Window, rate_intervals

    assert rate_intervals([], Window(0, 4_000), 1_000, {}) == {}


# The command


def test_a_table_and_data(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = point("a", ttft=0.1), point("b", ttft=0.2, engine="vllm 0.33")
    keep([a, b], home)
    assert main(["bench", "compare", a.id[:8], b.name]) == 0
    out = capsys.readouterr().out
    assert "engine: vllm 0.32 / vllm 0.33" in out
    assert "+100.0%" in out
    assert "worse" in out
    assert "within runs only" in out
    assert main(["bench", "compare", a.id[:8], b.name, "--fail-on-regression", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["regression"] is True
    assert data["pairs"][0]["a"] == [a.name]
    assert {"metric", "a", "b", "change", "low", "high", "by", "word"} == set(data["pairs"][0]["metrics"][0])
    assert main(["bench", "compare", b.name, a.name, "--fail-on-regression"]) == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nobody", "x"], 3, "there is no point 'nobody'"),
        (["", "x"], 2, "a name of a point is empty"),
        (["a", "b", "--floor", "much"], 2, "--floor: 'much' is not a percentage"),
        (["a"], 2, "Missing argument 'B'"),
    ],
)
def test_wrong_questions(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    assert main(["bench", "compare", *words]) == code
    assert said in capsys.readouterr().err
