"""What is read out of an answer, whatever pieces it came in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.bench.generator.http_stream import TimedAnswer
from remuda.bench.generator.reading import RequestRow, hide, read

SENT = 1_000_000
ROLE = {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
END = {"choices": [{"delta": {}, "finish_reason": "length"}]}
COUNTS = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
USAGE = {"choices": [], "usage": COUNTS}
DONE = "[DONE]"


def word(text: str, key: str = "content", **more: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {key: text}, "finish_reason": None}], **more}


def events(*items: Any, end: str = "\n") -> list[bytes]:
    return [
        f"data: {item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)}{end}{end}".encode()
        for item in items
    ]


def answer_of(pieces: list[bytes], *, status: int = 200, error: str = "") -> TimedAnswer:
    """One piece a millisecond, the first a millisecond after sending."""
    stamps = [SENT + (n + 1) * 1_000_000 for n in range(len(pieces))]
    return TimedAnswer(SENT, stamps[-1] if stamps else SENT, status, error, stamps=stamps, pieces=pieces)


def row_of(pieces: list[bytes], *, stream: bool = True, status: int = 200, error: str = "") -> RequestRow:
    row = RequestRow(0)
    read(answer_of(pieces, status=status, error=error), row, stream=stream, keep_text=True)
    return row


THREE = [word("a"), word("b"), word("c")]
WHOLE = [ROLE, *THREE, END, USAGE, DONE]
JOINED = b"".join(events(*WHOLE))


@pytest.mark.parametrize(
    ("pieces", "chunks", "text"),
    [
        pytest.param(events(*WHOLE), [2, 3, 4], "abc", id="an event a piece"),
        pytest.param(events(*THREE, END, USAGE, DONE), [1, 2, 3], "abc", id="no role"),
        pytest.param(events(*WHOLE, end="\r\n"), [2, 3, 4], "abc", id="CRLF"),
        pytest.param([JOINED], [1, 1, 1], "abc", id="all in one piece"),
        pytest.param([b": hello\n\n", *events(*WHOLE)], [3, 4, 5], "abc", id="a comment first"),
        pytest.param([b"".join(events(ROLE, word("a"))), *events(*WHOLE[2:])], [1, 2, 3], "abc", id="two and one each"),
        pytest.param(events(*THREE[:2], word("c", usage=COUNTS), DONE), [1, 2, 3], "abc", id="usage in the last"),
        pytest.param(
            events(*(word(text, usage=COUNTS | {"completion_tokens": n}) for n, text in enumerate("abc")), USAGE, DONE),
            [1, 2, 3],
            "abc",
            id="usage in each, the newest counts",
        ),
        pytest.param(
            events(word("a", "reasoning_content"), word("b"), USAGE, DONE), [1, 2], "ab", id="reasoning is content"
        ),
        pytest.param(
            events({"choices": [{"text": "a"}]}, {"choices": [{"text": "b", "finish_reason": "stop"}]}, USAGE),
            [1, 2],
            "ab",
            id="completions, without [DONE]",
        ),
        pytest.param(
            events(word('"error"'), word("event: error"), USAGE, DONE), [1, 2], '"error"event: error', id="words"
        ),
        pytest.param([JOINED[:-1]], [1, 1, 1], "abc", id="no newline at the end"),
    ],
)
def test_streams(pieces: list[bytes], chunks: list[int], text: str) -> None:
    row = row_of(pieces)
    assert (row.error, row.n_in, row.n_out, row.text) == ("", 9, 3, text)
    assert row.chunks.tolist() == [n * 1000 for n in chunks]
    assert (row.first, row.last) == (SENT + chunks[0] * 1_000_000, SENT + chunks[-1] * 1_000_000)


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        pytest.param(events(*WHOLE[:3]), "cut short", id="no end"),
        pytest.param(events(*THREE, {"error": {"message": "fell over"}}, DONE), "fell over", id="an error as data"),
        pytest.param(events(word("a"), {"error": "fell over"}, word("b"), END, DONE), "fell over", id="in the middle"),
        pytest.param(
            [*events(word("a")), b'event: error\ndata: {"message": "fell over"}\n\n', *events(DONE)],
            "error in the stream",
            id="an event error",
        ),
        pytest.param([b"event:error\ndata: {}\n\n"], "error in the stream", id="an event error alone"),
        pytest.param(
            events(word("a"), {"object": "error", "message": "fell over", "code": 500}, word("b"), END, DONE),
            "fell over",
            id="an object that is an error",
        ),
        *(
            pytest.param(events(*THREE, {"choices": [{"delta": {}, "finish_reason": why}]}), why, id=f"ends by {why}")
            for why in ("abort", "error", "cancelled", "content_filter", "ABORT")
        ),
        pytest.param(events("{", DONE), "not JSON", id="no JSON"),
        pytest.param([b"<html>"], "not an event stream", id="no events"),
        pytest.param([], "empty", id="nothing"),
    ],
)
def test_streams_that_fail(pieces: list[bytes], says: str) -> None:
    assert says in row_of(pieces).error


def test_a_stream_without_a_token_is_whole_and_says_so() -> None:
    row = row_of(events(ROLE, END, {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 0}}, DONE))
    assert (row.error, row.first, row.n_out, row.n_first) == ("", 0, 0, 0)


def test_what_came_of_a_stream_that_broke_off_is_kept() -> None:
    row = row_of([*events(*WHOLE[:3]), b'data: {"choi'], error="the answer broke off")
    assert row.error == "the answer broke off"
    assert row.chunks.tolist() == [2000, 3000]


def test_tokens_of_the_first_read() -> None:
    first, rest = b"".join(events(*THREE[:2])), events(word("c"), word("d"), END, DONE)
    row = row_of([first, *rest])
    row.n_out = 8
    assert row.n_first == 4


SIX = [word(text) for text in ("a", "bbbbb ccccc", "ddddd eeeee")]


def counts(total: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": 9, "completion_tokens": total, **more}


@pytest.mark.parametrize(
    ("items", "first", "is_sure"),
    [
        pytest.param([*SIX, {"usage": counts(10)}], 1, False, id="a share of the text"),
        pytest.param([{**SIX[n], "usage": counts(2 + 4 * n)} for n in range(3)], 2, True, id="usage in each"),
        pytest.param([{**one, "usage": counts(10)} for one in SIX], 1, False, id="the whole usage in each"),
        pytest.param([*SIX, {"usage": counts(3)}], 1, True, id="a token a piece"),
        pytest.param([*SIX, {"usage": counts(4)}], 1, True, id="the last token has no text"),
        pytest.param(
            [*SIX, {"usage": counts(9, completion_tokens_details={"reasoning_tokens": 6})}], 7, True, id="hidden ones"
        ),
        pytest.param(
            [word("a", "reasoning"), *SIX[1:], {"usage": counts(3, completion_tokens_details={"reasoning_tokens": 1})}],
            1,
            True,
            id="reasoning that is shown",
        ),
        pytest.param([*SIX, {"usage": counts(9)}], 1, False, id="hidden ones that are not told"),
    ],
)
def test_tokens_up_to_the_first_read(items: list[Any], first: int, is_sure: bool) -> None:
    row = row_of(events(*items, END, DONE))
    assert (row.error, row.n_first, row.is_sure) == ("", first, is_sure)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(
            {"choices": [{"message": {"content": "abc"}, "finish_reason": "stop"}], "usage": COUNTS}, "", id="chat"
        ),
        pytest.param({"error": {"message": "fell over"}}, "fell over", id="an error with 200"),
        pytest.param({"object": "error", "message": "fell over"}, "fell over", id="an object that is an error"),
        pytest.param({"choices": [{"text": "a", "finish_reason": "abort"}]}, "abort", id="ended by the server"),
        pytest.param([], "not a JSON object", id="a list"),
    ],
)
def test_whole_answers(body: Any, says: str) -> None:
    raw = json.dumps(body).encode()
    row = row_of([raw[:5], raw[5:]], stream=False)
    assert says in row.error
    if not says:
        assert (row.n_in, row.n_out, row.finish, row.text, row.first) == (9, 3, "stop", "abc", 0)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"error": {"message": "too\\nlong"}}', "HTTP 400: too long"),
        (b'{"detail": "no"}', "HTTP 400: no"),
        (b'{"error": "no"}', "HTTP 400: no"),
        (b'{"error": null}', "HTTP 400: no words"),
        (b"", "HTTP 400: no words"),
        (b"<html>no</html>", "HTTP 400: <html>no</html>"),
        (b"[1]", "HTTP 400: [1]"),
    ],
)
def test_refusals(body: bytes, says: str) -> None:
    assert row_of([body], status=400).error == says


@pytest.mark.parametrize("count", [True, -1, 1 << 50, "3", 2.5, None, {}])
def test_counts_that_are_none(count: object) -> None:
    assert row_of(events(*THREE, {"choices": [], "usage": {"completion_tokens": count}}, DONE)).n_out == -1


TEXT = st.text(st.sampled_from('aé漢🐎"\n\\ data:'), min_size=1, max_size=6)


@given(st.lists(TEXT, min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]), st.data())
def test_pieces_change_nothing_but_times(words: list[str], end: str, data: st.DataObject) -> None:
    body = b"".join(events(ROLE, *map(word, words), END, USAGE, DONE, end=end))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=12)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    row, aligned = row_of(pieces), row_of(events(ROLE, *map(word, words), END, USAGE, DONE, end=end))
    same = ("error", "n_in", "n_out", "finish", "text")
    assert [getattr(row, name) for name in same] == [getattr(aligned, name) for name in same]
    assert len(row.chunks) == len(words)
    assert row.chunks.tolist() == sorted(row.chunks)
    # A piece has come when its line has: in which read that was, counted from the beginning of the body.
    upto, ends = 0, []
    for event in events(ROLE, *map(word, words), END, USAGE, DONE, end=end):
        ends.append(upto + event.index(b"\n"))
        upto += len(event)
    assert row.chunks.tolist() == [(sum(cut <= at for cut in cuts) + 1) * 1000 for at in ends[1 : len(words) + 1]]


KEYS = st.sampled_from(
    ["choices", "delta", "message", "content", "text", "usage", "completion_tokens", "error", "finish_reason", "detail"]
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(PLAIN | st.just(DONE), max_size=5), st.booleans(), st.sampled_from([200, 400]))
def test_no_answer_breaks_the_reader(items: list[Any], stream: bool, status: int) -> None:
    row = row_of(events(*items), stream=stream, status=status)
    assert isinstance(row.error, str)
    for item in items:
        row_of([json.dumps(item).encode()], stream=False, status=status)


@pytest.mark.parametrize(
    ("text", "key", "left"),
    [
        pytest.param("no sk-123456, sk-123456", "sk-123456", "no [secret], [secret]", id="whole"),
        pytest.param("no sk-1234", "sk-123456", "no [secret]", id="cut off"),
        pytest.param("no sk-123", "sk-123456", "no [secret]", id="six letters of it"),
        pytest.param("no sk-12", "sk-123456", "no sk-12", id="fewer"),
        pytest.param("EMPTY", "EMPTY", "EMPTY", id="too short for a key"),
        pytest.param("no key", "", "no key", id="none"),
    ],
)
def test_a_key_is_taken_out(text: str, key: str, left: str) -> None:
    assert hide(text, key) == left


def test_no_row_holds_the_key() -> None:
    key = "sk-" + "x/" * 120
    row = RequestRow(0)
    bodies = ({"choices": [{"text": f"it is {key}", "finish_reason": key}]}, {"error": {"message": f"no {key}"}})
    for body in bodies:
        raw = json.dumps(body).replace("/", "\\/").encode()
        read(answer_of([raw]), row, stream=False, keep_text=True, key=key)
    assert (row.text, row.finish, row.error) == ("it is [secret]", "[secret]", "error in the answer: no [secret]")
