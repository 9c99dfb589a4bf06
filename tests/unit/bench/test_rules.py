"""What each rule says: a load that went well, with one thing changed."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.bench.samples import LOAD, MS, OPEN, TOKENS, arriving, changed, closed, evidence, row_of, states

from remuda.bench.counters import Counters
from remuda.bench.generator.load_workers import Punctuality
from remuda.bench.judging.rules import judge
from remuda.bench.judging.verdict import NAMES, THRESHOLDS, verdict_of
from remuda.bench.load import Cache

if TYPE_CHECKING:
    from remuda.bench.generator.reading import RequestRow


def test_all_is_well() -> None:
    found = judge(evidence(closed()))
    assert [check.code for check in found] == list(NAMES)
    assert {check.code for check in found if check.state != "ok"} == {"V8", "V20"}
    assert verdict_of(found) == "valid"


def test_all_is_well_in_an_open_loop() -> None:
    found = judge(evidence(arriving(), OPEN))
    assert {check.code for check in found if check.state != "ok"} == {"V9", "V20"}
    assert verdict_of(found) == "valid"


@pytest.mark.parametrize(
    ("code", "state", "share", "fields"),
    [
        pytest.param("V1", "invalid", 0.005, {"n_out": 0}, id="a few without a token"),
        pytest.param("V2", "suspect", 0.005, {"error": "HTTP 500: no"}, id="a few failed"),
        pytest.param("V2", "invalid", 0.02, {"error": "HTTP 500: no"}, id="many failed"),
        pytest.param("V3", "ok", 0.005, {"n_out": TOKENS - 1}, id="a few are shorter"),
        pytest.param("V3", "invalid", 0.02, {"n_out": TOKENS - 1}, id="many are shorter"),
        pytest.param("V3", "invalid", 0.005, {"n_out": 5 * TOKENS * 5}, id="a few are much longer"),
        pytest.param("V3", "invalid", 0.02, {"n_out": TOKENS + 1}, id="many are longer"),
        pytest.param("V21", "invalid", 0.02, {"chunks": array("q"), "first": 0}, id="tokens without a piece"),
        pytest.param("V21", "ok", 0.005, {"chunks": array("q"), "first": 0}, id="a few ended at once"),
        pytest.param("V21", "suspect", 0.2, {"chunks": array("q", [9] * TOKENS)}, id="all in one read"),
        pytest.param("V21", "suspect", 0.2, {"is_sure": False}, id="pieces of unknown size"),
        pytest.param("V4", "suspect", 0.5, {"n_in": 120}, id="longer inputs"),
        pytest.param("V4", "not asked", 1.0, {"n_in": -1}, id="nobody says how long"),
        pytest.param("V5", "invalid", 0.005, {"n_out": -1}, id="a few without usage"),
        pytest.param("V15", "invalid", 0.1, {"cached": 90}, id="the cache knew some"),
        pytest.param("V15", "ok", 0.01, {"cached": 90}, id="the cache knew a few"),
        pytest.param("V15", "not asked", 0.1, {"cached": -1}, id="nobody says what the cache knew"),
        pytest.param("V17", "invalid", 0.005, {"first": 1}, id="a time goes backwards"),
    ],
)
def test_rows(code: str, state: str, share: float, fields: dict[str, Any]) -> None:
    seen = states(evidence(changed(closed(), share, **fields)))
    assert seen[code] == state


@pytest.mark.parametrize(
    ("code", "state", "changes"),
    [
        pytest.param("V2", "invalid", {"is_cut": True}, id="cut short"),
        pytest.param("V21", "not asked", {"load": replace(LOAD, stream=False)}, id="not streamed"),
        pytest.param("V3", "not asked", {"forced": False}, id="lengths are not forced"),
        pytest.param("V5", "invalid", {"probed_out": 1000}, id="answers were lost"),
        pytest.param("V5", "not asked", {"counters": (None, None)}, id="no counters"),
        pytest.param("V6", "invalid", {"client": Punctuality(lag_p99_s=0.003)}, id="late"),
        pytest.param("V6", "ok", {"client": Punctuality(lag_p99_s=0.0015)}, id="not too late"),
        pytest.param("V6", "suspect", {"client": Punctuality(lag_p99_s=0.0022)}, id="late by 4 % of TTFT"),
        pytest.param("V6", "invalid", {"client": Punctuality(lag_max_s=0.4)}, id="one long stop"),
        pytest.param("V6", "ok", {"client": Punctuality(lag_max_s=0.2)}, id="one short stop"),
        pytest.param(
            "V6", "invalid", {"client": Punctuality(lag_p99_s=0.0022, lag_max_s=0.4)}, id="late by 4 %, one long stop"
        ),
        pytest.param(
            "V6", "ok", {"client": Punctuality(lag_max_s=5.0), "thresholds": {**THRESHOLDS, "V6.lag": 10.0}},
            id="what is allowed of most is allowed of one",
        ),
        pytest.param("V2", "suspect", {"client": Punctuality(resent=1)}, id="one was sent again"),
        pytest.param("V2", "ok", {"client": Punctuality(resent=900, opened=1100)}, id="no connection is kept"),
        pytest.param("V2", "invalid", {"client": Punctuality(resent=24)}, id="2 % were sent again"),
        pytest.param("V7", "invalid", {"client": Punctuality(cpu_share=0.9)}, id="busy"),
        pytest.param("V7", "invalid", {"client": Punctuality(throttled_s=0.1)}, id="held back"),
        pytest.param("V7", "suspect", {"client": Punctuality(waiting_share=0.3)}, id="others wait"),
        pytest.param("V9", "suspect", {"metrics": {"in_flight": 3.0}}, id="not saturated"),
        pytest.param("V10", "invalid", {"metrics": {"in_flight": 3.0}}, id="contradiction"),
        pytest.param("V13", "invalid", {"identity": ("v1", "v2")}, id="another version"),
        pytest.param("V13", "invalid", {"identity": ("v1", "nobody"), "counters": (None, None)}, id="gone"),
        pytest.param(
            "V13", "invalid", {"counters": (Counters("e", 1, instances=("a",)), Counters("e", 9, instances=("b",)))},
            id="restarted",
        ),
        pytest.param("V13", "invalid", {"counters": (Counters("e", 9), Counters("e", 1))}, id="a counter fell"),
        pytest.param(
            "V13", "suspect", {"counters": (Counters("e", 1), Counters("e", 9, preempted=2))}, id="put back"
        ),
        pytest.param("V14", "invalid", {"workers": (2, 1, 2)}, id="one is missing at the start"),
        pytest.param("V14", "invalid", {"workers": (2, 2, 1)}, id="one is missing at the end"),
        pytest.param("V14", "not asked", {"workers": None}, id="nobody says"),
        pytest.param("V15", "invalid", {"cache": Cache("shared", 0.3)}, id="nothing shared"),
        pytest.param("V15", "invalid", {"cache": Cache("warm", 1.0)}, id="not warm"),
        pytest.param("V15", "not asked", {"template": -1}, id="no template known"),
        pytest.param("V16", "suspect", {"warm": []}, id="no warm-up"),
        pytest.param("V18", "invalid", {"served": (("m",), ("n",))}, id="another model at the end"),
        pytest.param("V18", "suspect", {"served": (("m", "n"), ("m", "n"))}, id="two models"),
        pytest.param("V18", "suspect", {"retries": 1}, id="a router tried twice"),
        pytest.param("V18", "not asked", {"served": (None, None)}, id="no list"),
    ],
)  # fmt: skip
def test_what_is_beside_the_rows(code: str, state: str, changes: dict[str, Any]) -> None:
    assert states(evidence(closed(), **changes))[code] == state


@pytest.mark.parametrize(
    ("text", "state"),
    [("no " * 20, "suspect"), (" \n", "suspect"), ("\ufffd" * 9, "suspect"), ("no no no", "ok")],
)
def test_rubbish(text: str, state: str) -> None:
    rows = closed()
    rows[0], rows[9] = replace(rows[0], text=""), replace(rows[9], text=text)
    assert states(evidence(rows))["V19"] == state


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        pytest.param([row_of(n, n * 50 * MS, first=50 + n / 20) for n in range(800)], "suspect", id="slower"),
        pytest.param([row_of(n, n * 50 * MS, first=50 + n * 5) for n in range(800)], "invalid", id="piling up"),
        pytest.param([row_of(n, n * 50 * MS, first=90 - n / 20) for n in range(800)], "suspect", id="faster"),
        pytest.param([row_of(n, n * 50 * MS, first=50 + n % 7) for n in range(800)], "ok", id="steady"),
        pytest.param([row_of(n, n * 50 * MS, first=50) for n in range(40)], "not asked", id="too few"),
        pytest.param(
            [row_of(n, n * 50 * MS, first=90 if 20 < n < 180 else 50) for n in range(800)],
            "suspect",
            id="slow at first",
        ),
    ],
)
def test_unsteady(rows: list[RequestRow], state: str) -> None:
    assert states(evidence(rows, OPEN))["V11"] == state


@pytest.mark.parametrize(
    ("late", "state"), [pytest.param(1.0, "ok", id="a little"), pytest.param(9.0, "invalid", id="too late")]
)
def test_arrivals(late: float, state: str) -> None:
    rows = [row_of(n, 1000 * MS + n * 50 * MS, late=late) for n in range(800)]
    assert states(evidence(rows, OPEN))["V8"] == state


@pytest.mark.parametrize(
    ("first", "lag", "state", "says"),
    [
        pytest.param(400, 0.0055, "ok", "", id="1.4 % of TTFT"),
        pytest.param(200, 0.0055, "suspect", "TTFT may be off by 2.7 %", id="2.7 % of TTFT"),
        pytest.param(100, 0.0055, "invalid", "TTFT may be off by 5.5 %", id="5.5 % of TTFT"),
    ],
)
def test_how_late_a_client_may_be(first: float, lag: float, state: str, says: str) -> None:
    rows = [row_of(n, n * 50 * MS, first=first, n_out=400) for n in range(200)]
    check = {one.code: one for one in judge(evidence(rows, OPEN, client=Punctuality(lag_p99_s=lag)))}["V6"]
    assert check.state == state
    assert says in check.text


def test_the_time_between_tokens_is_asked_as_a_whole() -> None:
    """Lateness is in the first and the last piece only, not in each gap."""
    rows = [row_of(n, n * 50 * MS, first=1000) for n in range(800)]  # 75 ms for 15 tokens of 5 ms
    found = {lag: judge(evidence(rows, OPEN, client=Punctuality(lag_p99_s=lag))) for lag in (0.0021, 0.0036, 0.0039)}
    texts = {lag: (checks[5].state, checks[5].text) for lag, checks in found.items()}
    assert texts[0.0036] == ("suspect", "the client was 3.6 ms late (p99): TPOT may be off by 4.8 %")
    assert [state for state, _ in texts.values()] == ["suspect", "suspect", "invalid"]


def test_few_or_short_is_suspect() -> None:
    assert states(evidence(closed(200)))["V12"] == "suspect"
    assert states(evidence(closed(400)))["V12"] == "suspect"
    assert states(evidence(closed(1200)))["V12"] == "ok"


def test_the_first_requests_took_long() -> None:
    rows = closed()
    slow = [row_of(n, row.sched, first=900) for n, row in enumerate(rows[:4])]
    assert states(evidence([*slow, *rows[4:]]))["V16"] == "invalid"


COUNTED = 1200 * 100


@pytest.mark.parametrize(
    ("cached", "hits", "cache", "state"),
    [
        pytest.param(-1, 0, Cache(), "ok", id="nothing"),
        pytest.param(-1, 8 * 1200, Cache(), "ok", id="the template"),
        pytest.param(-1, COUNTED / 10, Cache(), "ok", id="no more than the template has"),
        pytest.param(-1, COUNTED / 2, Cache(), "invalid", id="half"),
        pytest.param(0, COUNTED / 2, Cache(), "invalid", id="half, and answers say 0"),
        pytest.param(-1, COUNTED * 0.95, Cache("warm", 1.0), "ok", id="warm"),
        pytest.param(-1, COUNTED / 2, Cache("warm", 1.0), "invalid", id="half warm"),
        pytest.param(-1, COUNTED * 0.35, Cache("shared", 0.3), "ok", id="shared"),
        pytest.param(-1, -1, Cache(), "not asked", id="not counted"),
    ],
)
def test_hits_that_an_engine_counts(cached: int, hits: float, cache: Cache, state: str) -> None:
    counters = (Counters("e", 0, hits=min(hits, 0)), Counters("e", 9, hits=hits))
    seen = evidence(changed(closed(), 1.0, cached=cached), counters=counters, cache=cache, base=10.0)
    assert states(seen)["V15"] == state


def test_nothing_was_answered() -> None:
    rows = [replace(row, error="HTTP 500: no", n_out=-1, first=0, last=0) for row in closed(20)]
    seen = states(evidence(rows))
    assert (seen["V1"], seen["V2"]) == ("invalid", "invalid")
    assert set(states(evidence([], LOAD, metrics={"in_flight": 0.0}))) == set(NAMES)
