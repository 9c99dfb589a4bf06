"""Users' own jobs, and the built-in ones from Python."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import socket
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from remuda.base.errors import Conflict, RemudaError
from remuda.batch.jobs import ChatCompletionJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fakes.stub_process import StubProcess

    from remuda.batch.request import Summary

    Run = Callable[..., Summary]
    Rows = Callable[[], list[dict[str, Any]]]
    Prompts = Callable[..., Path]


MODELS = b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\nconnection: close\r\n\r\n{"data":[]}'
CUT = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"


@pytest.fixture(autouse=True)
def user_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "programs"))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))


@pytest.mark.parametrize("job", ["userjobs:SeedShape", "examples.custom_job:MyCustomSwarmJob"])
def test_a_job_with_the_openai_client(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, job: str) -> None:
    texts = ["a", "[500 once] b", "[429 once] c", "[400] d"]
    source = prompts(texts, column="messages")
    summary = run(stub.url, source, job=job, job_kwargs={"temperature": 0.2}, max_concurrency=0)
    assert summary.failed == 1
    found = rows()
    assert [row["completion"] for row in found] == ["echo: a", "echo: [500 once] b", "echo: [429 once] c", None]
    assert found[0]["current_model"] == "stub_0.2"
    assert 0 <= found[0]["score"] <= 1
    assert found[3]["error"].startswith("HTTP 400")
    assert "finish_reason" not in found[0]
    # One layer retries: once more for each passing failure, never for the 400.
    assert stub.stats()["requests"] == 6


def test_results_of_every_shape(prompts: Prompts, run: Run, rows: Rows) -> None:
    run("", prompts(["a b", "c"]), job="userjobs:Shapes", model="")
    assert [(row["half"], row["nested"], row["mixed"]) for row in rows()] == [
        (0.5, {"len": 3, "words": ["a", "b"]}, "1"),
        (0.5, {"len": 1, "words": ["c"]}, "x"),
    ]


def test_a_bad_item_does_not_take_its_batch_along(prompts: Prompts, run: Run, rows: Rows) -> None:
    texts = ["a", "bad", "c", "d", "e"]
    run("", prompts(texts), job="userjobs:Batches", model="", native_batch_size=3, max_concurrency=1)
    found = rows()
    assert [row["result"] for row in found] == ["a of 1", None, "c of 1", "d of 2", "e of 2"]
    assert found[1]["error"] == "ValueError: a bad item"


def test_streaming_results_come_in_any_order(prompts: Prompts, run: Run, rows: Rows) -> None:
    summary = run("", prompts([f"x{n}" for n in range(40)] + ["forget me"]), job="userjobs:Streams", model="")
    assert summary.failed == 1
    assert [row["result"] for row in rows()] == [f"X{n}" for n in range(40)] + [None]
    assert rows()[-1]["error"] == "the job gave no result for this row"


def test_subclass_of_a_built_in_job(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    run(stub.url, prompts(["a", "[500 once] b"]), job="userjobs:Shouts")
    assert [row["result"] for row in rows()] == ["ECHO: A", "ECHO: [500 ONCE] B"]


def test_pandas_items(run: Run, rows: Rows, tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"prompt": [[1, 2], [3]]}), source)
    run("", source, job="userjobs:Kinds", model="", data_backend="pandas")
    assert [row["result"] for row in rows()] == ["ndarray", "ndarray"]
    with pytest.raises(Conflict, match="items: pandas"):
        run("", source, job="userjobs:Kinds", model="", data_backend="arrow")
    run("", source, job="userjobs:Kinds", model="", data_backend="arrow", resume=False)
    assert [row["result"] for row in rows()] == ["list", "list"]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("userjobs:Unstorable", "the result cannot be stored: Type is not JSON serializable: object"),
        ("userjobs:Wrong", "transform_items returned 0 results for 1 items"),
    ],
)
def test_wrong_results_are_the_rows_errors(prompts: Prompts, run: Run, rows: Rows, job: str, words: str) -> None:
    assert run("", prompts(["a"]), job=job, model="").failed == 1
    assert rows()[0]["error"] == words


def test_changed_code_is_noticed_and_a_comment_is_not(
    prompts: Prompts, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "changing.py"
    text = "from remuda import SwarmJob\nclass Job(SwarmJob):\n    asks = False\n"
    body = "    async def transform_items(self, items):\n        return [item + '{}' for item in items]\n"
    monkeypatch.chdir(tmp_path)
    # So that a file changed within one second is not taken from the bytecode cache.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    source = prompts(["a"])

    def submit() -> Summary:
        import linecache

        sys.modules.pop("changing", None)
        importlib.invalidate_caches()  # a folder that changed twice within a tick of its clock looks unchanged
        linecache.clearcache()
        return run("", source, job="changing:Job", model="")

    module.write_text(text + body.format("1"))
    submit()
    module.write_text(text + "    # a comment\n" + body.format("1"))
    assert submit().done == 0
    module.write_text(text + body.format("2"))
    with pytest.raises(Conflict, match="the code of the job"):
        submit()


def test_an_instance_from_python(stub: StubProcess, prompts: Prompts, tmp_path: Path) -> None:
    from remuda.batch.driver import run_job
    from remuda.batch.request import JobRequest

    job = ChatCompletionJob(endpoint=stub.url, model="stub", max_concurrency=4, temperature=0.2)
    request = JobRequest(endpoint=stub.url, model="", input=str(prompts(["a"])), output=str(tmp_path / "o.jsonl"))
    assert run_job(request, job=job).done == 1


async def test_run_inside_a_running_loop(stub: StubProcess, prompts: Prompts, run: Run) -> None:
    assert run(stub.url, prompts(["a"])).done == 1


async def test_transform_items_without_a_driver(stub: StubProcess) -> None:
    job = ChatCompletionJob(endpoint=stub.url, model="stub")
    assert await job.transform_items(["a", [{"role": "user", "content": "b"}]]) == ["echo: a", "echo: b"]


def test_half_a_character_is_stored_as_a_mark_and_made_once(prompts: Prompts, run: Run, rows: Rows) -> None:
    torn = importlib.import_module("userjobs").Torn
    torn.asked = 0
    assert run("", prompts(["a", "deep", "c"]), job="userjobs:Torn", model="").failed == 1
    found = rows()
    assert [row["result"] for row in found] == ["\ufffd a", None, "\ufffd c"]
    assert found[1]["error"].startswith("the result cannot be stored: ")
    assert torn.asked == 3


def test_a_job_that_counts_nonsense_or_stumbles_over_an_answer(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows
) -> None:
    """What a server sends ends no job of a user's either; the error has the server's words, and never the key."""
    odd = '[body]{"choices": 7, "note": "sk-very-secret"}'
    options = {"job": "userjobs:Counting", "model": "stub", "api_key_env": "MY_KEY"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_KEY", "sk-very-secret")
        summary = run(stub.url, prompts(["a", odd, "c"]), **options)
    assert (summary.failed, summary.completion_tokens) == (1, 0)
    found = rows()
    assert [row["prompt_tokens"] for row in found] == [None, None, None], "nobody knows how many there were"
    assert found[1]["error"].startswith("the answer cannot be read (TypeError: ")
    assert '"note":"********"' in found[1]["error"]


def test_a_mistake_outside_of_any_row_is_a_sentence(stub: StubProcess, prompts: Prompts, run: Run) -> None:
    source = prompts(["a"])
    with pytest.raises(RemudaError, match="the job broke while preparing job userjobs:Forgetful over") as caught:
        run(stub.url, source, job="userjobs:Forgetful")
    assert str(source) in caught.value.message
    assert "KeyError: 'nothing'" in caught.value.message


def test_a_value_that_json_has_no_word_for_is_the_rows_error(
    stub: StubProcess, run: Run, rows: Rows, tmp_path: Path
) -> None:
    messages = [[{"role": "user", "content": "a", "size": Decimal("1.5")}]]
    pq.write_table(pa.table({"messages": messages}), tmp_path / "in.parquet")
    assert run(stub.url, tmp_path / "in.parquet").failed == 1
    assert rows()[0]["error"].startswith("the value cannot be sent as JSON: ")


def test_a_server_that_is_none_is_named_in_words(run: Run, prompts: Prompts, rows: Rows) -> None:
    """No exception of a library stands in a row's error."""

    def talk(listening: socket.socket) -> None:
        small = gzip.compress(b" " * (65 << 20), 9)
        bomb = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%s" % (len(small), small)
        replies = [b"220 mail.example ESMTP\r\n\r\n", CUT, bomb, b""]
        while replies:
            try:
                made, _ = listening.accept()
            except OSError:
                return
            # Who has read more than it can take hangs up before the end.
            with contextlib.suppress(OSError), made:
                asked = more = made.recv(65536)
                while more and asked.startswith(b"POST") and not asked.endswith(b"}]}"):
                    asked += (more := made.recv(65536))
                if more:
                    made.sendall(replies.pop(0) if asked.startswith(b"POST") else MODELS)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=talk, args=(listening,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        source = prompts([f"row {number}" for number in range(4)])
        assert run(url, source, retries=0, max_concurrency=1, timeout_s=120.0).failed == 4
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    found = [row["error"].partition(" (after")[0] for row in rows()]
    assert found[0].startswith("connection lost: the answer is not HTTP: ")
    assert found[1:] == [
        "connection lost: the answer broke off",
        "the answer is larger than 64 MiB",
        "connection lost: the server closed it without an answer",
    ]
