"""Results of other tools as points. Pure.

They are read, not judged: nobody here saw the load, so of our rules only those are asked that a file can answer, and
such a point is `imported` at best.
"""

from __future__ import annotations

import hashlib
import json
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.base.text import clean
from remuda.bench.judging.verdict import IMPORTED, INVALID, NAMES, NOT_ASKED, OK, SUSPECT, Check, verdict_of
from remuda.bench.load import NEEDED, Load
from remuda.bench.point import Hardware, Point
from remuda.bench.reporting.formats import METRICS, SETTABLE, STATISTICS

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Other words for the same: SGLang's.
_ALIASES: Final = {"e2e_latency": "e2el"}
_FORMATS: Final = (
    "import a result of `vllm bench serve`, sglang.bench_serving or sa-bench, or an aggregate of InferenceX"
)
_UNSEEN: Final = "imported: remuda did not run the load"


def read(text: str, name: str) -> list[Point]:
    """All results of a file: one object, a list, or an object a line.

    Args:
        text: of the file.
        name: what messages call it.

    Raises:
        InputError: it is none of these; says file and line.
    """
    return [_point(data, where) for data, where in _objects(text, name)]


def _objects(text: str, name: str) -> list[tuple[dict[str, Any], str]]:
    lines = [(line, f"{name}:{number}") for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise InputError("is empty", where=name, hint=_FORMATS)
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        if len(lines) == 1 or not _is_object(lines[0][0]):
            raise _no_json(error, name) from error
        return [_object(_line(line, where), where) for line, where in lines]
    if isinstance(whole, list):
        return [_object(item, f"{name}, result {number}") for number, item in enumerate(whole, 1)]
    return [_object(whole, name)]


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _line(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _no_json(error, where, in_line=True) from error


def _no_json(error: Exception, where: str, *, in_line: bool = False) -> InputError:
    if isinstance(error, json.JSONDecodeError):
        place = f"{where}:{error.colno}" if in_line else f"{where}:{error.lineno}:{error.colno}"
        return InputError(f"is not valid JSON: {error.msg}", where=place, hint="it may be cut short: write it again")
    return InputError("is not readable JSON: too deep, or a number is too long", where=where, hint=_FORMATS)


def _object(data: Any, where: str) -> tuple[dict[str, Any], str]:
    if not isinstance(data, dict):
        raise InputError("is not a result: an object is needed", where=where, hint=_FORMATS)
    return data, where


def _point(data: dict[str, Any], where: str) -> Point:
    numbers = _Numbers(data, where)
    if "completed" in data and "request_throughput" in data:
        return _of_vllm(data, numbers)
    if "tput_per_gpu" in data and "hw" in data:
        return _of_inferencex(data, numbers)
    raise InputError(
        "is not a result of a known tool: it has neither `completed` and `request_throughput` nor `hw`, `tput_per_gpu`",
        where=where, hint=_FORMATS,
    )  # fmt: skip


class _Numbers:
    """Numbers of one result; whoever asks for one that is none is told where it stands."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self._data = data
        self._where = where

    def get(self, name: str) -> float | None:
        """A number that is not negative; None where there is none."""
        value = self._data.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, "which is not a number")
        if isinstance(value, float) and math.isnan(value):
            return None  # What has no samples.
        if value < 0 or abs(value) > 1e15:
            raise self.wrong(name, "which cannot be")
        return float(value)

    def count(self, name: str) -> int | None:
        """A whole number."""
        value = self.get(name)
        if value is not None and value != int(value):
            raise self.wrong(name, "which is not a whole number")
        return None if value is None else int(value)

    def need(self, name: str) -> float:
        """A number that has to be there."""
        value = self.get(name)
        if value is None:
            raise InputError(f"has no {name}", where=self._where, hint="it may be the result of a run that failed")
        return value

    def rate(self, name: str) -> float:
        """A rate, which may be `inf`; 0 where there is none."""
        value = self._data.get(name)
        if value in ("inf", math.inf):
            return math.inf
        return self.get(name) or 0.0

    def lengths(self, name: str) -> list[int]:
        """A list of token counts; empty where there is none."""
        value = self._data.get(name) or []
        if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
            raise self.wrong(name, "which is not a list of token counts")
        return value

    def wrong(self, name: str, why: str) -> InputError:
        """The error of a value."""
        shown = json.dumps(self._data[name])
        shown = shown if len(shown) <= 60 else f"{shown[:60]} …"
        return InputError(
            f"has {name} = {shown}, {why}", where=self._where, hint="import the file as its tool wrote it"
        )


def _of_vllm(data: Mapping[str, Any], numbers: _Numbers) -> Point:
    completed = int(numbers.need("completed"))
    seconds = numbers.need("duration")
    tokens_in, tokens_out = int(numbers.need("total_input_tokens")), int(numbers.need("total_output_tokens"))
    asked = numbers.count("num_prompts") or completed
    rate, bound = numbers.rate("request_rate"), numbers.count("max_concurrency") or 0
    lengths = numbers.lengths("output_lens")
    errors = data.get("errors") if isinstance(data.get("errors"), list) else []
    broken = sum(1 for error in errors or () if error)
    failed = max(asked - completed, numbers.count("failed") or 0, broken)
    # An answer without a token counts as completed there; one that failed has no tokens either.
    empty = max(0, lengths.count(0) - broken)
    metrics = {
        "requests": max(asked, completed), "measured": completed, "failed": failed, "window_s": seconds,
        "input_tokens": tokens_in, "output_tokens": tokens_out, "req_s": numbers.need("request_throughput"),
        "output_tok_s": numbers.need("output_throughput"), **_known("goodput_req_s", numbers.get("request_goodput")),
        **_known("total_tok_s", _total(numbers, seconds, tokens_in + tokens_out)),
        **_times(data, numbers, suffix="_ms", unit=1000.0, samples=completed),
    }  # fmt: skip
    load = Load(
        isl=max(1, round(tokens_in / completed)) if completed else 1, requests=asked,
        osl=max(1, round(tokens_out / completed)) if completed else 1,
        # A closed loop is «all at once, but no more than that» there.
        concurrency=bound if bound or rate else 1, rate=0.0 if bound and math.isinf(rate) else rate,
        api="completions" if data.get("backend") in ("openai", "vllm", "sglang") else "chat",
    )  # fmt: skip
    is_sglang = any("e2e_latency" in name for name in data)
    model = next((text for name in ("model_id", "model", "model_name") if (text := data.get(name))), "")
    checks = {"V1": _output(completed, tokens_out, empty), "V2": _failures(failed, max(asked, completed))}
    return _whole(data, "sglang" if is_sglang else "vllm", str(model), load, metrics, checks)


def _total(numbers: _Numbers, seconds: float, tokens: int) -> float | None:
    said = numbers.get("total_token_throughput") or numbers.get("total_throughput")
    return said or (tokens / seconds if seconds else None)


def _of_inferencex(data: Mapping[str, Any], numbers: _Numbers) -> Point:
    reading, writing = numbers.count("num_prefill_gpu") or 0, numbers.count("num_decode_gpu") or 0
    split = reading + writing if data.get("disagg") in (True, "true") else 0
    gpus = split or numbers.count("tp") or reading + writing
    total = numbers.need("tput_per_gpu") * gpus
    out = numbers.get("output_tput_per_gpu")
    times = _times(data, numbers, suffix="", unit=1.0, samples=None)
    metrics = {
        **_known("total_tok_s", total if gpus else None),
        **_known("output_tok_s", out * (writing if split else gpus) if out is not None and gpus else None), **times,
    }  # fmt: skip
    load = Load(
        isl=max(1, numbers.count("isl") or 1), osl=max(1, numbers.count("osl") or 1),
        concurrency=max(1, int(numbers.need("conc"))),
    )  # fmt: skip
    checks = {"V1": _output(1, 0 if out == 0 else 1, 0)} if out is not None else {}
    hardware = Hardware(gpus, clean(str(data["hw"]), one_line=True))
    return _whole(data, "inferencex", str(data.get("model", "")), load, metrics, checks, hardware)


def _known(name: str, value: float | None) -> dict[str, float]:
    return {} if value is None else {name: value}


def _times(
    data: Mapping[str, Any], numbers: _Numbers, *, suffix: str, unit: float, samples: int | None
) -> dict[str, Any]:  # fmt: skip
    """Statistics in seconds. A percentile of too few requests is left out, as everywhere here."""
    names = {**METRICS, **{alias: METRICS[name] for alias, name in _ALIASES.items()}}
    found: dict[str, Any] = {}
    for name, ours in names.items():
        for word, statistic in STATISTICS.items():
            key = f"{word}_{name}{suffix}"
            if key not in data or (value := numbers.get(key)) is None:
                continue
            # The gaps between reads are many in each request.
            is_few = samples is not None and ours != "icl" and samples < NEEDED.get(statistic, 0)
            found.setdefault(ours, {})[statistic] = None if is_few else value / unit
        if ours in found and samples is not None and ours != "icl":
            found[ours]["n"] = samples
    middle = found.get("tpot", {}).get("p50")
    return found | {"intvty": 1 / middle if middle else None}


def _output(completed: int, tokens: int, empty: int) -> Check:
    if not completed:
        return Check("V1", INVALID, "no request was answered", "measure again")
    if not tokens:
        return Check("V1", INVALID, "no token came out", "measure again: the engine answered without computing")
    if empty:
        return Check("V1", INVALID, f"{empty} of {completed} answers came without a token", "measure again")
    return Check("V1", OK)


def _failures(failed: int, asked: int) -> Check:
    if not failed:
        return Check("V2", OK)
    text = f"{failed} of {asked} requests failed, and are in none of the numbers"
    return Check("V2", INVALID, text, "measure again: what is left is faster than the whole")


def _whole(
    data: Mapping[str, Any], source: str, model: str, load: Load, metrics: Mapping[str, Any],
    checks: Mapping[str, Check], hardware: Hardware | None = None,
) -> Point:  # fmt: skip
    found = {**_judged(data.get("remuda")), **{code: one for code, one in checks.items() if one.state == INVALID}}
    all_checks = tuple(found.get(code) or checks.get(code) or Check(code, NOT_ASKED, _UNSEEN) for code in NAMES)
    engine = data.get("framework") or data.get("backend") or data.get("endpoint_type") or ""
    meta = {
        name: json.dumps(value) if isinstance(value, bool) else clean(str(value), one_line=True)
        for name, value in data.items()
        if name in SETTABLE and isinstance(value, (str, int, float)) and value != ""
    }
    return Point(
        id=_address(data), repeat=1, source=source, endpoint="", model=clean(model, one_line=True),
        engine=clean(str(engine), one_line=True), load=load,
        metrics=metrics, checks=all_checks, verdict=INVALID if verdict_of(all_checks) == INVALID else IMPORTED,
        hardware=hardware or Hardware(), meta=meta, started_at=_when(data.get("date")),
    )  # fmt: skip


def _judged(said: object) -> dict[str, Check]:
    """Why a point of ours did not count when it was exported; that it counted is not believed."""
    if not isinstance(said, dict) or said.get("verdict") != INVALID:
        return {}
    found = {}
    for one in said["reasons"] if isinstance(said.get("reasons"), list) else []:
        if isinstance(one, dict) and str(one.get("code")) in NAMES and one.get("state") in (INVALID, SUSPECT):
            text, hint = (clean(str(one.get(name, "")), one_line=True)[:500] for name in ("text", "hint"))
            found[one["code"]] = Check(one["code"], one["state"], text, hint)
    if verdict_of(list(found.values())) != INVALID:
        found["V1"] = Check("V1", INVALID, "it was invalid when it was exported", "measure again")
    return found


def _address(data: Mapping[str, Any]) -> str:
    """The same result has the same one, however its file is laid out."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"imported {text}".encode()).hexdigest()


def _when(date: object) -> float:
    """Seconds since 1970 of a local time as vLLM writes it, `20260924-153000`; 0 where there is none."""
    try:
        return datetime.strptime(str(date), "%Y%m%d-%H%M%S").astimezone().timestamp()
    except (ValueError, OverflowError):
        return 0.0
