"""What an answer says, read after it has ended: tokens, and when each came. Pure."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from remuda.bench.generator.http_stream import TimedAnswer

_DONE: Final = b"[DONE]"
_FAILED: Final = re.compile(rb"(?:^|\n)event: ?error")
_CONTENT: Final = ("content", "reasoning_content", "reasoning", "tool_calls", "text")
#: Where pieces are at least this share of tokens, each is one: some tokens have no text of their own.
_ONE_EACH: Final = 0.9
#: Reasons to finish that are failures: what came is no answer.
_BROKEN: Final = frozenset({"abort", "aborted", "error", "cancelled", "canceled", "content_filter", "timeout"})
#: Shorter keys are words that any answer may hold, as EMPTY.
_SHORTEST_KEY: Final = 6


@dataclass(slots=True)
class RequestRow:
    """One request. Times are ns of CLOCK_MONOTONIC, 0 where that did not happen; token counts are -1 where unknown."""

    index: int
    process: int = 0
    sched: int = 0
    """When it was due; of a closed loop, when it was sent."""
    sent: int = 0
    first: int = 0
    """The first piece with content: text, reasoning or a call of a tool. 0 when the answer was not streamed."""
    last: int = 0
    """The last piece with content."""
    ended: int = 0
    asked_in: int = 0
    asked_out: int = 0
    n_in: int = -1
    """From the answer's `usage`, as `n_out` and `cached`."""
    n_out: int = -1
    cached: int = -1
    status: int = 0
    finish: str = ""
    error: str = ""
    """Why it failed; empty when it did not."""
    chunks: array[int] = field(default_factory=lambda: array("q"))
    """When each piece with content came, microseconds after `sent`."""
    text: str = ""
    """What was answered; of one request a process only."""
    reasoning: int = 0
    """Of `n_out`, as its usage tells; not kept."""
    first_out: int = 0
    """Tokens made up to the first read with content; 0 where pieces of equal size are assumed."""
    is_sure: bool = True
    """Whether that is known: a piece is one token, or usage in each piece counts them."""

    @property
    def is_ok(self) -> bool:
        """Whether it was answered, whole and without an error."""
        return not self.error

    @property
    def n_first(self) -> int:
        """Tokens made up to the first read that held content, those of hidden reasoning included."""
        if not self.chunks or self.n_out < 1:
            return 0
        if self.first_out:
            return min(self.first_out, self.n_out)
        return max(1, round(self.n_out * self.chunks.count(self.chunks[0]) / len(self.chunks)))


def hide(text: str, key: str) -> str:
    """The text without the endpoint's key, which a server may echo; nor does it end in the beginning of one."""
    if len(key) < _SHORTEST_KEY:
        return text
    text = text.replace(key, "[secret]")
    cut = next((size for size in range(len(key) - 1, _SHORTEST_KEY - 1, -1) if text.endswith(key[:size])), 0)
    return f"{text[:-cut]}[secret]" if cut else text


def read(answer: TimedAnswer, row: RequestRow, *, stream: bool, keep_text: bool = False, key: str = "") -> None:
    """Fill a row from its answer. The endpoint's `key` does not get into it."""
    row.sent, row.ended, row.status = answer.sent, answer.ended, answer.status
    row.sched = row.sched or answer.sent
    body = b"".join(answer.pieces)
    if stream and answer.status == 200:
        _read_stream(answer, body, row, keep_text=keep_text)
    elif answer.status == 200:
        _read_whole(answer, body, row, keep_text=keep_text)
    if answer.error:
        row.error = answer.error
    elif answer.status != 200:
        row.error = f"HTTP {answer.status}: {_message(body)}"
    elif row.finish.lower() in _BROKEN:
        row.error = row.error or f"the server ended the answer: finish_reason {row.finish}"
    row.error, row.finish, row.text = (hide(text, key) for text in (row.error, row.finish, row.text))


def _message(body: bytes) -> str:
    data = _json(body)
    return (_words(data) if data else " ".join(body[:200].decode(errors="replace").split())) or "no words"


def _words(data: dict[str, Any]) -> str:
    error = data.get("error") or data
    words = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    return " ".join(str(words or "").split())[:200]


def _read_whole(answer: TimedAnswer, body: bytes, row: RequestRow, *, keep_text: bool) -> None:
    data = _json(body)
    if data is None:
        row.error = "the answer is not a JSON object"
        return
    if _is_error(data):
        row.error = f"error in the answer: {_message(body)}"
        return
    _note(data, row)
    row.last = answer.stamps[-1] if answer.stamps else answer.ended
    if keep_text:
        row.text = _content(data)


