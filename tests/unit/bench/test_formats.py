"""Points to files of other tools and back. Cases of import are files in `tests/cases/bench`."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.bench.generator.reading import RequestRow
from remuda.bench.judging.verdict import NAMES, NOT_ASKED, Check
from remuda.bench.load import Load
from remuda.bench.point import Hardware, Point
from remuda.bench.reporting import foreign, formats

CASES = Path(__file__).parents[2] / "cases" / "bench"
IMPORTED = json.loads((CASES / "imported.json").read_text())
REFUSED = json.loads((CASES / "refused.json").read_text())


def spread(middle: float, count: int = 400) -> dict[str, Any]:
    return {
        "n": count, "mean": middle * 1.01, "std": middle / 7, "min": middle / 2, "max": middle * 3, "p50": middle,
        "p90": middle * 1.3, "p95": middle * 1.5, "p99": middle * 2.2, "ci95": {"p50": [middle, middle]},
    }  # fmt: skip


POINT = Point(
    id="3f9a01c2" * 8, repeat=1, source="remuda", endpoint="http://host:8000", model="tiny", engine="vllm 0.32",
    load=Load(isl=512, osl=64, concurrency=8), verdict="valid", started_at=1_790_000_000.0,
    checks=tuple(Check(code, "ok") for code in NAMES), hardware=Hardware(4, "h200", 1),
    metrics={
        "requests": 450, "measured": 400, "failed": 0, "window_s": 31.7, "input_tokens": 204_800,
        "output_tokens": 25_600, "ttft": spread(0.07), "tpot": spread(0.011), "icl": spread(0.010, 25_000),
        "e2e": spread(0.8), "req_s": 12.61, "output_tok_s": 809.3, "total_tok_s": 7270.1, "goodput_req_s": 11.9,
        "intvty": 1 / 0.011, "in_flight": 7.99,
    },
    meta={"image": "vllm/vllm-openai:v0.32", "framework": "vllm", "note": "ours"},
)  # fmt: skip
KEPT = (
    "measured", "failed", "window_s", "input_tokens", "output_tokens", "req_s", "output_tok_s", "total_tok_s",
    "goodput_req_s", "intvty",
)  # fmt: skip
STATISTICS = ("mean", "std", "p50", "p90", "p95", "p99")


def numbers(point: Point) -> dict[str, float]:
    """All that are known."""
    times = {f"{name}_{one}": point.of(name, one) for name in ("ttft", "tpot", "icl", "e2e") for one in STATISTICS}
    found = {**times, **{name: point.of(name) for name in KEPT}}
    return {name: value for name, value in found.items() if value is not None}


def back(text: str) -> list[Point]:
    return foreign.read(text, "file.json")


def test_a_point_comes_back_from_vllms_format_with_the_same_numbers() -> None:
    (found,) = back(formats.export([(POINT, [])], "vllm", {}))
    assert numbers(found) == pytest.approx(numbers(POINT), rel=1e-12)
    assert (found.model, found.load.label, found.load.isl, found.load.osl) == ("tiny", "c=8", 512, 64)
    assert found.started_at == POINT.started_at
    assert (found.source, found.verdict, found.counts) == ("vllm", "imported", False)


@given(
    rate=st.sampled_from([0.0, 2.5, float("inf")]),
    bound=st.integers(1, 64),
    middle=st.floats(0.001, 5.0),
    count=st.integers(1, 1000),
)
def test_whatever_is_exported_comes_back(rate: float, bound: int, middle: float, count: int) -> None:
    known = {**spread(middle), "p99": None if count < 300 else middle * 2, "p95": None, "p90": None}
    known["p50"] = middle if count >= 10 else None
    metrics = {**POINT.metrics, "measured": count, "ttft": known, "tpot": known, "e2e": known}
    metrics["intvty"] = 1 / middle if count >= 10 else None
    point = replace(POINT, load=replace(POINT.load, concurrency=bound, rate=rate), metrics=metrics)
    found = back(formats.export([(point, []), (POINT, [])], "vllm", {}))
    assert len(found) == 2
    assert numbers(found[0]) == pytest.approx(numbers(point), rel=1e-9)
    # For other tools a closed loop is «all at once, but no more than that».
    assert found[0].load.label == (f"2.5/s c≤{bound}" if rate == 2.5 else f"c={bound}")


def test_vllms_names_are_exact() -> None:
    rows = [RequestRow(0, n_in=500, n_out=64), RequestRow(1, n_in=500, n_out=-1, error="HTTP 500: no words")]
    data = json.loads(formats.export([(POINT, rows)], "vllm", {}))
    times = {f"{word}_{name}_ms" for word in ("mean", "median", "std", "p90", "p95", "p99") for name in formats.METRICS}
    assert set(data) == times | {
        "date", "backend", "model_id", "num_prompts", "failed", "request_rate", "max_concurrency", "completed",
        "duration", "total_input_tokens", "total_output_tokens", "request_throughput", "output_throughput",
        "total_token_throughput", "request_goodput", "input_lens", "output_lens", "errors", "remuda",
    }  # fmt: skip
    assert (data["request_rate"], data["max_concurrency"], data["model_id"]) == ("inf", 8, "tiny")
    assert data["median_ttft_ms"] == pytest.approx(70.0)
    assert (data["input_lens"], data["output_lens"]) == ([500, 500], [64, 0])
    assert data["errors"] == ["", "HTTP 500: no words"]
    assert data["remuda"] == {"point": "3f9a01c2-1", "verdict": "valid", "source": "remuda", "reasons": []}


def test_an_aggregate_of_inferencex_is_in_seconds_and_per_gpu() -> None:
    text = formats.export([(POINT, [])], "inferencex", {"precision": "fp8"})
    data = json.loads(text)
    assert data["hw"] == "h200"
    assert (data["tp"], data["ep"], data["conc"], data["isl"], data["osl"]) == (4, 1, 8, 512, 64)
    assert (data["framework"], data["precision"], data["image"]) == ("vllm", "fp8", "vllm/vllm-openai:v0.32")
    assert (data["disagg"], data["is_multinode"], data["spec_decoding"]) == (False, False, "none")
    assert data["tput_per_gpu"] == pytest.approx(7270.1 / 4)
    assert data["output_tput_per_gpu"] + data["input_tput_per_gpu"] == pytest.approx(data["tput_per_gpu"])
    assert data["median_ttft"] == 0.07
    assert data["p99_intvty"] == pytest.approx(1 / (0.011 * 2.2))
    assert not [name for name in data if name.endswith("_ms")]
    (found,) = back(text)
    assert found.of("output_tok_s") == pytest.approx(809.3)
    again = json.loads(formats.export([(found, [])], "inferencex", {}))
    assert (data.pop("remuda")["verdict"], again.pop("remuda")["verdict"]) == ("valid", "imported")
    assert again == pytest.approx(data)


@pytest.mark.parametrize("kind", ["vllm", "inferencex"])
def test_an_invalid_point_stays_invalid_however_often_it_is_exchanged(kind: str) -> None:
    reason = Check("V6", "invalid", "the client was 9 ms late (p99)", "use another machine")
    checks = tuple(reason if code == "V6" else Check(code, "ok") for code in NAMES)
    point = replace(POINT, verdict="invalid", checks=checks)
    for _ in range(2):
        (point,) = back(formats.export([(point, [])], kind, {} if kind == "vllm" else {"precision": "fp8"}))
        assert (point.verdict, point.reasons) == ("invalid", [reason])


@given(
    said=st.fixed_dictionaries({"verdict": st.just("invalid")}, optional={"reasons": st.none() | st.lists(
        st.none() | st.dictionaries(st.sampled_from(["code", "state", "text", "hint"]),
                                    st.sampled_from(["V6", "V99", "invalid", "ok"]) | st.none() | st.just([])))})
)  # fmt: skip
def test_whatever_reasons_a_file_has_an_invalid_point_stays_invalid(said: dict[str, object]) -> None:
    (found,) = back(json.dumps({**RESULT, "remuda": said}))
    assert found.verdict == "invalid"
    assert Point.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_prefill_and_decode_are_divided_by_their_own_gpus() -> None:
    said = {"precision": "fp8", "num_prefill_gpu": "2", "num_decode_gpu": "6"}
    data = json.loads(formats.export([(POINT, [])], "inferencex", said))
    assert data["disagg"] is True
    assert data["tput_per_gpu"] == pytest.approx(7270.1 / 8)
    assert data["output_tput_per_gpu"] == pytest.approx(809.3 / 6)
    assert data["input_tput_per_gpu"] == pytest.approx((7270.1 - 809.3) / 2)


def test_all_that_an_aggregate_lacks_is_said() -> None:
    bare = replace(POINT, hardware=Hardware(), meta={}, load=replace(POINT.load, rate=2.0))
    with pytest.raises(InputError) as told:
        formats.export([(bare, [])], "inferencex", {})
    name = bare.name
    words = f"the format inferencex needs what is not known: {name} lacks hw, image, framework, precision, tp, conc"
    assert str(told.value) == f"--format: {words}"
    assert "--set" in told.value.hint


def test_an_aggregate_cannot_become_a_result() -> None:
    found = back((CASES / "imported" / "inferencex.json").read_text())
    with pytest.raises(InputError, match=r"lacks completed, duration, .*request_throughput"):
        formats.export([(found[0], [])], "vllm", {})


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ({"tp": "eight"}, "inferencex", "--set: tp must be a positive whole number, not 'eight'"),
        ({"disagg": "maybe"}, "inferencex", "--set: disagg must be true or false, not 'maybe'"),
        ({"colour": "red"}, "inferencex", "--set: there is no 'colour'"),
        ({"tp": "8"}, "csv", "--set: the format csv has nothing to set"),
    ],
)
def test_what_cannot_be_set(said: dict[str, str], kind: str, words: str) -> None:
    with pytest.raises(InputError) as told:
        formats.check_set(said, kind)
    assert str(told.value) == words


def test_no_cell_of_a_table_is_a_formula() -> None:
    named = replace(POINT, model='=HYPERLINK("http://h")', engine="@x", meta={"note": "-1+1", "loss": "+5"})
    (row,) = csv.DictReader(formats.export([(named, [])], "csv", {}).splitlines())
    told = [row[name] for name in ("model", "engine", "meta_note", "meta_loss")]
    assert told == ['\'=HYPERLINK("http://h")', "'@x", "'-1+1", "'+5"]


def test_a_table_has_a_row_for_each_point() -> None:
    (other,) = back((CASES / "imported" / "vllm.json").read_text())
    rows = list(csv.DictReader(formats.export([(POINT, []), (other, [])], "csv", {}).splitlines()))
    assert [row["point"] for row in rows] == [POINT.name, other.name]
    assert [row["verdict"] for row in rows] == ["valid", "imported"]
    assert (rows[0]["ttft_p99"], rows[0]["concurrency"], rows[0]["meta_note"]) == (str(0.07 * 2.2), "8", "ours")
    assert rows[1]["meta_note"] == rows[1]["goodput_req_s"] == ""


@pytest.mark.parametrize("name", IMPORTED)
def test_results_of_other_tools(name: str) -> None:
    found = foreign.read((CASES / "imported" / name).read_text(), name)
    for point, expected in zip(found, IMPORTED[name], strict=True):
        seen = {
            "source": point.source, "verdict": point.verdict, "label": point.load.label, "isl": point.load.isl,
            "osl": point.load.osl, "reasons": [check.code for check in point.reasons],
        }  # fmt: skip
        for key in set(expected) - set(seen):
            metric, _, statistic = key.rpartition("_")
            is_rate = key.endswith("_s")
            seen[key] = point.of(key) if is_rate else point.of(metric, statistic)
        assert seen == expected
        assert [check.code for check in point.checks] == list(NAMES)
        assert {check.state for check in point.checks if check.code not in ("V1", "V2")} == {NOT_ASKED}
        assert Point.from_json(json.loads(json.dumps(point.to_json()))) == point


def test_every_case_is_told() -> None:
    for kind, told in (("imported", IMPORTED), ("refused", REFUSED)):
        assert {path.name for path in (CASES / kind).iterdir()} == set(told)


@pytest.mark.parametrize("name", REFUSED)
def test_files_that_are_none(name: str) -> None:
    with pytest.raises(InputError) as told:
        foreign.read((CASES / "refused" / name).read_text(), name)
    assert str(told.value) == REFUSED[name]
    assert told.value.hint


@given(text=st.one_of(st.text(), st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["completed", "request_throughput", "duration", "hw", "tput_per_gpu", "conc", "output_lens",
                         "total_input_tokens", "total_output_tokens", "output_throughput", "max_concurrency", "errors",
                         "request_rate", "median_ttft_ms", "num_prompts", "model_id", "date", "tp", "isl"]), inner),
).map(json.dumps)))  # fmt: skip
def test_whatever_a_file_holds_it_is_read_or_refused(text: str) -> None:
    try:
        found = foreign.read(text, "file.json")
    except InputError as error:
        told = str(error)
        assert told.startswith("file.json")
        return
    for point in found:
        assert not point.counts
        assert Point.from_json(json.loads(json.dumps(point.to_json()))) == point


RESULT = json.loads((CASES / "imported" / "vllm.json").read_text())
ODD = (
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
)


@given(name=st.sampled_from(sorted({*RESULT, "output_lens", "errors", "failed"})), value=ODD)
def test_a_result_with_one_odd_value_is_read_or_refused(name: str, value: object) -> None:
    try:
        (point,) = foreign.read(json.dumps({**RESULT, name: value}), "file.json")
    except InputError as error:
        told = str(error)
        assert told.startswith("file.json: ")
        return
    assert not point.counts
    assert Point.from_json(json.loads(json.dumps(point.to_json()))) == point


def test_the_same_result_has_the_same_id_however_it_is_laid_out() -> None:
    text = (CASES / "imported" / "vllm.json").read_text()
    (one,), (other,) = back(text), back(json.dumps(json.loads(text), indent=4, sort_keys=True))
    assert one.id == other.id
    (third,) = back(text.replace("42.5", "42.6"))
    assert third.id != one.id
