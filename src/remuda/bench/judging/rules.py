"""Whether a point counts: rules over what was measured. Pure.

A rule says `ok`, `suspect` or `invalid`, or `not asked` where what it needs is not there, with a sentence and what to
change.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from remuda.base.units import show_counted
from remuda.base.units import show_ms as ms
from remuda.base.units import show_percent as percent
from remuda.bench.judging import client_rules, energy
from remuda.bench.judging.measures import e2e, is_measured, ttft
from remuda.bench.judging.verdict import INVALID, NOT_ASKED, OK, SUSPECT, THRESHOLDS, Check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.bench.counters import Counters
    from remuda.bench.generator.load_workers import Punctuality
    from remuda.bench.generator.reading import RequestRow
    from remuda.bench.judging.measures import Window
    from remuda.bench.load import Cache, Load

#: A time of an open loop that grows by more than itself over the window is that of a queue.
_PILES_UP: Final = 1.0


@dataclass(frozen=True)
class RuleInputs:
    """All that rules look at.

    Attributes:
        load: what was asked.
        rows: measured ones.
        warm: those of the warm-up, in the order in which they ended.
        window: the part of the load that counts.
        metrics: as `measures.measure` returns them.
        client: how the client did.
        model: as it was asked for.
        served: names that the endpoint listed at the start and at the end; None where it lists none.
        forced: whether a probe showed that output lengths are obeyed.
        counters: of the engine before the first request and after the last answer; None where there are none.
        probed_out: output tokens of requests between those two that are in neither list.
        template: input tokens that a prefix cache finds in any two prompts; -1 where that was not measured.
        base: input tokens that are in any prompt, cached or not.
        workers: replicas asked, at the start and at the end; None where nobody says.
        retries: that a router made meanwhile; -1 where nobody says.
        identity: of the engine (version, flags) at the start and at the end.
        is_cut: whether the load was ended before its time.
        energy: of its GPUs; None where they are not recorded.
    """

    load: Load
    rows: Sequence[RequestRow]
    warm: Sequence[RequestRow]
    window: Window
    metrics: Mapping[str, Any]
    client: Punctuality
    model: str
    served: tuple[Sequence[str] | None, Sequence[str] | None]
    forced: bool
    cache: Cache
    counters: tuple[Counters | None, Counters | None] = (None, None)
    probed_out: int = 0
    template: int = -1
    base: float = 0.0
    workers: tuple[int, int, int] | None = None
    retries: int = -1
    identity: tuple[str, str] = ("", "")
    is_cut: bool = False
    energy: Mapping[str, Any] | None = None
    thresholds: Mapping[str, float] = field(default_factory=lambda: THRESHOLDS)

    @property
    def mine(self) -> list[RequestRow]:
        """Measured rows that were answered."""
        return [row for row in self.rows if row.is_ok and is_measured(row, self.window)]

    @property
    def answered(self) -> list[RequestRow]:
        """Rows with a whole answer."""
        return [row for row in self.rows if row.is_ok]

    def limit(self, name: str) -> float:
        """A threshold."""
        return self.thresholds[name]


def judge(seen: RuleInputs) -> list[Check]:
    """All rules, in the order of their numbers."""
    return [rule(seen) for rule in _RULES]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _no_output(seen: RuleInputs) -> Check:
    empty = sum(1 for row in seen.answered if row.n_out == 0 or (row.n_out < 0 and not row.chunks and seen.load.stream))
    total = sum(max(0, row.n_out) for row in seen.answered)
    if not seen.answered:
        return Check("V1", INVALID, "no request was answered", "see the errors")
    if _share(empty, len(seen.answered)) > seen.limit("V1.share") or (
        not total and not any(r.chunks for r in seen.rows)
    ):
        return Check(
            "V1", INVALID, f"{show_counted(empty, 'answer')} of {len(seen.answered)} without a token",
            "look at the engine's log: it answers without computing",
        )  # fmt: skip
    return Check("V1", OK)


def _errors(seen: RuleInputs) -> Check:
    failed = [row for row in seen.rows if not row.is_ok]
    # A server that closes each connection after its answer, as llama.cpp does, drops nothing: the next request crosses.
    resent = seen.client.resent if seen.client.opened < len(seen.rows) / 2 else 0
    if seen.is_cut:
        return Check("V2", INVALID, "the load was cut short")
    if not failed and not resent:
        return Check("V2", OK)
    share = _share(len(failed) + resent, len(seen.rows))
    text = f"{len(failed)} of {show_counted(len(seen.rows), 'request')} failed"
    if resent:
        text += f", and {resent} were sent again, as the server dropped them on connections that it had kept"
    hint = "find out why: what is left is faster than the whole"
    return failures(text, share, [row.error for row in failed], seen.thresholds, hint)


def failures(text: str, share: float, errors: Sequence[str], limits: Mapping[str, float], hint: str) -> Check:
    """Rule V2 of a share that failed, with the most frequent of its errors."""
    text += f" ({percent(share)})"
    for words, count in Counter(errors).most_common(1):
        text += f"; {count}: {words}"
    state = INVALID if share > limits["V2.invalid"] else SUSPECT if share > limits["V2.suspect"] else OK
    return Check("V2", state, text, hint)


def _wrong_length(seen: RuleInputs) -> Check:
    rows = [row for row in seen.answered if row.n_out >= 0]
    longer = sum(1 for row in rows if row.n_out > row.asked_out)
    if _share(longer, len(rows)) > seen.limit("V3.share"):
        text = f"{longer} of {show_counted(len(rows), 'answer')} have more tokens than were asked for at most"
        return Check("V3", INVALID, text, "the server's usage is wrong, or max_tokens is not obeyed")
    if not seen.forced:
        mean = statistics.fmean(row.n_out for row in rows) if rows else 0.0
        text = f"output lengths are not forced here: {mean:.0f} tokens in the mean, {seen.load.osl} at most"
        return Check("V3", NOT_ASKED, text)
    wrong = sum(1 for row in rows if row.n_out != row.asked_out)
    asked = sum(row.asked_out for row in rows)
    off = _share(sum(row.n_out for row in rows), asked) - 1 if asked else 0.0
    if _share(wrong, len(rows)) > seen.limit("V3.share") or abs(off) > seen.limit("V3.total"):
        text = (
            f"{wrong} of {show_counted(len(rows), 'answer')} have another length than asked ({off * 100:+.1f} % tokens)"
        )
        return Check("V3", INVALID, text, "the model's context may be shorter than --isl + --osl")
    return Check("V3", OK)


def _input_length(seen: RuleInputs) -> Check:
    rows = [row for row in seen.answered if row.n_in >= 0]
    if not rows:
        return Check("V4", NOT_ASKED, "no answer says how long its input was")
    mean, asked = statistics.fmean(row.n_in for row in rows), statistics.fmean(row.asked_in for row in rows)
    if abs(mean / asked - 1) > seen.limit("V4.share"):
        return Check("V4", SUSPECT, f"inputs have {mean:.0f} tokens in the mean, {asked:.0f} were asked for")
    return Check("V4", OK)


def _count_disagrees(seen: RuleInputs) -> Check:
    unsaid = sum(1 for row in seen.answered if row.n_out < 0)
    if unsaid:
        text = (
            f"{show_counted(unsaid, 'answer')} of {len(seen.answered)} without `usage`: their tokens cannot be counted"
        )
        return Check("V5", INVALID, text, "the server has to send usage (stream_options: include_usage)")
    more = sum(1 for row in seen.answered if len(row.chunks) > max(1, row.n_out))
    if _share(more, len(seen.answered)) > seen.limit("V5.share"):
        text = f"{show_counted(more, 'answer')} came in more pieces than `usage` counts tokens"
        return Check("V5", INVALID, text, "the server's usage is wrong")
    before, after = seen.counters
    if before is None or after is None or before.output < 0 or after.output < 0:
        return Check("V5", NOT_ASKED, "the engine's own counters are not to be had")
    if any(row.status and not row.is_ok for row in (*seen.rows, *seen.warm)):
        return Check("V5", NOT_ASKED, "requests were cut: what the engine made for them is in no usage")
    ours = sum(max(0, row.n_out) for row in (*seen.rows, *seen.warm)) + seen.probed_out
    theirs = after.output - before.output
    if abs(theirs - ours) > max(1.0, seen.limit("V5.share") * ours):
        text = f"the engine made {theirs:,.0f} tokens, and the answers count {ours:,.0f}"
        return Check("V5", INVALID, text, "another client uses this engine, or answers were lost")
    return Check("V5", OK)


def _arrival_lag(seen: RuleInputs) -> Check:
    if not seen.load.is_open or math.isinf(seen.load.rate):
        return Check("V8", NOT_ASKED, "requests follow no schedule of arrivals")
    late = sorted((row.sent - row.sched) / 1e9 for row in seen.rows if row.sent)
    limit = max(seen.limit("V8.lag"), seen.limit("V8.gap") / seen.load.rate)
    lag = late[max(0, math.ceil(0.99 * len(late)) - 1)] if late else 0.0
    if lag > limit:
        bound = " behind --concurrency" if seen.load.concurrency else ""
        text = f"requests left {ms(lag)} late{bound} (p99); {ms(limit)} may be: the rate was not offered"
        return Check("V8", INVALID, text, "ask for a lower rate, or raise --concurrency")
    span = (max(row.sent for row in seen.rows) - min(row.sent for row in seen.rows)) / 1e9
    planned = (max(row.sched for row in seen.rows) - min(row.sched for row in seen.rows)) / 1e9
    if span > 0 and planned / span < seen.limit("V8.rate"):
        return Check("V8", INVALID, f"only {percent(planned / span)} of the rate was offered", "ask for a lower rate")
    return Check("V8", OK)


def _not_saturated(seen: RuleInputs) -> Check:
    if seen.load.is_open:
        return Check("V9", NOT_ASKED, "an open loop keeps no number of requests in flight")
    mean, wanted = float(seen.metrics["in_flight"]), seen.load.concurrency
    if seen.window.is_steady and mean < seen.limit("V9.share") * wanted:
        return Check("V9", SUSPECT, f"{mean:.1f} requests were in flight, {wanted} were asked for", "measure longer")
    return Check("V9", OK)


def _little(seen: RuleInputs) -> Check:
    ended = [row for row in seen.rows if row.sent and seen.window.holds(row.ended)]
    mean, seconds = float(seen.metrics["in_flight"]), seen.window.seconds
    if len(ended) < 10 or not mean or not seconds:
        return Check("V10", NOT_ASKED, "too few requests")
    product = len(ended) / seconds * statistics.fmean((row.ended - row.sent) / 1e9 for row in ended)
    # What is cut off at both ends of the window weighs as much as is in flight there.
    edge = 2 * mean / len(ended)
    if abs(mean - product) / mean > seen.limit("V10.share") + edge:
        text = (
            f"{mean:.1f} requests in flight, and rate times latency is {product:.1f}: the records contradict themselves"
        )
        return Check("V10", INVALID, text, "please report it")
    return Check("V10", OK)


def _unsteady(seen: RuleInputs) -> Check:
    rows = _arrived(seen)
    parts = _fifths(rows)
    if parts is None:
        return Check("V11", NOT_ASKED, "too few requests")
    for name, values in parts.items():
        middle = statistics.median(values)
        slopes = [(values[j] - values[i]) / (j - i) for i in range(5) for j in range(i + 1, 5)]
        drift = statistics.median(slopes) * 4 / middle if middle else 0.0
        if abs(drift) > seen.limit("V11.slope") and _beyond_noise(rows, name, drift, middle):
            text = f"{name} changed by {drift * 100:+.0f} % over the window"
            if seen.load.is_open and drift > _PILES_UP:
                return Check(
                    "V11", INVALID, f"{text}: requests arrive faster than they are answered", "ask for a lower rate"
                )
            return Check("V11", SUSPECT, text, "warm up longer, or measure longer")
        first = values[0] / middle - 1 if middle else 0.0
        if abs(first) > seen.limit("V11.first") and _beyond_noise(rows, name, first, middle):
            text = f"{name} differs by {first * 100:+.0f} % in the first fifth of the window"
            return Check("V11", SUSPECT, text, "warm up longer")
    return Check("V11", OK)


def _arrived(seen: RuleInputs) -> list[RequestRow]:
    """Answered requests that were due in the window.

    Of an open loop also those that ended after it: the more pile up, the fewer of the late ones would be left.
    """
    if not seen.load.is_open:
        return seen.mine
    return [row for row in seen.answered if seen.window.holds(row.sched)]


_TIMES: Final = {"ttft": ttft, "e2e": e2e}


def _fifths(rows: Sequence[RequestRow]) -> dict[str, list[float]] | None:
    """Median times of five stretches of arrivals, of equal length."""
    if len(rows) < 50:
        return None
    start = min(row.sched for row in rows)
    width = (max(row.sched for row in rows) - start) / 5
    parts: list[list[RequestRow]] = [[] for _ in range(5)]
    for row in rows:
        parts[min(4, int((row.sched - start) / width)) if width else 0].append(row)
    if min(map(len, parts)) < 5:
        return None
    return {
        name: [statistics.median(value for row in part if (value := of(row)) is not None) for part in parts]
        for name, of in _TIMES.items()
        if all(of(row) is not None for row in rows)
    }


def _beyond_noise(rows: Sequence[RequestRow], name: str, share: float, middle: float) -> bool:
    """Whether a change is larger than medians of so many samples differ by chance (about three standard errors)."""
    values = sorted(value for row in rows if (value := _TIMES[name](row)) is not None)
    width = values[int(len(values) * 0.75)] - values[int(len(values) * 0.25)]
    # A median's standard error is 1.25 sigma / sqrt(n), sigma is width / 1.35; of a fifth of them, and of a difference.
    error = 0.93 * width / math.sqrt(len(values) / 5) * math.sqrt(2)
    return abs(share) * middle > 3 * error


def _too_few(seen: RuleInputs) -> Check:
    count, seconds = len(seen.mine), seen.window.seconds
    longest = [value for row in seen.mine if (value := e2e(row)) is not None]
    needed = max(seen.limit("V12.window"), seen.limit("V12.e2e") * (statistics.median(longest) if longest else 0.0))
    if not seen.window.is_steady or count < seen.limit("V12.requests"):
        text = f"{show_counted(count, 'measured request')}; a p99 needs {seen.limit('V12.requests'):.0f}"
        return Check("V12", SUSPECT, text, "measure longer: leave --requests and --duration away")
    if seconds < needed:
        return Check(
            "V12", SUSPECT, f"the window is {seconds:.1f} s long and should be {needed:.1f} s", "measure longer"
        )
    return Check("V12", OK)


def _changed_engine(seen: RuleInputs) -> Check:
    before, after = seen.counters
    if seen.identity[0] != seen.identity[1]:
        text = f"the engine changed from {seen.identity[0] or '-'} to {seen.identity[1] or '-'}"
        return Check("V13", INVALID, text, "measure again")
    if before is None or after is None:
        if any(seen.identity):
            return Check("V13", OK)
        return Check("V13", NOT_ASKED, "the engine does not say what it is")
    if before.instances != after.instances or after.output < before.output:
        return Check("V13", INVALID, "an engine was restarted while it was measured", "look at its log; measure again")
    if after.preempted > before.preempted:
        text = (
            f"the engine put {show_counted(int(after.preempted - before.preempted), 'request')} back for want of memory"
        )
        return Check("V13", SUSPECT, text, "give it more KV cache, or less load")
    return Check("V13", OK)


def _fewer_workers(seen: RuleInputs) -> Check:
    if seen.workers is None:
        return Check("V14", NOT_ASKED, "the number of replicas behind this URL is unknown")
    asked, start, end = seen.workers
    if start != asked or end != asked:
        text = f"{asked} replicas were asked for; {start} were ready at the start, {end} at the end"
        return Check("V14", INVALID, text, "wait until all are ready: remuda status")
    return Check("V14", OK)


def _cache_state(seen: RuleInputs) -> Check:
    hits = _hit_share(seen)
    if hits is None:
        return Check("V15", NOT_ASKED, "neither the engine nor the answers say what its cache knew")
    least, most = hits
    declared = seen.cache.share
    bound = seen.limit("V15.cold" if seen.cache.kind == "cold" else "V15.share")
    low = 0.0 if seen.cache.kind == "cold" else declared - bound
    if least > declared + bound or most < low:
        known = percent(most if most < low else least)
        text = f"the cache knew {known} of the input, and {seen.cache} was declared ({percent(declared)})"
        hint = (
            "use another --seed, or restart the engine"
            if seen.cache.kind == "cold"
            else "see that prefix caching is on"
        )
        return Check("V15", INVALID, text, hint)
    return Check("V15", OK)


def _hit_share(seen: RuleInputs) -> tuple[float, float] | None:
    """Share of input tokens that a prefix cache knew, without what the chat template alone gives: at least, at most."""
    told, counted = _told_hits(seen), _counted_hits(seen)
    if told is None or counted is None:
        return counted if told is None else (told, told)
    # Some servers tell 0 in each answer and count better.
    return max(told, counted[0]), max(told, counted[1])


def _told_hits(seen: RuleInputs) -> float | None:
    rows = [row for row in seen.answered if row.cached >= 0 and row.n_in > 0]
    if seen.template < 0 or not rows or len(rows) < len(seen.answered):
        return None
    known = sum(max(0, row.cached - seen.template) for row in rows)
    return _share(known, sum(max(1, row.n_in - seen.template) for row in rows))


def _counted_hits(seen: RuleInputs) -> tuple[float, float] | None:
    """By the engine's counter, which does not tell the warm-up and the template from the rest."""
    before, after = seen.counters
    total = sum(max(0, row.n_in) for row in seen.answered)
    if before is None or after is None or before.hits < 0 or after.hits < before.hits or not total:
        return None
    hits = after.hits - before.hits
    others = sum(max(0, row.n_in) for row in seen.warm) + seen.base * len(seen.answered)
    return max(0.0, hits - others) / total, min(1.0, hits / total)


