"""Whatever a server sends in or beside an answer: the job ends, each row has an answer or an error, all is written."""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import suppress
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.stub_process import StubProcess

from remuda.batch.driver import run_job
from remuda.batch.request import JobRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from remuda.batch.request import Summary

    Run = Callable[..., Summary]
    Rows = Callable[[], list[dict[str, Any]]]
    Prompts = Callable[..., Path]


@pytest.fixture(scope="module")
def server() -> Iterator[StubProcess]:
    with StubProcess() as made:
        yield made


@pytest.fixture
def stub(server: StubProcess) -> StubProcess:
    server.forget()
    return server


def body(content: Any = "fine", **beside: Any) -> str:
    """A prompt that is answered with an ordinary chat completion and whatever else is given."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return "[body]" + json.dumps({"choices": [choice], **beside})


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (5.5, 0),
        (2**64, 0),
        (2**200, 0),
        (float("nan"), 0),
        (float("inf"), 0),
        (-1, 0),
        ("five", 0),
        ([5], 0),
        ({"x": 1}, 0),
        (True, 0),
        (None, 0),
        ("5", 5),
        (5.0, 5),
    ],
)
def test_a_token_count_that_is_none_costs_nothing(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, said: Any, kept: int
) -> None:
    usage = {"prompt_tokens": said, "completion_tokens": said, "prompt_tokens_details": {"cached_tokens": said}}
    assert run(stub.url, prompts(["a", body(usage=usage), "b"])).failed == 0
    found = rows()[1]
    assert (found["result"], found["prompt_tokens"], found["completion_tokens"]) == ("fine", kept, kept)
    assert stub.stats()["requests"] == 3


@pytest.mark.parametrize("usage", ["none", 7, [1], {"prompt_tokens_details": 3}, {"prompt_tokens_details": [1]}])
def test_usage_of_any_shape_costs_nothing(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, usage: Any
) -> None:
    assert run(stub.url, prompts([body(usage=usage)])).failed == 0
    assert rows()[0]["result"] == "fine"


@pytest.mark.parametrize("finish", [5, ["stop"], {"reason": "stop"}, "x" * 100_000, "\ud800", True])
def test_a_finish_reason_of_any_shape_costs_nothing(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, finish: Any
) -> None:
    choice = {"message": {"content": "fine"}, "finish_reason": finish}
    assert run(stub.url, prompts(["[body]" + json.dumps({"choices": [choice]}), "b"])).failed == 0
    assert rows()[0]["result"] == "fine"
    assert isinstance(rows()[0]["finish_reason"], str)
    assert len(rows()[0]["finish_reason"]) <= 200


@pytest.mark.parametrize(
    "choices",
    [{}, {"0": 1}, "text", 7, [], [None], ["text"], [[]], [{"message": "hi"}], [{"message": [1]}], [{}], True],
)
@pytest.mark.parametrize("job", ["chat", "completion", "multi-turn"])
def test_choices_of_any_shape_are_an_error_with_the_servers_words(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, choices: Any, job: str
) -> None:
    odd = "[body]" + json.dumps({"choices": choices, "note": "my words"})
    items = [[odd], ["b"]] if job == "multi-turn" else [odd, "b"]
    assert run(stub.url, prompts(items), job=job).failed == 1
    error = rows()[0]["error"]
    assert error.startswith("the answer has no ")
    assert "my words" in error
    assert stub.stats()["requests"] == 2


def test_a_lone_surrogate_is_kept_as_a_mark_and_asked_once(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows
) -> None:
    pair = json.dumps("😀")  # two surrogates that belong together
    odd = '[body]{"choices": [{"message": {"content": "a\\ud83d b ' + pair[1:-1] + '"}}], "id": "\\ud800"}'
    assert run(stub.url, prompts([odd])).failed == 0
    assert rows()[0]["result"] == "a\ufffd b 😀"
    assert stub.stats()["requests"] == 1


@pytest.mark.parametrize(
    "beside",
    [
        '"x": NaN',
        '"x": -Infinity',
        '"x": 1e999',
        '"x": ' + "9" * 5000,
        '"x": "\\udfff"',
        '"\\udfff": 1',
        '"x": ' + "[" * 900 + "]" * 900,
        '"x": ' + "[" * 5000 + "]" * 5000,
        '"usage": {"prompt_tokens": NaN}',
        '"id": 1, "id": 2, "model": {}, "created": "now"',
        '"x": "\x01 a control character"',
    ],
)
def test_what_is_no_strict_json_beside_an_answer_does_not_hide_it(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, beside: str
) -> None:
    odd = '[body]{"choices": [{"message": {"content": "fine"}}], ' + beside + "}"
    assert run(stub.url, prompts([odd, "b"])).failed == 0
    assert rows()[0]["result"] == "fine"
    assert stub.stats()["requests"] == 2


@pytest.mark.parametrize("reply", ["[]", "7", '"text"', "null", "", "<html>no</html>"])
def test_an_answer_that_is_no_object_is_an_error_with_its_words(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, reply: str
) -> None:
    assert run(stub.url, prompts(["[body]" + reply, "b"]), retries=0).failed == 1
    assert rows()[0]["error"].startswith(f"the answer is not a JSON object: {reply}")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('{"error": {"message": "the GPU is on fire", "type": "server_error"}}', "the GPU is on fire"),
        ('{"error": "no such LoRA"}', "no such LoRA"),
        ('{"error": {"code": 400, "message": "too long"}}', "HTTP 400: too long"),
        ('{"error": {"code": "context_length", "message": "too long"}, "choices": null}', "too long"),
        ('{"object": "error", "message": "too long", "code": 40303}', "too long"),
        ('{"detail": "not today"}', "not today"),
    ],
)
def test_an_error_with_status_200_keeps_its_words(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, said: str, words: str
) -> None:
    assert run(stub.url, prompts(["b", "[body]" + said])).failed == 1
    assert words in rows()[1]["error"]
    assert stub.stats()["requests"] == 2


def test_an_error_with_status_200_that_passes_is_asked_again(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows
) -> None:
    said = '[body]{"error": {"code": 503, "message": "busy"}}'
    assert run(stub.url, prompts(["b", said]), retries=1).failed == 1
    assert rows()[1]["error"] == "HTTP 503: busy (after 2 tries)"
    assert stub.stats()["prompts"][said] == 2


def test_no_content_and_no_tool_calls_is_an_error_that_retry_errors_sees(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows
) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}
    thought = {"message": {"content": None, "reasoning_content": "hm"}, "finish_reason": "length"}
    items = [
        body(None),
        "[body]" + json.dumps({"choices": [{"message": call}]}),
        "[body]" + json.dumps({"choices": [thought]}),
        "[body]" + json.dumps({"choices": [{"message": {"content": None, "refusal": "I will not"}}]}),
        body(""),
    ]
    source = prompts(items)
    assert run(stub.url, source).failed == 3
    found = rows()
    assert found[0]["error"] == "the answer has no content (finish_reason: stop)"
    assert json.loads(found[1]["result"])[0]["function"] == {"name": "f"}
    assert found[2]["error"] == "the answer has no content, only reasoning (finish_reason: length)"
    assert "I will not" in found[3]["error"]
    assert found[4]["result"] == ""
    assert run(stub.url, source, retry_errors=True).done == 3


@pytest.mark.parametrize(
    "data", [None, {}, [], [7], [{}], [{"embedding": None}], [{"embedding": ["x"]}], [{"embedding": {"a": 1}}], "x"]
)
def test_an_embedding_of_any_shape(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, data: Any) -> None:
    odd = "[body]" + json.dumps({"data": data, "note": "my words"})
    assert run(stub.url, prompts(["abc", odd]), job="embeddings").failed == 1
    assert rows()[1]["error"].startswith("the answer has no embedding")
    assert "my words" in rows()[1]["error"]
    assert rows()[0]["result"] == [3.0, 0.5]


def test_an_embedding_of_whole_numbers_is_one_of_numbers(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows
) -> None:
    odd = "[body]" + json.dumps({"data": [{"embedding": [1, 2**60 + 1, 0.5]}]})
    assert run(stub.url, prompts([odd, "abc"]), job="embeddings").failed == 0
    assert rows()[0]["result"] == [1.0, float(2**60 + 1), 0.5]


@pytest.mark.parametrize(
    "logprobs", [7, "x", [], {"content": 7}, {"content": [7]}, {"content": [{"logprob": "x"}]}, {"content": [{}]}]
)
def test_logprobs_of_any_shape(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, logprobs: Any) -> None:
    odd = "[body]" + json.dumps({"choices": [{"message": {"content": "my words"}, "logprobs": logprobs}]})
    assert run(stub.url, prompts([odd, "b"]), job="perplexity").failed == 1
    assert "logprobs" in rows()[0]["error"]
    assert "my words" in rows()[0]["error"]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["usage", "id", "model", "choices", "error", "data", "object", "message", "detail", "code", "created", "x"]
)
CHOICE = st.fixed_dictionaries(
    {},
    optional={
        "message": ANY | st.fixed_dictionaries({}, optional={"content": ANY, "tool_calls": ANY, "refusal": ANY}),
        "text": ANY,
        "finish_reason": ANY,
        "logprobs": ANY | st.fixed_dictionaries({"content": ANY}) | st.fixed_dictionaries({"token_logprobs": ANY}),
    },
)
COUNTS = st.sampled_from(["prompt_tokens", "completion_tokens", "prompt_tokens_details"])
REPLY = st.tuples(
    st.dictionaries(FIELDS, ANY, max_size=4),
    st.fixed_dictionaries(
        {},
        optional={
            "choices": st.lists(CHOICE | ANY, max_size=2),
            "usage": st.dictionaries(COUNTS, ANY),
            "data": st.lists(ANY | st.fixed_dictionaries({"embedding": ANY | st.lists(st.floats() | st.integers())})),
        },
    ),
).map(lambda both: both[0] | both[1])
SUFFIXES = st.sampled_from(["parquet", "jsonl", "csv"])
JOBS = st.sampled_from(["chat", "completion", "embeddings", "perplexity", "multi-turn", "structured"])


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.lists(REPLY | ANY, min_size=1, max_size=12), JOBS, st.sampled_from(["parquet", "jsonl", "csv"]), st.booleans()
)
def test_a_job_ends_whatever_it_is_answered(
    stub: StubProcess, tmp_path: Path, replies: list[Any], job: str, suffix: str, several: bool
) -> None:
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    items: list[Any] = ["[body]" + json.dumps(reply) for reply in replies] + ["plain"]
    column: Any = [[item] for item in items] if job == "multi-turn" else items
    pq.write_table(pa.table({"prompt": column}), tmp_path / "in.parquet")
    kwargs: dict[str, Any] = {"schema": {}} if job == "structured" else {"of": "text"} if job == "perplexity" else {}
    request = JobRequest(
        endpoint=stub.url, model="stub", input=str(tmp_path / "in.parquet"), output=str(tmp_path / f"out.{suffix}"),
        job=job, job_kwargs=kwargs | ({"n": 2} if several and job in {"chat", "completion"} else {}), retries=0,
    )  # fmt: skip
    summary = run_job(request)
    assert summary.done == summary.rows == len(items)
    assert run_job(request).output_kept


def test_what_an_older_version_stored_is_written(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that kept counts and finish reasons as the server said them."""
    odd: list[tuple[Any, Any, Any]] = [(5.5, 2**64, 7), (None, [1], {"x": 1}), ("5", -1, None)]
    replies = [
        {
            "choices": [{"message": {"content": "kept"}, "finish_reason": finish}],
            "usage": {"prompt_tokens": asked, "completion_tokens": answered},
        }
        for asked, answered, finish in odd
    ]
    source = prompts([*("[body]" + json.dumps(reply) for reply in replies), "d"])
    with monkeypatch.context() as patch:
        patch.setattr("remuda.batch.jobs.count", lambda value: value)
        patch.setattr("remuda.batch.jobs.word", lambda value: value)
        run(stub.url, source)
    (tmp_path / "out.parquet").unlink()
    assert run(stub.url, source).failed == 0
    found = rows()
    assert [row["result"] for row in found] == ["kept", "kept", "kept", "echo: d"]
    assert [row["prompt_tokens"] for row in found] == [None, None, 5, 1]
    assert [row["completion_tokens"] for row in found] == [None, None, None, 2]
    assert [row["finish_reason"] for row in found] == ["7", '{"x":1}', "", "stop"]
    assert stub.stats()["requests"] == 4


