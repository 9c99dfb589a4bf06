"""`bench accuracy`: questions with known answers, asked by lm-eval, and what came of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.base.units import show_count
from remuda.cli.lazy import drawn, examples
from remuda.cli.show import echo, pairs, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.bench.point import Point


def command(run: Callable[[Path | None, dict[str, Any]], int]) -> click.Command:
    """The command; `run` does what `bench run` does."""

    @click.command(
        epilog=examples(
            "remuda bench accuracy sums --name chat",
            "remuda bench accuracy gsm8k --endpoint http://host:8000/v1 --limit 200",
            "remuda bench accuracy gpqa --name chat --hub-token-env HF_TOKEN",
        )
    )
    @click.argument("tasks", nargs=-1, required=True, metavar="TASK…")
    @drawn(Path(__file__).with_name("accuracy_options.json"))
    @click.option("--again", is_flag=True, help="Ask all questions again.")
    @click.option("--detach", is_flag=True, help="Return at once and run as a job; follow it with remuda job wait.")
    @click.option("--allow-suspect", is_flag=True, help="Exit with 0 where a few questions have no answer.")
    @click.option("--json", "as_json", is_flag=True, help="Print the points as JSON.")
    def accuracy(**options: Any) -> int:
        """Ask questions with known answers, and score the replies with lm-eval.

        TASK is a task of lm-eval, `mmlu` or `gpqa`; `sums` needs no download. Answers are stored: re-run the same
        command after an interruption, and only the missing ones are asked. Questions without an answer are counted,
        not scored.

        Exit code 10: more than 1 % have no answer; 11: some have none.
        """
        return run(None, {**options, "dry_run": False, "allow_changed_rules": False})

    return accuracy


def tell(point: Point) -> None:
    """One point with all of its scores."""
    from remuda.client.bench import benchmarks

    known = point.accuracy or {}
    names = ("task", "metric", "filter", "value", "stderr", "n", "few_shot", "version")
    rows = [
        ["–" if one[name] is None else f"{one[name]:.4f}" if isinstance(one[name], float) else str(one[name])
         for name in names] for one in known["scores"]
    ]  # fmt: skip
    table(names, rows, empty="no question was answered")
    echo()
    pairs([
        ("point", f"{point.name}: {point.verdict}"), ("model", point.model), ("endpoint", point.endpoint),
        ("engine", point.engine),
        ("asked", f"{show_count(known['asked'])} questions, {known['failed']} without an answer"),
        ("cut off", f"{known['cut']} answers were as long as they may be" if known["cut"] else ""),
        ("chat template", "the server's" if known["api"] == "chat" else "none"), ("lm-eval", known["lm_eval"]),
        ("when", datetime.fromtimestamp(point.started_at).astimezone().strftime("%Y-%m-%d %H:%M")),
        ("files", str(benchmarks.store().folder(point))),
    ])  # fmt: skip
