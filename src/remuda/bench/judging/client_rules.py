"""Rules about the client itself: V6 and V7. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from remuda.base.units import show_ms as ms
from remuda.base.units import show_percent as percent
from remuda.bench.judging.measures import e2e, tpot, ttft
from remuda.bench.judging.verdict import INVALID, OK, SUSPECT, Check

if TYPE_CHECKING:
    from remuda.bench.judging.rules import RuleInputs


def lag(seen: RuleInputs) -> Check:
    """V6: how late it was, against the times that it measured: lateness is in the first and in the last piece."""
    spans = {"TTFT": [value for row in seen.mine if (value := ttft(row))],
             "TPOT": [(row.last - row.first) / 1e9 for row in seen.mine if tpot(row)],
             "E2E": [value for row in seen.mine if (value := e2e(row))]}  # fmt: skip
    span, name = min(((statistics.median(values), name) for name, values in spans.items() if values), default=(0.0, ""))
    late, stop = seen.client.lag_p99_s, seen.client.lag_max_s
    allowed = max(seen.limit("V6.lag"), seen.limit("V6.valid") * span)
    if stop > max(allowed, seen.limit("V6.stop")):
        return Check("V6", INVALID, f"the client stood still for {ms(stop)}", "see what stopped it; measure again")
    if late > allowed:
        text = f"the client was {ms(late)} late (p99)"
        text += f": {name} may be off by {percent(late / span)}" if span else ""
        state = SUSPECT if late <= seen.limit("V6.suspect") * span else INVALID
        return Check("V6", state, text, "run it on another machine than the engine, or with fewer streams")
    return Check("V6", OK)


def cpu(seen: RuleInputs) -> Check:
    """V7: whether it had the CPU that it needed."""
    client, hint = seen.client, "give the client CPUs of its own"
    if client.cpu_share > seen.limit("V7.cpu"):
        return Check(
            "V7", INVALID, f"a process of the client was busy for {percent(client.cpu_share)} of the time", hint
        )
    if client.throttled_s > seen.limit("V7.throttled"):
        text = f"the client was held back by the limit of its control group for {client.throttled_s:.1f} s"
        return Check("V7", INVALID, text, hint)
    if client.waiting_share > seen.limit("V7.waiting"):
        text = f"something on the client's machine waited for a CPU for {percent(client.waiting_share)} of the time"
        return Check("V7", SUSPECT, text, hint)
    return Check("V7", OK)
