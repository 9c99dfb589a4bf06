"""Points in the words of other tools: what `vllm bench serve` saves, InferenceX's aggregate, and a table. Pure.

`vllm` is the JSON that vLLM, SGLang and sa-bench write, in milliseconds; `inferencex` divides its throughput by GPUs,
is in seconds, and has `*_intvty` = 1 / tpot.
"""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.base.text import plain_cell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.bench.generator.reading import RequestRow
    from remuda.bench.point import Point

FORMATS: Final = ("vllm", "inferencex", "csv")
#: Their word for a metric, and ours. Their gap between two reads is our `icl`.
METRICS: Final = {"ttft": "ttft", "tpot": "tpot", "itl": "icl", "e2el": "e2e"}
#: Their word for a statistic, and ours.
STATISTICS: Final = {"mean": "mean", "median": "p50", "std": "std", "p90": "p90", "p95": "p95", "p99": "p99"}

#: What an aggregate says beside the measurement: what has to be known, sizes of one server, or of two kinds of them.
_ALWAYS: Final = ("hw", "image", "framework", "precision")
_WHOLE: Final = ("tp", "ep")
_SPLIT: Final = tuple(f"{role}_{name}" for role in ("prefill", "decode") for name in ("tp", "ep", "num_workers"))
_SPLIT_GPUS: Final = ("num_prefill_gpu", "num_decode_gpu")
_NUMBERS: Final = frozenset({*_WHOLE, *_SPLIT, *_SPLIT_GPUS, "prefill_pp", "decode_pp"})
_FLAGS: Final = frozenset({"disagg", "is_multinode", "dp_attention", "prefill_dp_attention", "decode_dp_attention"})
_WORDS: Final = frozenset({*_ALWAYS, "infmax_model_prefix", "spec_decoding"})
SETTABLE: Final = frozenset({*_WORDS, *_NUMBERS, *_FLAGS})


def export(points: Sequence[tuple[Point, Sequence[RequestRow]]], kind: str, said: Mapping[str, str]) -> str:
    """The text of a file.

    Args:
        points: with their measured requests, where those are kept.
        kind: one of `FORMATS`.
        said: of the user, for what an aggregate needs; before `meta` of the point.

    Raises:
        InputError: a point lacks what the format needs; says all of it.
    """
    if kind == "csv":
        return _csv([point for point, _ in points])
    lacking: list[str] = []
    found: list[dict[str, Any]] = []
    for point, rows in points:
        data, missing = _vllm(point, rows) if kind == "vllm" else _inferencex(point, said)
        lacking += [f"{point.name} lacks {', '.join(missing)}"] if missing else []
        found.append(data)
    if lacking:
        hint = (
            "say what is not measured with --set NAME=VALUE, or --meta when you measure" if kind == "inferencex" else ""
        )
        raise InputError(
            f"the format {kind} needs what is not known: {'; '.join(lacking)}", where="--format", hint=hint
        )
    if kind == "inferencex":
        return json.dumps(found[0] if len(found) == 1 else found, indent=2, allow_nan=False) + "\n"
    if len(found) == 1:
        return json.dumps(found[0], indent=2, allow_nan=False) + "\n"
    return "".join(json.dumps(data, allow_nan=False) + "\n" for data in found)


def check_set(said: Mapping[str, str], kind: str) -> None:
    """Refuse what a format has no place for.

    Raises:
        InputError: says what there is.
    """
    if said and kind != "inferencex":
        raise InputError(f"the format {kind} has nothing to set", where="--set", hint="leave it out")
    for name in said:
        if name not in SETTABLE:
            raise InputError(f"there is no {name!r}", where="--set", hint=f"there are {', '.join(sorted(SETTABLE))}")
        _value(name, said[name], "--set")


def _times(point: Point) -> dict[str, float]:
    """Statistics that are known, in seconds, by their names: `mean_ttft`, `p99_itl`."""
    found = {}
    for name, ours in METRICS.items():
        for word, statistic in STATISTICS.items():
            value = point.of(ours, statistic)
            if value is not None:
                found[f"{word}_{name}"] = value
    return found


def _missing(data: Mapping[str, Any]) -> list[str]:
    return [name for name, value in data.items() if value is None]


