"""`remuda bench` as it is typed, against a real server process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.conftest import until

from remuda.bench.load import Load, arrivals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.conftest import Home

#: What a machine under test cannot promise: that nothing else runs on it, and that there is time for a p99.
LOOSE = [
    flag
    for rule in (
        "V6.lag=60s", "V7.cpu=10", "V7.waiting=1", "V7.throttled=1h", "V8.lag=60s", "V8.rate=0", "V9.share=0",
        "V10.share=10", "V11.slope=100", "V11.first=100", "V12.window=0", "V12.e2e=0", "V12.requests=5",
        "V16.times=1000", "V21.share=1",
    )
    for flag in ("--validity", rule)
]  # fmt: skip
SMALL = ["--isl", "40", "--osl", "8", "--requests", "24", *LOOSE, "--allow-changed-rules"]


@contextmanager
def serving(*flags: str, env: dict[str, str] | None = None) -> Iterator[str]:
    """A server process with those flags; its URL."""
    words = [sys.executable, "-m", "tests.fakes.engine", "--port", "0", "--token-s", "0.002", *flags]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}) as process:
        assert process.stdout is not None
        port = process.stdout.readline().split()[-1].rpartition(":")[2].strip("/")
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture
def engine() -> Iterator[str]:
    with serving() as url:
        yield url


def bench(home: Home, *words: str, code: int | Sequence[int] = 0) -> subprocess.CompletedProcess[str]:
    done = home.run("bench", *words, check=False)
    codes = [code] if isinstance(code, int) else code
    assert done.returncode in codes, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def points(home: Home, *words: str, code: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bench(home, *words, "--json", code=code).stdout)
    return found


def states(point: dict[str, Any]) -> dict[str, str]:
    return {check["code"]: check["state"] for check in point["checks"]}


def test_points_are_measured_kept_and_shown(home: Home, engine: str) -> None:
    done = bench(home, "--endpoint", f"{engine}/v1", "-C", "1,3", *SMALL)
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["POINT", "LOAD", "REQUESTS"]
    assert "c=1" in lines[1]
    assert "c=3" in lines[2]
    assert lines[1].endswith("valid under changed rules")
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["c=1", "c=3"]

    kept = points(home, "list")
    assert [point["load"]["concurrency"] for point in kept] == [1, 3]
    for point in kept:
        metrics = point["metrics"]
        assert metrics["failed"] == 0
        assert metrics["ttft"]["p50"] >= 0.001
        assert metrics["tpot"]["p50"] >= 0.001
        assert metrics["ttft"]["p99"] is None, "24 requests have no p99"
        wanted = {"V1": "ok", "V2": "ok", "V3": "ok", "V4": "ok", "V5": "ok", "V14": "not asked", "V20": "not asked"}
        assert {code: states(point)[code] for code in wanted} == wanted
    shown = bench(home, "show", kept[0]["name"]).stdout
    assert "count_disagrees" in shown
    assert "ttft" in shown

    again = bench(home, "--endpoint", engine, "-C", "1,3", *SMALL)
    assert again.stderr.count("stored result") == 2
    assert len(points(home, "list")) == 2
    assert points(home, "--endpoint", engine, "-C", "1", *SMALL, "--again")[0]["repeat"] == 2


def test_changed_rules_are_said_and_count_as_suspect(home: Home, engine: str) -> None:
    words = [word for word in SMALL if word != "--allow-changed-rules"]
    done = bench(home, "--endpoint", engine, *words, code=11)
    assert "is valid under changed rules: V6.lag=60, " in done.stdout


def rows_of(home: Home, point: dict[str, Any]) -> list[dict[str, Any]]:
    """Its requests, in the order in which they were due."""
    (folder,) = (home.paths.root / "bench").glob(f"{point['id'][:16]}-*")
    return sorted(pq.read_table(folder / "requests.parquet").to_pylist(), key=lambda row: row["index"])


def since_first(rows: Sequence[dict[str, Any]]) -> list[float]:
    """When each was due, ms after the first."""
    return [round((row["sched"] - rows[0]["sched"]) / 1e6) for row in rows]


def short(point: dict[str, Any]) -> dict[str, Any]:
    """A point of half a second: where answers take as long, none is left to be measured, and that alone is said."""
    assert {code for code, state in states(point).items() if state not in ("ok", "not asked")} <= {"V12"}
    return point


def test_an_open_loop_keeps_its_schedule(home: Home, engine: str) -> None:
    point = short(*points(home, "--endpoint", engine, "--rate", "40", *SMALL, "--allow-suspect"))
    assert states(point)["V8"] == "ok"
    assert states(point)["V9"] == "not asked"
    assert point["load"]["rate"] == 40.0
    rows, due = rows_of(home, point), arrivals(Load.from_json(point["load"]))
    assert since_first(rows) == [round((at - due[0]) * 1e3) for at in due]
    assert all(row["sent"] >= row["sched"] for row in rows)


def test_whole_answers_have_no_ttft(home: Home, engine: str) -> None:
    [point] = points(home, "--endpoint", engine, "--no-stream", "--api", "completions", *SMALL)
    assert point["metrics"]["ttft"]["p50"] is None
    assert point["metrics"]["e2e"]["p50"] > 0
    assert states(point)["V1"] == "ok"


def test_inputs_are_exactly_as_long_as_asked(home: Home) -> None:
    with serving("--tokenizer", "vllm") as url:
        [point] = points(home, "--endpoint", url, "--range-ratio", "0.5", *SMALL)
    assert point["lengths"] == "tokenize"
    rows = rows_of(home, point)
    assert len({row["asked_in"] for row in rows}) > 5
    assert [row["n_in"] for row in rows] == [row["asked_in"] for row in rows]


def test_a_trace_is_replayed(home: Home, engine: str) -> None:
    lines = [
        "timestamp,input_length,output_length",
        *(f"{n * 20 + n % 2 * 15},{40 + n},{5 + n % 3}" for n in range(24)),
    ]
    (home.root / "trace.csv").write_text("\n".join(lines))
    words = ["--trace", "trace.csv", "--requests", "20", *SMALL[6:], "--allow-suspect"]
    point = short(*points(home, "--endpoint", engine, *words))
    assert states(point)["V8"] == "ok"
    assert point["load"]["arrival"].startswith("trace:")
    rows = rows_of(home, point)
    assert [(row["asked_in"], row["asked_out"]) for row in rows] == [(40 + n, 5 + n % 3) for n in range(20)]
    assert since_first(rows) == [n * 20 + n % 2 * 15 for n in range(20)]
    assert points(home, "--endpoint", engine, *words)[0]["stored_before"]


def test_goodput_and_bounds(home: Home, engine: str) -> None:
    words = ["--slo", "ttft_p50=60s,e2e_p50=1ms", "--goodput", "ttft=60s"]
    [point] = points(home, "--endpoint", engine, *SMALL, *words)
    assert point["slo_met"] is False
    assert point["metrics"]["goodput_share"] == 1.0


def test_a_document(home: Home, engine: str) -> None:
    loose = {flag.split("=")[0]: flag.split("=")[1] for flag in LOOSE[1::2]}
    document: dict[str, Any] = {
        "kind": "benchmark", "endpoint": engine, "isl": 40, "osl": 8, "requests": 12, "concurrency": "1,2",
        "validity": loose, "meta": {"who": 'a "b" <c>'},
    }  # fmt: skip
    file = home.root / "bench.yaml"
    file.write_text(json.dumps(document))
    found = points(home, "run", "-c", "bench.yaml", "--allow-changed-rules", "--concurrency", "2")
    assert [point["load"]["concurrency"] for point in found] == [2]
    assert found[0]["meta"] == {"who": 'a "b" <c>'}
    file.write_text(json.dumps({**document, "kind": None} | {"kind": "swarm"}))
    assert "bench.yaml:1" in bench(home, "run", "-c", "bench.yaml", code=2).stderr
    del document["kind"]
    file.write_text(json.dumps(document))
    done = bench(home, "run", "-c", "bench.yaml", code=2)
    assert done.stderr == "error: bench.yaml: does not say that it is a benchmark\n  add `kind: benchmark`\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "error: a benchmark needs an endpoint\n  name one with --endpoint URL, or a swarm with --name\n"),
        (["--endpoint", "/v1/completions"],
         "error: --endpoint: '/v1/completions' is a path, not the URL of an endpoint\n  write --endpoint http://HOST:"),
        (["--endpoint", "http://h:1", "--concurrency", "0"],
         "error: --concurrency: `concurrency` must be at least 1, not 0\n"),
        (["--endpoint", "http://h:1", "--requests", "5", "--duration", "3s"],
         "error: --duration: cannot be given beside `requests`\n  a point has one bound, or none\n"),
        (["--endpoint", "http://h:1", "--slo", "ttft=5"],
         "error: --slo: has 'ttft', which is not a percentile\n  write ttft_p99, tpot_p50, e2e_mean\n"),
        (["--endpoint", "http://h:1", "--validity", "V12.windo=5"],
         "error: --validity: there is no threshold 'V12.windo'\n  did you mean V12.window?\n"),
        (["--endpoint", "http://h:1", "--header", "x"], "error: --header: x is not NAME=VALUE\n"),
        (["--endpoint", "http://h:1", "--name", "x"],
         "error: --endpoint: cannot be given beside `name`\n  a benchmark is of one of them\n"),
        (["--endpoint", "http://h:1", "--trace", "no.csv"],
         "error: --trace: no.csv cannot be read: no such file or directory\n"),
        (["--endpoint", "http://h:1", "--extra-body", "{"], "error: --extra-body: must be JSON, not '{': "),
        (["--endpoint", "http://h:1", "--api", "rest"],
         "error: --api: `api` must be one of chat, completions, not rest\n"),
        (["search", "--endpoint", "http://h:1", "--maximise", "rate", "--min", "x"],
         "error: --min: must be a number, not 'x'\n  write --min 1\n"),
        (["--endpoint", "http://127.0.0.1:1"], "error: endpoint http://127.0.0.1:1 does not answer: "),
        (["--isl", "5", "list"], "Usage: remuda bench [OPTIONS] [COMMAND] [ARGS]...\n"),
        (["show", "zz"], "error: there is no point 'zz'\n  see `remuda bench list`\n"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(home: Home, words: list[str], said: str) -> None:
    done = bench(home, *words, code=[2, 3, 5])
    assert done.stderr.startswith(said), done.stderr
    assert points(home, "list") == []


def test_ctrl_c_keeps_what_is_done_and_nothing_else(home: Home, engine: str) -> None:
    words = ["--endpoint", engine, "-C", "1,2", "--isl", "40", "--osl", "8", "--duration", "1s", *LOOSE]
    first = home.start("bench", *words)
    with first:
        until(lambda: (home.paths.root / "bench").is_dir() and points(home, "list"), "the first point")
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=60)
    assert first.returncode == 130, f"{out}\n{err}"
    assert "cut short" in err
    assert [point["load"]["concurrency"] for point in points(home, "list")] == [1]


def test_a_killed_client_leaves_no_process(home: Home, engine: str, tmp_path: Path) -> None:
    del tmp_path
    words = ["--endpoint", engine, "-C", "1", "--isl", "40", "--osl", "8", "--duration", "10m", *LOOSE]
    first = home.start("bench", *words)
    with first:
        mine = until(lambda: _processes(first.pid), "the load generator")
        first.kill()
    until(lambda: not any(_is_alive(pid) for pid in mine), "the end of the load generator")
    assert points(home, "list") == []


def _processes(parent: int) -> list[int]:
    words = ["pgrep", "-P", str(parent), "-f", "remuda.bench.generator.process"]
    done = subprocess.run(words, capture_output=True, text=True,
                          check=False)  # fmt: skip
    return [int(word) for word in done.stdout.split()]


def _is_alive(pid: int) -> bool:
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    time.sleep(0.05)
    return bool(done.stdout.strip()) and "Z" not in done.stdout
