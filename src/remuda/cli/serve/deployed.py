"""A deployment with a benchmark, seen from here until it has ended with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.cli import plans, watch
from remuda.cli.bench.bench import _rows
from remuda.cli.jobs import following
from remuda.cli.show import echo, print_json, say, table
from remuda.client import submission
from remuda.client.bench import deployed
from remuda.client.bench.deployed import TASK
from remuda.client.http import connect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.client.bench.deployed import BenchmarkEnd


def follow(words: Mapping[str, Any], *, as_json: bool) -> int:
    """Bring it up, and where it has a benchmark show what that writes, and say what came of it; its exit code.

    Args:
        words: of `apply`.
        as_json: print JSON.

    Raises:
        LeftRunning: Ctrl-C, once it was up.
        RemudaError: it failed, or was taken down before.
    """
    planned = submission.ask("deployment", **words)
    plans.tell(planned)
    (one,) = planned["plans"]
    bench = one["spec"]["benchmark"]
    if (kind := bench["type"]) == "lm-eval":
        from remuda.client.bench import accuracy
        from remuda.specs.benchmark import QuestionFields

        accuracy.check(
            QuestionFields.model_validate({name: bench[name] for name in QuestionFields.model_fields if name in bench})
        )
    view = watch.until_up(submission.send(planned, repeats=True)[0], one)
    name = view["name"]
    if not as_json:
        watch.announce(view)
    elif kind == "manual":
        print_json(view)
    say(f"files: {view['labels'].get('directory', '')}")
    if kind == "manual":
        return 0
    say(f"its benchmark begins; Ctrl-C leaves all of it running (end it with: remuda down {name})")
    is_load = kind != "custom"
    client = connect()
    try:
        following.print_output(client, name, TASK, say if is_load or as_json else echo)
        end = deployed.ended(client, name)
    except KeyboardInterrupt:
        hint = f"its benchmark: remuda logs {name} --task {TASK} -f; end: remuda down {name}"
        raise following.LeftRunning(f"{name} keeps running without this terminal", hint=hint) from None
    _show(end, as_json=as_json)
    return end.exit_code


def _show(end: BenchmarkEnd, *, as_json: bool) -> None:
    points = end.points()
    if as_json:
        print_json({
            "name": end.view["name"], "phase": end.view["phase"], "exit_code": end.exit_code,
            "folder": str(end.folder), "verdict": end.verdict.get("verdict", ""),
            "points": [point.to_json() for point in points],
        })  # fmt: skip
        return
    if points:
        columns, rows = _rows(points)
        table(columns, rows)
    said = f": {end.verdict['verdict']}" if end.verdict.get("verdict") else ""
    say(f"{end.view['name']} has ended with its benchmark (code {end.exit_code}){said}; results: {end.folder}")
