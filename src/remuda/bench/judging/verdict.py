"""The words of a judgement: states, thresholds, and the verdict over all rules. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.base.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OK: Final = "ok"
SUSPECT: Final = "suspect"
INVALID: Final = "invalid"
NOT_ASKED: Final = "not asked"
VALID: Final = "valid"
#: The verdict over another tool's point, whose load nobody here saw. It never counts: to others it is a suspect one.
IMPORTED: Final = "imported"

#: What each rule measures against, stored in each point that was judged by it. Durations are seconds, shares are
#: between 0 and 1.
THRESHOLDS: Final[Mapping[str, float]] = {
    "V1.share": 0.0, "V2.invalid": 0.01, "V2.suspect": 0.0, "V3.share": 0.01, "V3.total": 0.02, "V4.share": 0.05,
    "V5.share": 0.01, "V6.lag": 0.002, "V6.valid": 0.02, "V6.suspect": 0.05, "V6.stop": 0.25, "V7.cpu": 0.8,
    "V7.throttled": 0.0, "V7.waiting": 0.2, "V8.lag": 0.005, "V8.gap": 0.1, "V8.rate": 0.98, "V9.share": 0.95,
    "V10.share": 0.05, "V11.slope": 0.05, "V11.first": 0.1, "V12.window": 30.0, "V12.e2e": 10.0, "V12.requests": 300,
    "V15.cold": 0.02, "V15.share": 0.05, "V16.times": 3.0, "V19.share": 0.9,
    "V21.mute": 0.01, "V21.share": 0.1,
}  # fmt: skip
#: Rules where a larger value demands more.
_STRICTER_UP: Final = frozenset({"V8.rate", "V9.share", "V12.window", "V12.e2e", "V12.requests", "V19.share"})
NAMES: Final = {
    "V1": "no_output", "V2": "errors", "V3": "wrong_length", "V4": "input_length", "V5": "count_disagrees",
    "V6": "client_lag", "V7": "client_cpu", "V8": "arrival_lag", "V9": "not_saturated", "V10": "little",
    "V11": "unsteady", "V12": "too_few", "V13": "changed_engine", "V14": "fewer_workers", "V15": "cache_state",
    "V16": "cold_engine", "V17": "clock", "V18": "wrong_target", "V19": "output_junk", "V20": "energy",
    "V21": "token_times",
}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """What one rule found."""

    code: str
    state: str
    text: str = ""
    hint: str = ""

    @property
    def name(self) -> str:
        """Its word."""
        return NAMES[self.code]


def read_thresholds(said: Mapping[str, object]) -> dict[str, float]:
    """All thresholds, with those that the user changed.

    Raises:
        InputError: there is none of that name, or the value is no number or duration.
    """
    found = dict(THRESHOLDS)
    for name, value in said.items():
        if name not in found:
            near = difflib.get_close_matches(name, found, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(found)}"
            raise InputError(f"there is no threshold {name!r}", where="validity", hint=hint)
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise InputError(f"{name} must be a number or a duration, not {value!r}", where="validity")
        text = str(value).strip()
        try:
            found[name] = float(text[:-1]) / 100 if text.endswith("%") else parse_duration(value)
        except (InputError, ValueError) as error:
            hint = f"write {name}={THRESHOLDS[name]:g}, or a duration like 5s, or a share like 10%"
            raise InputError(
                f"{name} must be a number or a duration, not {text!r}", where="validity", hint=hint
            ) from error
    return found


def loosened(thresholds: Mapping[str, float]) -> list[str]:
    """Thresholds that demand less than ours, as `V12.window=5`."""
    return [
        f"{name}={thresholds[name]:g}"
        for name, ours in THRESHOLDS.items()
        if name in thresholds and (thresholds[name] < ours if name in _STRICTER_UP else thresholds[name] > ours)
    ]


def verdict_of(checks: Sequence[Check]) -> str:
    """The worst of them."""
    states = {check.state for check in checks}
    return next((state for state in (INVALID, SUSPECT) if state in states), VALID)
