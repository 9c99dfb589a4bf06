"""What goes wrong at an endpoint speaks against the point; what only looks odd does not."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.component.bench.conftest import LOOSE, point_of, words
from tests.conftest import until
from tests.fakes.truth import KEY

from remuda.base.prometheus import parse, total
from remuda.bench.generator.prompts import Prompts
from remuda.bench.load import Cache, Load

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Home
    from tests.fakes.truth import Truth

    Start = Callable[..., Truth]

#: Probes and warm-up are spared.
AFTER = 12


def tokens_of(server: Truth) -> float:
    """What it has made so far."""
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        return total(parse(answer.read().decode()), "vllm:generation_tokens_total")


def why(point: dict[str, Any]) -> list[str]:
    return [f"{one['code']} {one['state']}: {one['text']}" for one in point["checks"] if one["state"] != "ok"]


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param({}, id="undisturbed"),
        pytest.param({"role": 1}, id="the role comes first"),
        pytest.param({"pack": 4, "continuous": 1}, id="four tokens a piece"),
        pytest.param({"pack": 8, "alone": 1, "continuous": 1}, id="pieces of unequal size, which are counted"),
        pytest.param({"hidden": 6, "told": 1}, id="tokens that are told and not sent"),
        pytest.param({"hidden": 6, "continuous": 1}, id="tokens that are counted and not sent"),
        pytest.param({"cache": 1}, id="a prefix cache"),
        pytest.param({"slots": 2}, id="others wait"),
        pytest.param({"hints": 3}, id="hints before the answer"),
    ],
)
def test_what_is_in_order_is_valid(shared_home: Home, truth: Start, flags: dict[str, float]) -> None:
    point = point_of(shared_home, words(truth(**flags).url))
    assert point["verdict"] == "valid", why(point)
    assert point["metrics"]["failed"] == 0
    assert point["client"]["resent"] == 0
    assert point["changed"]


@pytest.mark.parametrize(
    ("flags", "code", "state"),
    [
        pytest.param({"fail": 0.2}, "V2", "invalid", id="500s"),
        pytest.param({"half": 0.2}, "V2", "invalid", id="half answers"),
        pytest.param({"error": 0.2}, "V2", "invalid", id="an error inside a stream"),
        pytest.param({"stall": 0.2}, "V2", "invalid", id="streams without an end"),
        pytest.param({"hints": 20}, "V2", "invalid", id="hints without an answer"),
        pytest.param({"empty": 0.2}, "V1", "invalid", id="no token"),
        pytest.param({"cut": 0.2}, "V3", "invalid", id="fewer tokens"),
        pytest.param({"usage": 0}, "V5", "invalid", id="no usage"),
        pytest.param({"usage": 1.5}, "V5", "invalid", id="usage counts too many"),
        pytest.param({"usage": 0.5}, "V5", "invalid", id="usage counts too few"),
        pytest.param({"tenant": 5000}, "V5", "invalid", id="somebody else"),
        pytest.param({"ended": 0.2}, "V2", "invalid", id="answers that are aborted"),
        pytest.param({"object": 0.2}, "V2", "invalid", id="an object that is an error, inside a stream"),
        pytest.param({"unknown": 1}, "V21", "invalid", id="text in a field that no client knows"),
    ],
)
def test_faults_speak_against_a_point(
    shared_home: Home, truth: Start, flags: dict[str, float], code: str, state: str
) -> None:
    point = point_of(shared_home, words(truth(**{"after": AFTER, **flags}).url))
    assert point["states"][code] == state, why(point)
    assert point["verdict"] == "invalid"


@pytest.mark.parametrize(
    ("flags", "more", "code", "verdict", "says"),
    [
        pytest.param({"usage": 2, "pack": 2}, (), "V3", "invalid", "more tokens than", id="usage doubles"),
        pytest.param({"buffer": 1}, (), "V21", "suspect", "no TPOT", id="a proxy that buffers the stream"),
        pytest.param({"pack": 8, "alone": 1}, (), "V21", "suspect", "pieces hold 4.0 tokens", id="unequal pieces"),
        pytest.param({"pack": 4, "continuous": -1}, (), "V21", "suspect", "pieces hold 4.0 tokens", id="refused"),
        pytest.param({"hidden": 6}, (), "V21", "suspect", "pieces hold 2.0 tokens", id="tokens that are not sent"),
        pytest.param({"close": 3}, (), "V2", "invalid", "sent again", id="requests are dropped on kept connections"),
        pytest.param({"trim": 1, "after": AFTER, "cut": 0.2}, (), "V3", "invalid", "another length", id="a cut probe"),
    ],
)
def test_numbers_that_cannot_be(
    shared_home: Home, truth: Start, flags: dict[str, float], more: tuple[str, ...], code: str, verdict: str, says: str
) -> None:
    point = point_of(shared_home, words(truth(**flags).url, *more))
    assert point["verdict"] == point["states"][code] == verdict, why(point)
    assert says in next(check["text"] for check in point["checks"] if check["code"] == code)


def test_an_engine_that_gets_slower_is_unsteady(shared_home: Home, truth: Start) -> None:
    server = truth(after=AFTER, slower=0.03)
    point = point_of(shared_home, words(server.url, rules=LOOSE, load="-C 4 --requests 120"))
    assert point["states"]["V11"] == "suspect", why(point)
    assert point["verdict"] == "suspect"


def test_more_arrivals_than_an_engine_can_answer_are_no_steady_state(shared_home: Home, truth: Start) -> None:
    server = truth(slots=2, first=20, period=2)  # about 47 requests a second
    load = "--rate 120 --arrival constant --requests 200"
    point = point_of(shared_home, words(server.url, rules=LOOSE, load=load))
    assert point["states"]["V11"] == "invalid", why(point)


def test_a_rate_that_an_engine_can_answer_is_valid(shared_home: Home, truth: Start) -> None:
    server = truth(slots=16)
    point = point_of(shared_home, words(server.url, load="--rate 40 --requests 60"))
    assert point["verdict"] == "valid", why(point)


def test_a_restart_is_seen(shared_home: Home, truth: Start) -> None:
    server = truth(freeze=40)
    process = shared_home.start(*words(server.url, load="-C 4 --requests 60"))
    with process:
        until(lambda: tokens_of(server) > 400, "the load is half way, and stands still")
        server.restart()
        out, err = process.communicate(timeout=120)
    assert process.returncode == 10, err
    (point,) = json.loads(out)
    states = {check["code"]: check["state"] for check in point["checks"]}
    assert states["V13"] == "invalid", why(point)


@pytest.mark.parametrize("cache", [pytest.param(1, id="each answer says so"), pytest.param(2, id="a counter says so")])
def test_prompts_that_a_cache_has_seen_are_not_cold(home: Home, shared_home: Home, truth: Start, cache: int) -> None:
    server = truth(cache=cache)
    assert point_of(shared_home, words(server.url))["verdict"] == "valid"
    again = point_of(shared_home, words(server.url, "--again"))
    assert again["verdict"] == "valid", why(again)
    # Elsewhere nobody knows that it was measured before, so the same prompts are drawn.
    same = point_of(home, words(server.url))
    assert same["states"]["V15"] == "invalid", why(same)


def test_a_load_that_is_judged_by_other_rules_has_other_prompts(shared_home: Home, truth: Start) -> None:
    url = truth(cache=1).url
    assert point_of(shared_home, words(url))["verdict"] == "valid"
    again = point_of(shared_home, words(url, "--slo", "ttft_p50=60s"))
    assert again["verdict"] == "valid", why(again)


def test_points_of_one_command_share_no_prompts(shared_home: Home, truth: Start) -> None:
    done = shared_home.run(*words(truth(cache=1).url, load="-C 2,4 --requests 20 --repeats 2"), check=False)
    points = json.loads(done.stdout)
    assert [point["verdict"] for point in points] == ["valid"] * 4, [why(point) for point in points]


def test_a_common_beginning_is_found_in_the_cache(shared_home: Home, truth: Start) -> None:
    url = truth(cache=1).url
    argv = words(url, "--isl", "328", "--cache", "shared:0.5", load="-C 4 --requests 40 --warmup 8")
    point = point_of(shared_home, argv)
    assert point["verdict"] == "valid", why(point)
    warm = point_of(shared_home, words(url, "--isl", "328", "--cache", "warm", load="-C 4 --requests 40 --warmup 8"))
    assert warm["verdict"] == "valid", why(warm)


def test_times_are_those_of_the_server(shared_home: Home, truth: Start) -> None:
    """The role is no token, and a piece of four tokens is four."""
    server = truth(first=60, period=10, role=1, pack=4, continuous=1)
    point = point_of(shared_home, words(server.url, load="-C 2 --requests 20"))
    assert point["verdict"] == "valid", why(point)
    server.close()
    true = {record.key: record for record in server.records()}
    prompts = Prompts(f"{Load.from_json(point['load']).digest}/0", Cache())
    (folder,) = (shared_home.paths.root / "bench").glob(f"{point['id'][:16]}-*")
    rows = pq.read_table(folder / "requests.parquet").to_pylist()
    assert len(rows) == 20
    for row in rows:
        record = true[prompts.text(row["index"], 56)[:KEY]]
        # The server reads after we send, and never sends before it is time; we read after that.
        assert row["sent"] <= record.read
        assert row["first"] - record.read >= 90_000_000
        assert row["last"] - record.read >= 170_000_000
        assert row["ended"] >= row["last"]
        assert row["n_out"] == 12 == record.tokens
        assert row["n_first"] % 4 == 0
        assert len(row["chunks"]) == 3


@pytest.mark.parametrize(
    ("flags", "tokens"),
    [
        pytest.param({"pack": 8, "alone": 1, "continuous": 1}, 1, id="usage in each piece"),
        pytest.param({"pack": 8, "alone": 1}, 1, id="a share of the text"),
        pytest.param({"hidden": 6, "told": 1}, 7, id="hidden ones are told"),
        pytest.param({"hidden": 6, "continuous": 1}, 7, id="hidden ones are in the usage of the first piece"),
    ],
)
def test_tokens_of_the_first_read(shared_home: Home, truth: Start, flags: dict[str, float], tokens: int) -> None:
    point = point_of(shared_home, words(truth(period=20, **flags).url, load="-C 2 --requests 12"))
    (folder,) = (shared_home.paths.root / "bench").glob(f"{point['id'][:16]}-*")
    firsts = pq.read_table(folder / "requests.parquet", columns=["n_first"])["n_first"].to_pylist()
    assert min(firsts) == tokens, "a busy client finds more in its first read"


def test_whole_answers(shared_home: Home, truth: Start) -> None:
    point = point_of(shared_home, words(truth().url, "--no-stream", "--api", "completions"))
    assert point["verdict"] == "valid", why(point)
    assert point["metrics"]["ttft"]["p50"] is None
