"""Rows that begin alike, asked one after the other, on a real engine: same output, less to compute."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from remuda.batch.driver import run_job
from remuda.batch.request import JobRequest, Summary
from remuda.enter import words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.component.serving.conftest import Server

pytestmark = pytest.mark.real
GROUPS, MEMBERS, SLOTS = 24, 8, 4
WORDS = ["horse", "mule", "fox", "crow", "river", "barn", "hill", "road", "creek", "gate", "sky", "trail"]


def prompts() -> list[str]:
    """Groups of prompts with a long beginning in common, shuffled; each has a length of its own."""
    chance = random.Random(3)
    made = []
    for group in range(GROUPS):
        begin = " ".join(chance.choice(WORDS) for _ in range(100 + group * MEMBERS))
        made += [f"{begin} the {' '.join(['owl'] * (member + 1))}" for member in range(MEMBERS)]
    chance.shuffle(made)
    return made


def test_same_output_and_less_to_compute(serve: Callable[..., Server], tiny_model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"prompt": prompts()}), source)
    argv = [sys.executable, *words("llamacpp"), "--model", str(tiny_model), "--alias", "tiny"]
    argv += ["--port", "{port}", "--threads", "1", "--parallel", str(SLOTS), "--ctx-size", "1024", "--cache-ram", "0"]

    def ask(order: str) -> tuple[Summary, pa.Table]:
        server, output = serve(argv), tmp_path / f"{order}.parquet"
        request = JobRequest(server.url, "tiny", str(source), str(output), order=order, job_kwargs={"max_tokens": 2})
        summary = run_job(request)
        server.end()
        return summary, pq.read_table(output)

    (plain, by_input), (ordered, by_prefix) = ask("input"), ask("auto")
    assert (plain.order, plain.lanes) == ("input", 0)
    assert (ordered.order, ordered.lanes) == ("prefix", SLOTS), "as many lanes as the engine says that it has slots"
    assert by_prefix.column("prompt").to_pylist() == prompts()
    # The number of its tokens tells which prompt an answer belongs to.
    assert by_prefix.column("prompt_tokens") == by_input.column("prompt_tokens")
    assert by_prefix.column("error").null_count == GROUPS * MEMBERS
    computed = [summary.prompt_tokens - summary.cached_tokens for summary in (plain, ordered)]
    assert computed[1] < 0.7 * computed[0]