def _cold_engine(seen: RuleInputs) -> Check:
    if not seen.warm:
        return Check("V16", SUSPECT, "there was no warm-up", "leave --warmup 0 away")
    mine = sorted(value for row in seen.mine if (value := ttft(row) or e2e(row)) is not None)
    first = [value for row in sorted(seen.answered, key=lambda r: r.sched)[:3] if (value := ttft(row) or e2e(row))]
    if not mine or not first or (seen.load.is_open and math.isinf(seen.load.rate)):
        return Check("V16", NOT_ASKED, "too few requests")
    middle = statistics.median(mine)
    if min(first) > seen.limit("V16.times") * middle:
        text = f"the first requests took {ms(min(first))}, the median is {ms(middle)}: the engine still warmed up"
        return Check("V16", INVALID, text, "warm up longer: --warmup N")
    return Check("V16", OK)


def _clock(seen: RuleInputs) -> Check:
    wrong = sum(
        1 for row in seen.rows
        if (row.first and not row.sent <= row.first <= row.last <= row.ended) or (row.sent and row.ended < row.sent)
    )  # fmt: skip
    if wrong:
        return Check("V17", INVALID, f"the times of {show_counted(wrong, 'request')} go backwards", "please report it")
    return Check("V17", OK)


def _wrong_target(seen: RuleInputs) -> Check:
    if seen.retries > 0:
        text = f"a router sent {show_counted(seen.retries, 'request')} again: their latency holds two tries"
        return Check("V18", SUSPECT, text, "see why a replica failed")
    lists = [names for names in seen.served if names is not None]
    if not lists:
        return Check("V18", NOT_ASKED, "the endpoint lists no models")
    if any(seen.model not in names for names in lists):
        return Check("V18", INVALID, f"the endpoint does not list {seen.model!r}", "name what it serves with --model")
    if any(len(set(names)) > 1 for names in lists):
        return Check("V18", SUSPECT, f"{len(set(lists[0]))} models are served here, and share it", "measure one alone")
    return Check("V18", OK)