ANSWER = b'{"choices": [{"message": {"content": "fine"}}]}'
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)
EARLY = b"HTTP/1.1 103 Early Hints\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def saying() -> Iterator[Callable[..., str]]:
    """Start a server that says this to each POST, and then something over and over if it is to; returns its address."""
    servers: list[ThreadingTCPServer] = []

    def start(first: bytes, then: bytes = b"") -> str:
        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                length = 0
                with suppress(OSError):
                    while line := self.rfile.readline():
                        if line.lower().startswith(b"content-length:"):
                            length = int(line.split(b":")[1])
                        if line == b"\r\n":
                            self.rfile.read(length)
                            self.wfile.write(first if length else WHOLE)
                            while length and then:
                                self.wfile.write(then)

        made = ThreadingTCPServer(("127.0.0.1", 0), Handler)
        made.daemon_threads = True
        threading.Thread(target=made.serve_forever, daemon=True).start()
        servers.append(made)
        return f"http://127.0.0.1:{made.server_address[1]}"

    yield start
    for made in servers:
        made.shutdown()
        made.server_close()


def test_eight_announcements_before_each_answer_are_passed_over(
    saying: Callable[..., str], prompts: Prompts, run: Run
) -> None:
    assert run(saying(EARLY * 8 + WHOLE), prompts(["a", "b", "c"]), max_concurrency=1).failed == 0


@pytest.mark.parametrize("said", [(EARLY * 9 + WHOLE,), (b"", EARLY * 1000)], ids=["nine", "without end"])
def test_who_announces_an_answer_without_end_does_not_hold_a_row(
    saying: Callable[..., str], prompts: Prompts, run: Run, rows: Rows, said: tuple[bytes, ...]
) -> None:
    assert run(saying(*said), prompts(["a"]), retries=0, timeout_s=60.0).failed == 1
    assert "more than 8 times that its answer will come" in rows()[0]["error"]


@pytest.mark.parametrize(
    ("first", "then"),
    [(HEAD, b"1\r\na\r\n" * 100), (HEAD + b"1;", b"a=b;" * 1000), (b"", b"\r\n" * 1000)],
    ids=["chunks", "an extension", "empty lines"],
)
def test_an_answer_without_end_ends_with_the_timeout(
    saying: Callable[..., str], prompts: Prompts, run: Run, rows: Rows, first: bytes, then: bytes
) -> None:
    assert run(saying(first, then), prompts(["a"]), retries=0, timeout_s=0.5).failed == 1
    assert rows()[0]["error"].startswith("no answer within 0.5 s")
