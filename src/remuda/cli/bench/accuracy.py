"""`bench accuracy`: questions with known answers, asked by lm-eval, and what came of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from remuda.base.units import show_count
from remuda.cli.lazy import drawn, examples
from remuda.cli.show import echo, pairs, print_json, say, table

if TYPE_CHECKING:
    from remuda.bench.point import Point

_WHO: Final = ("name", "endpoint", "model", "api", "concurrency", "api_key", "meta")
"""Fields of a benchmark that say who is asked, and how."""
_COUNT: Final = click.IntRange(min=1)


@click.command(
    epilog=examples(
        "remuda bench accuracy sums --name chat",
        "remuda bench accuracy gsm8k --endpoint http://host:8000/v1 --limit 200",
        "remuda bench accuracy gpqa --name chat --hub-token-env HF_TOKEN",
    )
)
@click.argument("tasks", nargs=-1, required=True, metavar="TASK…")
@drawn(Path(__file__).with_name("bench_options.json"), *_WHO)
@click.option("--tasks-dir", default="", metavar="DIR", help="Folder with further tasks of lm-eval (YAML).")
@click.option("--limit", type=_COUNT, default=None, metavar="N", help="Questions of each task, from the first.")
@click.option("--num-fewshot", type=click.IntRange(min=0), metavar="N", help="Examples before each question.")
@click.option("--max-tokens", type=_COUNT, metavar="N", help="Longest answer, in place of the task's.")
@click.option("--hub-token-env", "token_env", default="", metavar="VARIABLE", help="Variable with the hub's token.")
@click.option("--again", is_flag=True, help="Ask all questions again.")
@click.option("--allow-suspect", is_flag=True, help="Exit with 0 where a few questions have no answer.")
@click.option("--json", "as_json", is_flag=True, help="Print the point as JSON.")
def accuracy(tasks: tuple[str, ...], again: bool, allow_suspect: bool, as_json: bool, **options: Any) -> int:
    """Ask questions with known answers, and score the replies with lm-eval.

    TASK is a task of lm-eval, `mmlu` or `gpqa`; `sums` needs no download. Answers are stored: re-run the same command
    after an interruption, and only the missing ones are asked. Questions without an answer are counted, not scored.

    Exit code 10: more than 1 % have no answer; 11: some have none.
    """
    from remuda.batch.show import ProgressView
    from remuda.cli.bench.bench import overrides
    from remuda.client.bench import accuracy as control
    from remuda.client.bench import benchmarks, job

    own = {name: options.pop(name) for name in ("limit", "num_fewshot", "max_tokens", "tasks_dir", "token_env")}
    questions = control.Questions(tasks, **{name: value for name, value in own.items() if value is not None})
    found = control.find(questions)
    plan = benchmarks.plan(benchmarks.read(None, overrides(options)), say)
    with ProgressView() as view:
        made = control.measure(questions, found, plan, benchmarks.store(), view.update, again=again)
    if as_json:
        print_json(benchmarks.to_json([made])[0])
    else:
        if made.is_stored:
            say("stored result; --again asks all of it again")
        tell(made.point)
    return job.exit_code([made.point], allow_suspect=allow_suspect)


def tell(point: Point) -> None:
    """One point with all of its scores."""
    from remuda.client.bench import benchmarks

    known = point.accuracy or {}
    rows = [[one["task"], one["metric"], one["filter"], f"{one['value']:.4f}",
             "–" if one["stderr"] is None else f"{one['stderr']:.4f}", show_count(one["n"]),
             "–" if one["few_shot"] is None else str(one["few_shot"]), one["version"]]
            for one in known["scores"]]  # fmt: skip
    table(("task", "metric", "filter", "score", "stderr", "questions", "few-shot", "version"), rows,
          empty="no question was answered")  # fmt: skip
    echo()
    asked = f"{show_count(known['asked'])} questions, {known['failed']} without an answer"
    template = "the server's, as chat" if known["api"] == "chat" else "none"
    pairs([
        ("point", f"{point.name}: {point.verdict}"), ("model", point.model), ("endpoint", point.endpoint),
        ("engine", point.engine), ("asked", asked),
        ("cut off", f"{known['cut']} answers were as long as they may be" if known["cut"] else ""),
        ("chat template", template), ("lm-eval", known["lm_eval"]),
        ("when", datetime.fromtimestamp(point.started_at).astimezone().strftime("%Y-%m-%d %H:%M")),
        ("files", str(benchmarks.store().folder(point))),
    ])  # fmt: skip
    for check in point.reasons:
        echo(f"{point.name} {check.state}: {check.code} {check.name}: {check.text}")
        echo(f"  {check.hint}")