def _output_junk(seen: RuleInputs) -> Check:
    sampled = [row for row in seen.mine if row.text or (row.n_out > 0 and not row.chunks)] or [
        r for r in seen.rows if r.text
    ]
    texts = [row.text for row in sampled if row.text]
    if not texts:
        return Check("V19", NOT_ASKED, "no answer was kept to look at")
    text = texts[0]
    words = text.split() or list(text)
    most = Counter(words).most_common(1)[0][1] if words else 0
    if not text.strip() or "\ufffd" * 3 in text:
        return Check(
            "V19", SUSPECT, f"an answer is {'empty' if not text.strip() else 'no text'}", "look at what it answers"
        )
    if len(words) >= 8 and most / len(words) > seen.limit("V19.share"):
        return Check(
            "V19", SUSPECT, f"{percent(most / len(words))} of an answer is the same word", "look at what it answers"
        )
    return Check("V19", OK)


def _token_times(seen: RuleInputs) -> Check:
    if not seen.load.stream:
        return Check("V21", NOT_ASKED, "answers are not streamed")
    rows = [row for row in seen.answered if row.n_out > 0]
    mute = sum(1 for row in rows if not row.chunks)
    if _share(mute, len(rows)) > seen.limit("V21.mute"):
        text = f"{show_counted(mute, 'answer')} of {len(rows)} count tokens, and no piece holds any: there is no TTFT"
        return Check("V21", INVALID, text, "the server sends text in a field that is not known here")
    long = [row for row in rows if row.n_out > 1 and row.chunks]
    whole = sum(1 for row in long if row.chunks[0] == row.chunks[-1])
    if _share(whole, len(long)) > seen.limit("V21.share"):
        text = f"{show_counted(whole, 'answer')} of {len(long)} came in one read: there is no TPOT"
        return Check("V21", SUSPECT, text, "see whether a proxy buffers the stream")
    unsure = [row for row in long if not row.is_sure]
    if _share(len(unsure), len(long)) > seen.limit("V21.share"):
        tokens, pieces = sum(row.n_out for row in unsure), sum(len(row.chunks) for row in unsure)
        text = f"pieces hold {tokens / pieces:.1f} tokens in the mean, and the server does not say how many each"
        return Check("V21", SUSPECT, f"{text}: TPOT is a guess", "have it send one token a piece, or its usage in each")
    return Check("V21", OK)


_RULES: Final[tuple[Callable[[RuleInputs], Check], ...]] = (
    _no_output, _errors, _wrong_length, _input_length, _count_disagrees, client_rules.lag, client_rules.cpu,
    _arrival_lag, _not_saturated, _little, _unsteady, _too_few, _changed_engine, _fewer_workers, _cache_state,
    _cold_engine, _clock, _wrong_target, _output_junk, lambda seen: energy.check(seen.energy), _token_times,
)  # fmt: skip
