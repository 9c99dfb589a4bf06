"""`remuda bench search` against a server that lets only so many streams run at once."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.fakes.engine import Behaviour, Engine

from remuda.cli import main
from remuda.client.bench import benchmarks, deployed, sweeps
from remuda.plan.deployment.bench import TOGETHER, TOLD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLACES = 5
LATE_S = 0.4
BOUND = "ttft_p50=200ms"
#: Points of half a second, and nothing that depends on how busy this machine is.
LOOSE = (
    "V12.window=0.5s", "V12.requests=12", "V12.e2e=0", "V6.lag=10s", "V7.cpu=100", "V7.throttled=1000",
    "V7.waiting=100", "V9.share=0", "V10.share=100", "V11.slope=100", "V11.first=100", "V16.times=1000",
)  # fmt: skip


class Crowded(Engine):
    """Only so many streams run at once; one more has to wait, and is in the way of others while it does."""

    async def _serve(self, *args: Any) -> None:
        if self.running >= PLACES:
            self.running += 1
            await asyncio.sleep(LATE_S)
            self.running -= 1
        await super()._serve(*args)


@pytest.fixture
def endpoint() -> Iterator[str]:
    loop = asyncio.new_event_loop()
    engine = Crowded("tiny", Behaviour(token_s=0.005))
    server = loop.run_until_complete(asyncio.start_server(engine.converse, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> list[str]:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    loosened = [word for rule in LOOSE for word in ("--validity", rule)]
    load = ["--isl", "40", "--osl", "8", "--warmup", "2", "--slo", BOUND]
    return ["bench", "search", "--endpoint", endpoint, *load, *loosened, "--allow-changed-rules"]


def test_the_number_of_places_is_found_and_what_was_measured_is_used_again(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words += ["--maximise", "concurrency", "--min", "2", "--max", "16", "--allow-suspect"]
    assert main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    first = json.loads(out)
    assert "each point takes at least 0.5 s, at most 5 min; about 5 points" in err
    assert (first["end"], first["met"], first["missed"]) == ("found", PLACES, PLACES + 1)
    # On a busy machine one is measured twice.
    last = {point["load"]["concurrency"]: point["verdict"] for point in first["points"]}
    assert list(last) == [2, 4, 8, 6, 5]
    assert set(last.values()) <= {"valid", "suspect"}
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err.count("stored result") >= len(last)
    assert out.startswith(
        f"c={first['met']} is the largest load that meets ttft p50 ≤ 200 ms; c={first['missed']} misses"
    )
    assert f"{first['point']}: ttft p50 " in out


def test_an_slo_that_needs_more_requests_gets_them_once(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    few = [*words, "--maximise", "concurrency", "--max", "2", "--requests", "5", "--allow-suspect", "--json"]
    assert main(few) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["end"] == "all met"
    assert [point["load"]["requests"] for point in found["points"]] == [5, 26, 5, 28]


def test_a_deployment_measures_until_the_number_of_places_is_found(
    words: list[str], endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its driver, beside other loads of the sweep; killed and begun again it asks what is missing only."""
    (tmp_path / "endpoint.json").write_text(json.dumps({"url": endpoint, "router": endpoint}))
    loose = dict(rule.split("=") for rule in LOOSE)
    load = {"kind": "benchmark", "model": "tiny", "isl": 40, "osl": 8, "validity": loose}
    common = {"name": "herd", "backend": "slurm", "run_dir": str(tmp_path), "type": "sa-bench", "config": "c0ffee"}
    plain = {**common, "load": {**load, "concurrency": [1]}, "requests_each": 20, "warmup_each": 2}
    search = {"slo": {"ttft_p50": 0.2}, "maximise": "concurrency", "min": 2.0, "max": 16.0}
    hunt = {**common, "load": {**load, "slo": search["slo"]}, "requests_each": 0, "warmup_each": -1, "search": search}
    (tmp_path / TOLD).write_text(json.dumps({**plain, TOGETHER: [plain, hunt]}))
    for _ in range(3):  # on a busy machine a point is invalid, and the search without an answer
        if (code := deployed.drive(tmp_path)) == 0:
            break
    kept = benchmarks.by_address(benchmarks.store())
    found, result = sweeps.measured({"search": [hunt, 0]}, kept)
    sentence = f"c={PLACES} is the largest load that meets ttft p50 ≤ 200 ms; c={PLACES + 1} misses it"
    assert (code, result) == (0, sentence)
    assert {point.load.concurrency for point in found} == {2, 4, 8, 6, 5}
    verdict = json.loads((tmp_path / "bench/verdict.json").read_text())
    assert len(verdict["points"]) >= 6
    assert sentence in capsys.readouterr().err
    before = sorted(kept)
    shutil.rmtree(tmp_path / "home/bench" / f"{found[-1].id[:16]}-{found[-1].repeat}")
    assert sweeps.measured({"search": [hunt, 0]}, benchmarks.by_address(benchmarks.store()))[1] == ""
    assert deployed.drive(tmp_path) in (0, 10)
    assert sorted(benchmarks.by_address(benchmarks.store())) == before
