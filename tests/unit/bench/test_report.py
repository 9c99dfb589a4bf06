from __future__ import annotations

import itertools
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.base.html import Page
from tests.unit.bench.invented import keep, point

from remuda.base.errors import InputError
from remuda.base.pages.charts import COLOURS, Chart, ChartMark, Line, Scale, beside, draw, shape_of, show, spread, ticks
from remuda.base.text import short
from remuda.bench.cost import Price
from remuda.bench.judging.measures import DEFINITIONS
from remuda.bench.judging.verdict import INVALID, SUSPECT, Check
from remuda.bench.load import Load
from remuda.bench.reporting.graphs import graphs_of
from remuda.bench.reporting.report import MOST, page
from remuda.bench.reporting.series import axis_of, middles, pareto, series_of
from remuda.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.bench.point import Point

NOW = 1.79e9
H100, B200 = Price("H100 SXM", 3.0), Price("B200", 5.5)
BAD = (Check("V3", INVALID, "12 % of the answers are too short"),)


def sweep(
    price: Price | None = H100, gpus: int = 4, counts: tuple[int, ...] = (1, 2, 4, 8, 16, 32), **said: Any
) -> list[Point]:
    """One line of a chart."""
    return [
        point(f"{price}{said}{count}", load=Load(concurrency=count), ttft=0.05 * count, tpot=0.01 * (1 + count / 8),
              rate=400.0 * count / (1 + count / 8), gpus=gpus, price=price, **said)
        for count in counts
    ]  # fmt: skip


def test_a_whole_page() -> None:
    points = [*sweep(H100), *sweep(B200, counts=(1, 8, 64))]
    points.append(point("bad", load=Load(concurrency=512), verdict=INVALID, checks=BAD, gpus=4, price=H100))
    points.append(point("soft", load=Load(concurrency=64), verdict=SUSPECT, gpus=4, price=H100,
                        checks=(Check("V11", SUSPECT, "throughput fell by 7 %"),)))  # fmt: skip
    text = page(points, now=NOW)
    seen = Page(text)
    assert seen.tags.count("h1") == 1
    assert "Benchmark of model" in seen.text
    for title in ("Throughput per GPU against speed for each user", "Time to first token", "Time per output token",
                  "Throughput", "Money for a million output tokens", "All points", "Invalid points"):  # fmt: skip
        assert title in seen.text
    assert "1 invalid point is not drawn" in seen.text
    assert "V3 wrong_length: 12 % of the answers are too short" in seen.text
    assert "1 suspect: why" in seen.text
    assert "hollow: suspect" in seen.text
    assert 'class="mark c0 hollow"' in text
    assert "c=512" in seen.text
    assert all(name in seen.text for name in DEFINITIONS)
    assert seen.tags.count("tr") == len(points) + 1
    assert 'name="viewport"' in text
    assert "prefers-color-scheme:dark" in text


