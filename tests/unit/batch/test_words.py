"""What is said: fingerprints' differences, progress, summaries, requests, endpoints."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest

from remuda.base.endpoint import base_url, default_key, redirected
from remuda.base.errors import InputError
from remuda.batch.fingerprint import differences
from remuda.batch.pipeline.ask import error_text
from remuda.batch.progress import Progress
from remuda.batch.request import JobRequest, Summary
from remuda.batch.show import ProgressView, progress_line, summary_lines


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"model": "a"}, {"model": "a"}, []),
        ({"model": "a"}, {"model": "b"}, ["model: a -> b"]),
        ({"arguments": {"t": 0.2}}, {"arguments": {"t": 0.7, "x": None}}, ["t: 0.2 -> 0.7", "x: not set -> null"]),
        ({"input": {"a": [1, 2]}}, {"input": {"a": [1, 3]}}, ["input file a changed (modification time)"]),
        ({"input": {"a": [1, 2]}}, {"input": {"a": [5, 3]}}, ["input file a changed (1 -> 5 bytes)"]),
        (
            {"input": {"a": [1, 2]}},
            {"input": {"b": [1, 2]}},
            ["input file b was added", "input file a is gone"],
        ),
    ],
)
def test_differences(old: dict[str, Any], new: dict[str, Any], expected: list[str]) -> None:
    assert differences(old, new) == expected


PROGRESS = Progress(
    name="j",
    state="running",
    done=500,
    total=1000,
    skipped=0,
    failed=2,
    rows_per_s=50.0,
    tokens_per_s=1234.0,
    prompt_tokens=1,
    completion_tokens=2,
    in_flight=30,
    concurrency=32,
    retries=3,
    eta_s=10.0,
    elapsed_s=10.0,
)


def test_progress_line() -> None:
    assert progress_line(PROGRESS) == (
        "running: 500/1,000 rows (50 %) · 50.0 rows/s · 1,234 tokens/s · 30 in flight (limit 32) · 10s left"
        " · 3 retries · 2 errors"
    )


def test_progress_survives_json() -> None:
    assert Progress.from_json(dataclasses.asdict(PROGRESS) | {"unknown": 1}) == PROGRESS


def test_piped_view_says_each_state_once() -> None:
    stream = io.StringIO()
    with ProgressView(stream) as view:
        for state in ("reading", "running", "running", "writing"):
            view.update(dataclasses.replace(PROGRESS, state=state))
    assert [line.split(":")[0] for line in stream.getvalue().splitlines()] == ["reading", "running", "writing"]


def test_summary_lines() -> None:
    summary = Summary(10, 4, 6, 1, 100, 200, 2.0, "out.parquet", "out.parquet.checkpoint")
    assert summary_lines(summary) == [
        "4 rows, 100 prompt and 200 generated tokens, in 2.0s (2.0 rows/s, 100 tokens/s)",
        "6 rows were done before and were not asked again",
        "1 row carries an error (column error); --retry-errors does just that",
        "wrote 10 rows to out.parquet",
    ]
    assert summary_lines(dataclasses.replace(summary, rows=1, done=1, skipped=1, failed=2))[1:] == [
        "1 row was done before and was not asked again",
        "2 rows carry an error (column error); --retry-errors does just them",
        "wrote 1 row to out.parquet",
    ]
    assert summary.to_json()["rows_per_s"] == 2.0
    assert summary_lines(dataclasses.replace(summary, output_kept=True))[0].startswith("nothing left to do")


def test_request_survives_json() -> None:
    request = JobRequest("http://h", "m", "in", "out/", output_columns=("a", "b"), job_kwargs={"t": 1})
    assert JobRequest.from_json(request.to_json()) == request
    assert str(request.checkpoint_path()) == "out.checkpoint"
    with pytest.raises(InputError):
        JobRequest.from_json({"nope": 1})


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:1", "http://h:1"),
        ("http://h:1/v1/", "http://h:1"),
        ("https://h/api/v1", "https://h/api"),
        ("h:8000", "http://h:8000"),
    ],
)
def test_base_url(url: str, expected: str) -> None:
    assert base_url(url) == expected


@pytest.mark.parametrize("url", ["", "ftp://h", "http://", "http://u:p@h", "http://h:99999"])
def test_no_endpoint(url: str) -> None:
    with pytest.raises(InputError):
        base_url(url)


def test_the_openai_key_goes_only_where_it_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REMUDA_API_TOKEN", "DOMYN_SWARM_API_TOKEN", "API_TOKEN", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    assert default_key("https://api.openai.com/v1") == "sk"
    assert not default_key("http://other:1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://other:1/v1")
    assert default_key("http://other:1") == "sk"
    monkeypatch.setenv("API_TOKEN", "token")
    assert not default_key("http://third")
    monkeypatch.delenv("OPENAI_API_KEY")
    assert default_key("http://other:1") == "token"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error": {"message": "too long"}}', "too long"),
        (b'{"error": "plain"}', "plain"),
        (b'{"detail": [{"loc": 1}]}', '[{"loc":1}]'),
        (b'{"message": "vllm"}', "vllm"),
        (b"Bad Gateway", "Bad Gateway"),
        (b"", "no message"),
        (b"[]", "[]"),
    ],
)
def test_error_text(body: bytes, expected: str) -> None:
    assert error_text(body) == expected


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("http://other:1/v1/models", "a question and its key go to no other server unasked"),
        ("http://here:1/login", "it sends its clients back to itself"),
        ("https://here:1/v1/models", "it sends its clients back to itself"),
        ("a place that it does not name", "names the server itself"),
    ],
)
def test_where_a_redirect_points_says_what_to_do(target: str, hint: str) -> None:
    assert hint in redirected("http://here:1", f"redirects (HTTP 307) to {target}").hint


@pytest.mark.parametrize(
    ("given", "said", "hint"),
    [
        ({"limitt": 5}, "a job has no option 'limitt'", "did you mean 'limit'?"),
        ({"zzz": 5}, "a job has no option 'zzz'", ""),
        ({"limit": "5"}, "limit must be a whole number, not '5'", ""),
        ({"limit": True}, "limit must be a whole number, not True", ""),
        ({"resume": 1}, "resume must be true or false, not 1", ""),
        ({"timeout_s": None}, "timeout_s must be a number, not None", ""),
        ({"job": 7}, "job must be text, not 7", ""),
    ],
)
def test_options_of_another_type(given: dict[str, Any], said: str, hint: str) -> None:
    whole = {"endpoint": "", "model": "m", "input": "a", "output": "b.csv"}
    with pytest.raises(InputError) as caught:
        JobRequest.from_json({**whole, **given})
    assert (caught.value.message, caught.value.hint) == (said, hint)
    assert JobRequest.from_json({**whole, "timeout_s": 5}).timeout_s == 5