def _vllm(point: Point, rows: Sequence[RequestRow]) -> tuple[dict[str, Any], list[str]]:
    load, metrics = point.load, point.metrics
    failed = metrics.get("failed", 0)
    needed: dict[str, Any] = {
        "completed": metrics.get("measured"), "duration": metrics.get("window_s"),
        "total_input_tokens": metrics.get("input_tokens"), "total_output_tokens": metrics.get("output_tokens"),
        "request_throughput": point.of("req_s"), "output_throughput": point.of("output_tok_s"),
        "total_token_throughput": point.of("total_tok_s"),
    }  # fmt: skip
    data: dict[str, Any] = {
        "date": datetime.fromtimestamp(point.started_at).astimezone().strftime("%Y%m%d-%H%M%S"),
        "backend": "openai-chat" if load.api == "chat" else "openai", "model_id": point.model,
        "num_prompts": (needed["completed"] or 0) + failed, "failed": failed,
        "request_rate": load.rate if load.is_open and math.isfinite(load.rate) else "inf",
        "max_concurrency": load.concurrency or None, **needed,
    }  # fmt: skip
    if (goodput := point.of("goodput_req_s")) is not None:
        data["request_goodput"] = goodput
    data |= {f"{name}_ms": value * 1000 for name, value in _times(point).items()}
    if rows:
        data["input_lens"] = [max(0, row.n_in) for row in rows]
        data["output_lens"] = [max(0, row.n_out) for row in rows]
        data["errors"] = [row.error for row in rows]
    data["remuda"] = _judged(point)
    return data, _missing(needed)


def _judged(point: Point) -> dict[str, Any]:
    """What no other format has a place for; readers of them pass over what they do not know."""
    reasons = [{"code": one.code, "state": one.state, "text": one.text, "hint": one.hint} for one in point.reasons]
    return {"point": point.name, "verdict": point.verdict, "source": point.source, "reasons": reasons}


def _value(name: str, text: str, where: str) -> str | int | bool:
    word = text.strip()
    if name in _NUMBERS:
        if not word.isascii() or not word.isdigit() or int(word) < 1:
            raise InputError(f"{name} must be a positive whole number, not {text!r}", where=where)
        return int(word)
    if name in _FLAGS:
        if word.lower() not in ("true", "false"):
            raise InputError(f"{name} must be true or false, not {text!r}", where=where)
        return word.lower() == "true"
    return word


def _inferencex(point: Point, said: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    load = point.load
    about: dict[str, Any] = {
        name: _value(name, text, f"meta of {point.name}")
        for name, text in point.meta.items() if name in SETTABLE and name not in said
    }  # fmt: skip
    about |= {name: _value(name, text, "--set") for name, text in said.items()}
    about.setdefault("hw", point.hardware.gpu_type or None)
    if point.hardware.gpus and not about.get("disagg"):
        about.setdefault("tp", point.hardware.gpus)
    is_split = bool(about.get("disagg")) or any(name in about for name in _SPLIT_GPUS)
    defaults = {
        "infmax_model_prefix": point.model,
        "spec_decoding": "none",
        "disagg": is_split,
        "is_multinode": is_split,
    }
    needed = [*_ALWAYS, *(_SPLIT_GPUS if is_split else ("tp",))]
    total, out = point.of("total_tok_s"), point.of("output_tok_s")
    data: dict[str, Any] = {
        **{name: about.get(name) for name in needed}, "conc": None if load.is_open else load.concurrency,
        "model": point.model, "isl": load.isl, "osl": load.osl, "total_tok_s": total, "output_tok_s": out,
    }  # fmt: skip
    missing = _missing(data)
    del data["total_tok_s"], data["output_tok_s"]
    if missing or total is None or out is None:
        return data, missing
    if not is_split:
        defaults |= {"ep": 1, "dp_attention": False}
        gpus = reading = writing = point.hardware.gpus or about["tp"]
    else:
        reading, writing = about["num_prefill_gpu"], about["num_decode_gpu"]
        gpus = reading + writing
    data = {**defaults, **about, **data, "remuda": _judged(point)}
    data |= {"tput_per_gpu": total / gpus, "output_tput_per_gpu": out / writing}
    data["input_tput_per_gpu"] = (total - out) / reading
    for name, value in _times(point).items():
        data[name] = value
        if name.endswith("_tpot") and value > 0:
            data[name.replace("tpot", "intvty")] = 1 / value
    return data, []


def _csv(points: Sequence[Point]) -> str:
    rows = [_flat(point) for point in points]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _flat(point: Point) -> dict[str, Any]:
    """One row: names with `_`, times in seconds."""
    row: dict[str, Any] = {
        "point": point.name, "id": point.id, "source": point.source, "verdict": point.verdict,
        "reasons": " ".join(check.code for check in point.reasons), "slo_met": point.slo_met(),
        "endpoint": point.endpoint, "model": point.model, "engine": point.engine, **point.load.to_json(),
        "gpus": point.hardware.gpus, "gpu_type": point.hardware.gpu_type, "replicas": point.hardware.replicas,
        "started_at": point.started_at, "version": point.version,
    }  # fmt: skip
    for name, value in point.metrics.items():
        if isinstance(value, dict):
            row |= {f"{name}_{key}": one for key, one in value.items() if key != "ci95"}
        else:
            row[name] = value
    return row | {f"meta_{name}": text for name, text in point.meta.items()}
