"""Retries, limiter, breaker, queue metrics: pure, as tables and properties."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.batch.pipeline.answer import RowError, Transient
from remuda.batch.pipeline.breaker import Breaker
from remuda.batch.pipeline.concurrency import Limiter
from remuda.batch.pipeline.queue_metrics import read_queue
from remuda.batch.pipeline.retry import RETRYABLE, delay_s, judge, retry_after_s

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", None),
        ("7", 7.0),
        (" 0.5 ", 0.5),
        ("-3", 0.0),
        ("nan", None),
        ("1e9", 366 * 86400.0),
        ("soon", None),
        ("Sat, 21 Nov 2026 12:00:30 GMT", 30.0),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0.0),
    ],
)
def test_retry_after(header: str, expected: float | None) -> None:
    assert retry_after_s(header, NOW.timestamp()) == expected


@given(st.integers(0, 10**5))
def test_retry_after_date_is_read_back(seconds: int) -> None:
    when = datetime.fromtimestamp(NOW.timestamp() + seconds, UTC)
    assert retry_after_s(format_datetime(when, usegmt=True), NOW.timestamp()) == seconds


@given(st.text())
def test_any_retry_after_is_harmless(header: str) -> None:
    wait = retry_after_s(header, NOW.timestamp())
    assert wait is None or 0 <= wait <= 366 * 86400.0


@given(st.integers(1, 100), st.floats(0, 500), st.text(max_size=5))
def test_delay_never_undercuts_the_server(failures: int, asked: float, key: str) -> None:
    assert delay_s(failures, str(asked), key=key, now=0.0) >= asked
    assert 0 < delay_s(failures, "", key=key, now=0.0) <= 30


class StatusError(Exception):
    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(f"Error code: {status}")
        self.status_code = status
        self.response = type("Response", (), {"headers": headers})()


class APIConnectionError(Exception):
    pass


@pytest.mark.parametrize("status", [400, 401, 404, 408, 413, 422, 429, 500, 503])
def test_judge_of_statuses(status: int) -> None:
    found = judge(StatusError(status, {"retry-after": "3"}))
    assert found.status == status
    assert isinstance(found, Transient) == (status in RETRYABLE)
    if isinstance(found, Transient):
        assert found.retry_after == "3"


def test_judge_of_other_errors() -> None:
    assert isinstance(judge(ValueError("no")), RowError)
    assert isinstance(judge(TimeoutError()), Transient)
    refused = APIConnectionError("Connection error.")
    refused.__cause__ = ConnectionRefusedError()
    found = judge(refused)
    assert isinstance(found, Transient)
    assert not found.sent


def serve(limiter: Limiter, rounds: int, *, slots: int, work_s: float, now: float = 0.0) -> float:
    """A server that works on `slots` at once; returns the time after `rounds` rounds of `limit` requests."""
    for _ in range(rounds):
        flight = limiter.limit
        waves = max(1.0, flight / slots)
        for number in range(flight):
            limiter.on_answer(work_s * waves, now + work_s * waves * (number + 1) / flight, in_flight=flight)
        now += work_s * waves
    return now


def test_limiter_opens_up_for_a_server_that_takes_it() -> None:
    limiter = Limiter(512)
    serve(limiter, 10, slots=10_000, work_s=0.2)
    assert limiter.limit == 512


def test_limiter_stays_near_what_the_server_works_on() -> None:
    limiter = Limiter(512)
    serve(limiter, 200, slots=40, work_s=0.2)
    assert 30 <= limiter.limit <= 110


def test_limiter_cuts_once_per_window_and_recovers() -> None:
    limiter = Limiter(100, start=100)
    for _ in range(50):
        limiter.on_overload(1.0)
    assert limiter.limit == 70
    serve(limiter, 60, slots=10_000, work_s=0.1, now=2.0)
    assert limiter.limit == 100


def test_limiter_follows_the_engines_queue() -> None:
    limiter = Limiter(512, start=256)
    for _ in range(20):
        limiter.on_queue(200, 50)
    assert limiter.limit < 64
    before = limiter.limit
    limiter.on_queue(20, 50)
    serve(limiter, 10, slots=10_000, work_s=0.1)
    assert limiter.limit == before
    limiter.on_queue(0, 50)
    serve(limiter, 10, slots=10_000, work_s=0.1)
    assert limiter.limit > before


@given(
    st.integers(1, 600),
    st.integers(0, 600),
    st.lists(st.tuples(st.sampled_from("aoq"), st.floats(0, 1000), st.floats(0, 1000)), max_size=300),
)
def test_limiter_stays_in_bounds(maximum: int, start: int, events: list[tuple[str, float, float]]) -> None:
    limiter = Limiter(maximum, start=start)
    now = 0.0
    for kind, one, two in events:
        now += two / 100
        if kind == "a":
            limiter.on_answer(one, now, in_flight=limiter.limit)
        elif kind == "o":
            limiter.on_overload(now)
        else:
            limiter.on_queue(one, two)
        assert 1 <= limiter.limit <= maximum


def test_breaker_opens_after_failures_in_a_row_only() -> None:
    breaker = Breaker(threshold=3)
    for _ in range(10):
        breaker.on_failure(0.0, "HTTP 500", connected=True)
        breaker.on_failure(0.0, "HTTP 500", connected=True)
        breaker.on_success()
    assert breaker.may_send(0.0)
    for _ in range(3):
        breaker.on_failure(1.0, "HTTP 503", connected=True)
    assert not breaker.may_send(1.0)


def test_breaker_lets_one_probe_through_and_pauses_longer() -> None:
    breaker = Breaker()
    breaker.on_failure(0.0, "refused", connected=False)
    pauses, now = [], 0.0
    for _ in range(8):
        began = now
        while not breaker.may_send(now):
            now += 0.05
        assert not breaker.may_send(now)
        pauses.append(now - began)
        breaker.on_failure(now, "refused", connected=False)
    assert pauses == sorted(pauses)
    assert 4.9 < pauses[-1] < 5.1
    assert breaker.open_for_s(now) == now
    breaker.on_success()
    assert breaker.may_send(now)
    assert breaker.open_for_s(now) == 0


def test_a_probe_that_asked_nobody_gives_its_turn_back() -> None:
    breaker = Breaker()
    breaker.on_failure(0.0, "refused", connected=False)
    assert breaker.may_send(1.0)
    breaker.on_neutral()
    assert breaker.may_send(1.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("up 1\n", None),
        ('vllm:num_requests_waiting{model_name="m"} 3.0\nvllm:num_requests_running{model_name="m"} 7\n', (3.0, 7.0)),
        ('vllm:num_requests_waiting{a="}"} 1\nvllm:num_requests_waiting{a="b"} 2\n', (3.0, 0.0)),
        ("llamacpp:requests_deferred 4\nllamacpp:requests_processing 1\n", (4.0, 1.0)),
        ("vllm:num_requests_waiting NaN\nvllm:num_requests_running 3\n", None),
        (
            "llamacpp:requests_deferred 4\nllamacpp:requests_deferred +Inf\nllamacpp:requests_processing -1\n",
            (4.0, 0.0),
        ),
        ("sglang:num_queue_reqs{x='y'} 5\nsglang:num_running_reqs NaNo\n", (5.0, 0.0)),
    ],
)
def test_queue_metrics(text: str, expected: tuple[float, float] | None) -> None:
    assert read_queue(text) == expected