def test_it_loads_nothing() -> None:
    text = page(sweep(), now=NOW)
    seen = Page(text)
    assert [link for link in seen.links if not link.startswith("#")] == []
    assert seen.handlers == []
    assert set(seen.tags) & {"link", "iframe", "img", "object", "embed", "base", "form"} == set()
    assert re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(|sendBeacon", text) is None
    assert re.findall(r'["\'=(]\s*https?://', text) == []


@pytest.mark.parametrize(
    "name",
    [
        "</title><script>alert(1)</script>", '" onload="x', "'><img src=x onerror=y>", "two\nlines\r\n\tand a tab",
        "&amp;<b>", "]]><!--", "m" * 1_000_000, "<" * 1_000_000, "\x1b[31mred\x00", "نموذج\u202e",
    ],
)  # fmt: skip
def test_what_others_wrote_is_only_text(name: str) -> None:
    said: dict[str, Any] = {
        "model": name,
        "endpoint": f"http://{name}",
        "engine": name,
        "source": name,
        "meta": {"who": name, name: "x"},
    }
    bad = point("bad", verdict=INVALID, checks=(Check("V3", INVALID, name),), **said)
    soft = point("soft", verdict=SUSPECT, checks=(Check("V11", SUSPECT, name),), **said)
    points = [*sweep(Price(name, 1.0, "USD", name), **said), *sweep(H100), bad, soft]
    for group in ("", "meta.who"):
        text = page(points, title=name, group=group, now=NOW)
        seen = Page(text)
        assert seen.tags.count("script") == 1
        assert set(seen.tags) & {"img", "b-", "link"} == set()
        assert seen.handlers == []
        assert len(text) < 400_000
        assert "\x1b" not in text
        assert "\x00" not in text
        assert "\u202e" not in text


def test_a_thousand_points_are_quick_and_small() -> None:
    counts = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    points = [
        one for number in range(100)
        for one in sweep(H100, counts=counts, model=f"m{number % 10}", endpoint=f"http://n{number // 10}")
    ]  # fmt: skip
    began = time.process_time()
    text = page(points, now=NOW)
    assert time.process_time() - began < 10
    assert len(points) == 1000
    assert len(text.encode()) < 5_000_000
    Page(text)


def test_the_most_points_are_below_five_megabytes() -> None:
    counts = tuple(range(1, MOST // 30 + 1))
    points = [one for number in range(30) for one in sweep(H100, model=f"model-{number}", counts=counts)]
    assert len(page(points, now=NOW).encode()) < 5_000_000
    with pytest.raises(InputError, match="holds 3,000 points at most, not 3,001"):
        page([*points, point()], now=NOW)


def test_without_gpus_and_prices_nothing_is_said_of_them() -> None:
    seen = Page(page(sweep(None, 0), now=NOW))
    assert "Throughput against speed for each user" in seen.text
    for words in ("Money", "Cheapest", "out tok/s per GPU", "cost of 1M"):
        assert words not in seen.text


def test_gpus_that_only_some_know_are_not_mixed_with_others() -> None:
    graphs = graphs_of([*sweep(H100), *sweep(None, 0)])
    assert not graphs.per_gpu
    assert graphs.first is not None
    assert graphs.first.chart.y == "output tokens a second"


def test_points_that_do_not_count_are_in_no_chart() -> None:
    bad = [point("x", verdict=INVALID, checks=BAD, rate=9e9)]
    graphs = graphs_of([*sweep(), *bad])
    marks = [mark for graph in graphs.others for line in graph.chart.lines for mark in line.marks]
    assert max(mark.y for mark in marks) < 1e6
    seen = Page(page(bad, now=NOW))
    assert "No point counts" in seen.text
    assert "V3" in seen.text


def test_points_without_times_have_the_charts_that_they_can_have() -> None:
    one = point()
    bare = [point("n", load=Load(concurrency=count, stream=False)) for count in (1, 2)]
    for point_ in bare:
        for name in ("ttft", "tpot", "tok_s_user"):
            point_.metrics[name] = {**one.metrics[name], "p50": None, "p99": None}  # type: ignore[index]
    seen = Page(page(bare, now=NOW))
    assert "Time to first token" not in seen.text
    assert "Throughput" in seen.text


# Series


def test_a_series_is_called_by_what_tells_it_apart() -> None:
    assert [one.name for one in series_of(sweep())] == ["model"]
    assert {one.name for one in series_of([*sweep(H100), *sweep(B200)])} == {"4 × H100 SXM", "4 × B200"}
    ends = [*sweep(endpoint="http://a:1/v1"), *sweep(endpoint="https://b:2/")]
    assert {one.name for one in series_of(ends)} == {"a:1", "b:2"}
    shapes = [point("a"), point("b", load=Load(isl=32, osl=8)), point("c", model="x/other")]
    assert {one.name for one in series_of(shapes)} == {"model · 1024/128", "model · 32/8", "other · 1024/128"}


def test_models_of_the_same_last_name_keep_the_first() -> None:
    found = series_of([point("a", model="x/m"), point("b", model="y/m")])
    assert {one.name for one in found} == {"x/m", "y/m"}


def test_a_key_of_meta_makes_series() -> None:
    points = [point("a", meta={"gpu": "H100"}), point("b", meta={"gpu": "B200"}), point("c")]
    assert {one.name for one in series_of(points, "meta.gpu")} == {"H100", "B200", "no gpu"}


@pytest.mark.parametrize(
    ("group", "words"), [("gpu", "not a key to group by"), ("meta.cpu", "no point has 'meta.cpu'")]
)
def test_no_key_of_meta(group: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        series_of([point(meta={"gpu": "H100"})], group)
    assert "meta.gpu" in error.value.hint


def test_axes_of_loads() -> None:
    closed, open_, burst = (point(load=load) for load in (Load(concurrency=4), Load(rate=2.5), Load(rate=float("inf"))))
    assert (axis_of([closed]).label, axis_of([closed]).of(closed)) == ("requests in flight", 4.0)
    assert (axis_of([open_]).label, axis_of([open_]).of(open_)) == ("arrivals a second", 2.5)
    assert axis_of([closed, open_]).label == axis_of([burst]).label == "mean requests in flight, as measured"


def test_nobody_beats_the_frontier() -> None:
    assert pareto([(1, 5), (2, 4), (3, 4.5), (4, 1), (2, 1)]) == [(1, 5), (3, 4.5), (4, 1)]
    assert pareto([]) == []
    assert middles([(2, 1.0), (1, 3.0), (2, 5.0), (2, 2.0)]) == [(1, 3.0), (2, 2.0)]


def test_long_names_are_cut() -> None:
    assert short("a\nb  c") == "a b c"
    assert len(short("x" * 1_000_000)) == 80
    assert short("x" * 80) == "x" * 80


# Charts


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (Scale(0, 10, 0, 1), [0, 2, 4, 6, 8, 10]),
        (Scale(0, 530, 0, 1), [0, 200, 400]),
        (Scale(0.9, 1100, 0, 1, is_log=True), [1, 10, 100, 1000]),
        (Scale(8, 60, 0, 1, is_log=True), [10, 20, 50]),
    ],
)
def test_ticks_are_round(scale: Scale, expected: list[float]) -> None:
    assert ticks(scale, 5) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (12.5, "12.5"), (1200, "1,200"), (35_000, "35k"), (2.5e6, "2.5M"), (0, "0")]
)
def test_numbers_of_axes(value: float, text: str) -> None:
    assert show(value) == text