def _read_stream(answer: TimedAnswer, body: bytes, row: RequestRow, *, keep_text: bool) -> None:
    events = _events(answer, body)
    if not events:
        row.error = row.error or ("the answer is not an event stream" if body.strip() else "the stream is empty")
        return
    told = _told(events, row)
    if told:
        row.first, row.last = told[0][0], told[-1][0]
        sent = row.sent
        row.chunks = array("q", [(stamp - sent) // 1000 for stamp, _ in told])
        _count_first(told, row)
    if keep_text:
        row.text = "".join(_content(_json(_data(event)) or {}) for _, event in told)
    if b'"error"' in body:
        for _, event in told:
            _blame(_json(_data(event)), row)
    if b"event:" in body and _FAILED.search(body) and not row.error:
        row.error = f"error in the stream: {_message(_data(events[-1][1]))}"
    elif not row.error and not row.finish and not any(_data(event).startswith(_DONE) for _, event in events[-2:]):
        row.error = "the stream was cut short: neither finish_reason nor [DONE]"


def _count_first(told: list[tuple[int, bytes]], row: RequestRow) -> None:
    """Tokens of the first read: as usage there tells, else by its share of the text where a piece is several tokens."""
    first, so_far = [_json(_data(event)) or {} for stamp, event in told if stamp == row.first], RequestRow(-1)
    _note(first[-1], so_far)
    is_shown = any(part.get(key) for part in _parts(first[0]) for key in ("reasoning_content", "reasoning"))
    hidden = 0 if is_shown else max(0, min(row.reasoning, row.n_out - 1))
    if hidden < so_far.n_out <= row.n_out - (len(first) < len(told)):
        row.first_out = so_far.n_out
        return
    seen = row.n_out - hidden
    row.is_sure = len(told) + 1 >= _ONE_EACH * seen
    if hidden or not row.is_sure:
        sizes = [len(_content(_json(_data(event)) or {})) for _, event in told]
        share = sum(sizes[: len(first)]) / sum(sizes) if all(sizes) else len(first) / len(told)
        row.first_out = hidden + max(1, round(seen * share))


def _told(events: list[tuple[int, bytes]], row: RequestRow) -> list[tuple[int, bytes]]:
    """The events with content; what the others say goes into the row."""
    # Only the first events (the role) and the last ones (finish, usage) may have no content.
    first, last = 0, len(events) - 1
    while first <= last and not _has_content(_look(events[first][1], row)):
        first += 1
    while last > first and not _has_content(_json(_data(events[last][1]))):
        last -= 1
    for _, event in events[max(first + 1, last) :]:  # In their order, as the newest usage counts.
        _look(event, row)
    return events[first : last + 1]


def _events(answer: TimedAnswer, body: bytes) -> list[tuple[int, bytes]]:
    """(when its line was whole, from `data:` on) of each event."""
    if _is_one_each(answer.pieces, body):
        return list(zip(answer.stamps, answer.pieces, strict=True))
    return _searched(answer, body)


def _is_one_each(pieces: list[bytes], body: bytes) -> bool:
    """Whether each piece is one event: most servers write so, and then nothing has to be searched for."""
    count = len(pieces)
    return (
        body.count(b"\ndata:") + 1 == count
        and [piece[:5] for piece in pieces].count(b"data:") == count
        and [piece[-1:] for piece in pieces].count(b"\n") == count
    )


def _searched(answer: TimedAnswer, body: bytes) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    stamps, sizes = answer.stamps, [len(piece) for piece in answer.pieces]
    piece, upto = 0, sizes[0] if sizes else 0
    at = 0 if body.startswith(b"data:") else body.find(b"\ndata:") + 1
    while at or (not found and body.startswith(b"data:")):
        end = body.find(b"\n", at)
        if end < 0:
            end = len(body) - 1
            if answer.error:
                break
        while upto <= end and piece < len(sizes) - 1:
            piece += 1
            upto += sizes[piece]
        found.append((stamps[piece], body[at : end + 1]))
        at = body.find(b"\ndata:", end) + 1
    return found


def _data(event: bytes) -> bytes:
    return event[5:].partition(b"\n")[0].strip()


def _json(data: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _look(event: bytes, row: RequestRow) -> dict[str, Any] | None:
    """One event's JSON; what it says of usage, finish and errors goes into the row."""
    data = _data(event)
    if data.startswith(_DONE):
        return None
    found = _json(data)
    if found is None:
        row.error = row.error or "an event of the stream is not JSON"
        return None
    _blame(found, row)
    _note(found, row)
    return found


def _blame(data: dict[str, Any] | None, row: RequestRow) -> None:
    if data and _is_error(data):
        row.error = row.error or f"error in the stream: {_words(data)}"


def _is_error(data: dict[str, Any]) -> bool:
    return bool(data.get("error")) or data.get("object") == "error"


def _note(data: dict[str, Any], row: RequestRow) -> None:
    usage = data.get("usage")
    if isinstance(usage, dict):
        row.n_in = _count(usage.get("prompt_tokens"), row.n_in)
        row.n_out = _count(usage.get("completion_tokens"), row.n_out)
        if isinstance(details := usage.get("completion_tokens_details"), dict):
            row.reasoning = _count(details.get("reasoning_tokens"), row.reasoning)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            row.cached = _count(details.get("cached_tokens"), row.cached)
    for choice in _choices(data):
        if isinstance(finish := choice.get("finish_reason"), str):
            row.finish = finish[:40]


def _count(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else otherwise


def _choices(data: dict[str, Any]) -> list[dict[str, Any]]:
    choices = data.get("choices")
    return [item for item in choices if isinstance(item, dict)] if isinstance(choices, list) else []


def _parts(data: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for choice in _choices(data):
        inner = choice.get("delta") or choice.get("message")
        found.append(inner if isinstance(inner, dict) else choice)
    return found


def _has_content(data: dict[str, Any] | None) -> bool:
    return data is not None and any(part.get(key) for part in _parts(data) for key in _CONTENT)


def _content(data: dict[str, Any]) -> str:
    for part in _parts(data):
        for key in _CONTENT:
            if isinstance(value := part.get(key), str) and value:
                return value
    return ""