def test_names_at_the_right_do_not_touch() -> None:
    places = spread([10, 11, 12, 300], 0, 200, 16)
    assert places == sorted(places)
    assert min(after - before for before, after in itertools.pairwise(places)) >= 16
    assert places[-1] <= 200


def test_names_beside_lines_stay_on_the_paper_and_apart() -> None:
    paths = [[(20.0, 20.0 + n), (100.0, 60.0 + n), (290.0, 190.0)] for n in (0, 4, 8)]
    places = beside(["one", "two", "three"], paths, (0, 0, 300, 200), 7.0)
    for left, base in places:
        assert 0 <= left <= 300 - 7 * 3
        assert 10 <= base <= 200
    assert len({round(base / 10) for _, base in places} | {round(left / 30) for left, _ in places}) > 1


def test_series_of_one_colour_have_different_shapes() -> None:
    looks = [(number % COLOURS, shape_of(number)) for number in range(4 * COLOURS)]
    assert len(set(looks)) == len(looks)


@pytest.mark.parametrize("places", [[(1.0, 0.0)], [(0.0, 0.0)], [(1e-9, 1e12), (1e9, 1e-12)]])
def test_strange_numbers_are_drawn(places: list[tuple[float, float]]) -> None:
    line = Line("x", 0, places, [ChartMark(*place) for place in places])
    for is_log in (False, True):
        text = draw(Chart("t", "x", "y", [line], is_log_x=is_log, is_log_y=is_log), 360, 300)
        assert "nan" not in text
        assert "inf" not in text


# The command


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


def test_a_report_is_written(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = sweep()
    keep(points, home)
    assert main(["bench", "report", "-o", "out.html", "--png", "out.png", "--title", "Ours $x$"]) == 0
    assert capsys.readouterr().out.split() == ["out.html", "out.png"]
    assert "<h1>Ours $x$</h1>" in (tmp_path / "out.html").read_text()
    assert (tmp_path / "out.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert main(["bench", "report", points[0].id[:8]]) == 0
    assert "1 points" not in capsys.readouterr().err
    assert Page((tmp_path / "report.html").read_text()).tags.count("tr") == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["zz"], 3, "there is no point 'zz'"),
        (["-o", "nowhere/out.html"], 2, "nowhere/out.html: cannot be written: no such file or directory"),
        (["--group", "gpu"], 2, "--group: 'gpu' is not a key to group by"),
    ],
)
def test_wrong_reports(home: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str) -> None:
    keep(sweep(), home)
    assert main(["bench", "report", *words]) == code
    assert said in capsys.readouterr().err


def test_nothing_to_report(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "report"]) == 3
    assert "there are no points yet" in capsys.readouterr().err


def test_a_picture_needs_matplotlib(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    keep(sweep(), home)
    assert main(["bench", "report", "--png", "out.png"]) == 2
    said = capsys.readouterr().err
    assert "--png: a picture needs matplotlib, which is not installed" in said
    assert "pip install 'remuda[plot]'" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--price", "much"], "price"),
        (["--price", "-1", "--gpus", "1"], "price"),
        (["--price", "2.5"], "has no meaning without the number of GPUs"),
        (["--price", "2.5", "--prices", "p.yaml", "--gpus", "1"], "cannot be given beside `prices`"),
        (["--prices", "none.yaml", "--gpus", "1"], "--prices: none.yaml cannot be read: no such file or directory"),
        (["--prices", "p.yaml", "--gpus", "1", "--gpu-type", "H100"], "--prices: p.yaml has no price of 'H100'"),
        (["--prices", "p.yaml", "--gpus", "1"], "--prices: p.yaml has no price of a GPU without a type"),
    ],
)
def test_wrong_prices(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    (tmp_path / "p.yaml").write_text("[{type: X1, per_gpu_hour: 1}]")
    assert main(["bench", "--endpoint", "http://127.0.0.1:9/v1", *words]) == 2
    assert said in capsys.readouterr().err
