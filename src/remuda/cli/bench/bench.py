"""`bench [run] | list | show | compare | report`: put an endpoint under load, and say whether the numbers count."""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from remuda.base.units import show_money, show_ms, show_number
from remuda.cli.bench import accuracy, search
from remuda.cli.bench import files as bench_files
from remuda.cli.bench.points import compare, report
from remuda.cli.lazy import Headed, NearGroup, drawn, dry, examples, together
from remuda.cli.show import console, echo, is_terminal, pairs, print_json, say, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from remuda.bench.generator.load_workers import LoadProgress
    from remuda.bench.load import Load
    from remuda.bench.point import Point
    from remuda.client.bench.benchmarks import BenchPlan, Measured
    from remuda.specs.reading.resolve import Override

_COLUMNS: Final = (
    "point", "load", "requests", "ttft p50", "ttft p99", "tpot p50", "tpot p99", "out tok/s", "req/s",
)  # fmt: skip
_OURS: Final = frozenset({"file", "as_json", "again", "allow_suspect", "allow_changed_rules", "detach", "dry_run"})
_PAIRS: Final = frozenset({"headers", "meta", "validity"})


_load_options = together(
    drawn(Path(__file__).with_name("bench_options.json")),
    click.option("--again", is_flag=True, help="Re-run points that already have results."),
    click.option("--detach", is_flag=True, help="Return at once and run as a job; follow it with remuda job wait."),
    dry("Show what --detach would start, and start nothing."),
    click.option("--allow-suspect", is_flag=True, help="Exit with 0 for suspect points."),
    click.option("--allow-changed-rules", is_flag=True, help="Exit with 0 for points valid under changed rules."),
    click.option("--json", "as_json", is_flag=True, help="Print the points as JSON."),
)


_HEADINGS: Final = {
    "Common": "config maximise min max name endpoint model isl osl concurrency rate slo detach dry-run verbose json",
    "Load": "requests duration warmup arrival burstiness trace trace-unit range-ratio cache no-stream api timeout seed",
    "Endpoint": "header extra-body api-key-env insecure ca-file",
    "Verdict": "goodput validity repeats again allow-suspect allow-changed-rules",
    "Cost": "gpus gpu-type price prices meta",
}


@click.group(
    cls=NearGroup,
    headings=_HEADINGS,
    invoke_without_command=True,
    epilog=examples(
        "remuda bench --name chat --isl 1024 --osl 256 --concurrency 1,8,64",
        "remuda bench --endpoint http://host:8000/v1 --rate 2,4 --slo ttft_p99=500ms",
    ),
)
@_load_options
@click.pass_context
def bench(context: click.Context, /, **options: Any) -> int:
    """Measure an endpoint under load, and check that the numbers are valid.

    Each load is one point with a verdict: valid, suspect or invalid, with reasons. `bench list` shows stored points.

    Exit code 10: a point is invalid; 11: one is suspect.
    """
    if context.invoked_subcommand is None:
        return _run(None, options)
    if said := [name for name, value in options.items() if value]:
        raise click.UsageError(f"--{said[0].replace('_', '-')} belongs behind the word {context.invoked_subcommand}")
    return 0


@bench.command(
    cls=Headed,
    headings=_HEADINGS,
    epilog=examples("remuda bench run -c bench.yaml", "remuda bench run -c bench.yaml --concurrency 128"),
)
@click.option("-c", "--config", "file", type=click.Path(path_type=Path), help="Benchmark document (YAML).")
@_load_options
def run(file: Path | None, **options: Any) -> int:
    """Run the benchmark that a document describes; flags override it."""
    return _run(file, options)


def _run(file: Path | None, options: dict[str, Any]) -> int:
    from remuda.base.errors import Interrupted
    from remuda.client.bench import benchmarks as control
    from remuda.client.bench.job import exit_code

    kept = control.store()
    plan = control.plan(control.read(file, _overrides(options)), say)
    if options["detach"] or options["dry_run"]:
        return _detach(plan, options)
    found: list[Measured] = []
    try:
        with _progress() as show:
            for one in control.run(plan, kept, show, again=options["again"]):
                found.append(one)
                if not options["as_json"]:
                    _tell(one)
    except KeyboardInterrupt:
        _show_table(found, as_json=options["as_json"])
        words = f"{len(found)} points are kept; the one under way was cut short and does not count"
        raise Interrupted(words, hint="re-run the same command: stored points are not measured again") from None
    _show_table(found, as_json=options["as_json"])
    return exit_code([one.point for one in found], **_allowed(options))


def _allowed(options: dict[str, Any]) -> dict[str, bool]:
    return {"allow_suspect": options["allow_suspect"], "allow_changed": options["allow_changed_rules"]}


def _detach(plan: BenchPlan, options: dict[str, Any]) -> int:
    from remuda.base.disk.paths import state_paths
    from remuda.cli import plans
    from remuda.cli.jobs.submitting import left
    from remuda.client.bench import job
    from remuda.client.http import connect
    from remuda.client.jobs import drivers
    from remuda.look import planning
    from remuda.views import job_folders

    spec = plan.spec
    place = drivers.place_of(connect(), spec.name) if spec.name else None
    folder = job_folders.JobFolder(state_paths(), job_folders.new_id(f"bench-{spec.name or 'endpoint'}"))
    file = drivers.endpoint_file(place) if place else ""
    files = job.files(plan, endpoint_file=file, **_allowed(options))
    keys = [source.key_env for source in plan.sources] + ([spec.hub_token.env] if spec.hub_token else [])
    sent = drivers.driver(folder, files, keys, place)
    answer = planning.answered([sent.plan], dry_run=options["dry_run"])
    if plans.tell(answer, dry_run=options["dry_run"], as_json=options["as_json"]):
        return 0
    what = f"{', '.join(spec.tasks) or f'{len(plan.loads)} loads'} on {plan.sources[0].base}"
    folder.begin("benchmark", what, spec.name, place.swarm.backend if place else "local")
    drivers.send(connect(), folder, sent)
    return left(folder, place)


def _overrides(options: dict[str, Any]) -> list[Override]:
    from remuda.base.errors import InputError
    from remuda.cli import typed
    from remuda.specs.reading.resolve import Override
    from remuda.specs.strict import Plain

    found: list[Override] = []
    for key, value in options.items():
        flag = f"--{key.replace('_', '-').removesuffix('s') if key == 'headers' else key.replace('_', '-')}"
        if key in _OURS or value in (None, (), False):
            continue
        if key in _PAIRS:
            if bad := next((item for item in value if item.find("=") < 1), ""):
                raise InputError(f"{bad} is not NAME=VALUE", where=flag)
            found.append(Override(key, dict(item.split("=", 1) for item in value), flag))
        elif key == "no_stream":
            found.append(Override("stream", value=False, origin="--no-stream"))
        elif key in ("api_key_env", "hub_token_env"):
            found.append(Override(key.removesuffix("_env"), {"env": value}, flag))
        elif key == "extra_body":
            found.append(Override(key, typed.json_object(value, flag), flag))
        else:
            found.append(Override(key, list(value) if isinstance(value, tuple) else Plain(value), flag))
    return found


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Load, LoadProgress], None]]:
    """One live line on a terminal; nothing elsewhere."""
    if not is_terminal():
        yield lambda _load, _live: None
        return
    with console(stderr=True).status("looking at the endpoint") as line:
        yield lambda load, live: line.update(_live_line(load, live))


def _live_line(load: Load, live: LoadProgress) -> str:
    from remuda.bench.perform import progress

    if live.line:
        return f"{load.label}: {live.line}" if load.concurrency else live.line
    if live.is_warming:
        return f"{load.label}: warming up"
    numbers = progress(live, live.rows[-100:])
    words = [
        f"{load.label}: {live.seconds:.0f} s, {len(live.rows)} requests",
        f"{numbers['rate']:.1f}/s" if numbers["rate"] else "",
        f"ttft {show_ms(numbers['ttft'])}" if numbers["ttft"] else "",
        f"tpot {show_ms(numbers['tpot'])}" if numbers["tpot"] else "",
        f"{numbers['failed']} failed" if numbers["failed"] else "",
    ]
    return " · ".join(word for word in words if word)


def _rows(points: Sequence[Point]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Columns and rows of a table of points; GPUs and money only where a point knows them."""
    shown: dict[str, Callable[[Point], str]] = {}
    if any(point.output_per_gpu is not None for point in points):
        shown["out tok/s/GPU"] = lambda point: show_number(point.output_per_gpu)
    if any(point.per_million is not None for point in points):
        shown["cost/1M out"] = lambda point: show_money(point.per_million, point.currency)
    if any(point.joules_per_token is not None for point in points):
        shown["J/token out"] = lambda point: show_number(point.joules_per_token)
    if any(point.accuracy for point in points):
        shown["score"] = lambda point: point.score or "–"
    shown["verdict"] = _verdict
    times = [(metric, statistic) for metric in ("ttft", "tpot") for statistic in ("p50", "p99")]
    rows = [
        [
            point.name, point.label, show_number(point.metrics.get("measured")),
            *(show_ms(point.of(*one)) for one in times), show_number(point.of("output_tok_s")),
            show_number(point.of("req_s")), *(of(point) for of in shown.values()),
        ] for point in points
    ]  # fmt: skip
    return (*_COLUMNS, *shown), rows


def _energy(point: Point) -> str:
    """What its GPUs used, or why that does not count; empty where they were not recorded."""
    energy = point.energy or {}
    if not energy:
        return ""
    words = f"{energy['joules']:,.0f} J, {energy['watts']:,.0f} W of {energy['gpus']} GPUs"
    if energy["invalid"]:
        return f"{words}; they do not count: {'; '.join(energy['invalid'])}"
    return f"{words}; {show_number(point.joules_per_token)} J an output token"


def _verdict(point: Point) -> str:
    words = point.verdict + (" under changed rules" if point.changed and point.verdict == "valid" else "")
    met = point.slo_met()
    return words + (
        "" if not point.slo else ", SLO met" if met else ", SLO missed" if met is False else ", SLO unknown"
    )


def _tell(one: Measured) -> None:
    """One line when a point is there: a long benchmark is not silent."""
    stored = " (stored result; --again measures it again)" if one.is_stored else ""
    say(f"{one.point.label}: {_verdict(one.point)}{stored}")


def _show_table(found: Sequence[Measured], *, as_json: bool) -> None:
    from remuda.client.bench import benchmarks as control

    if as_json:
        print_json(control.to_json(found))
        return
    points = [one.point for one in found]
    if points and all(point.accuracy for point in points):
        for point in points:
            accuracy.tell(point)
    else:
        columns, rows = _rows(points)
        table(columns, rows, empty="nothing was measured")
    for point in points:
        for line in _reasons(point):
            echo(line)


def _measured(point: Point) -> str:
    counts = f"{point.metrics.get('measured', 0)} of {point.metrics.get('requests', 0)} requests"
    return f"{counts} in {point.metrics.get('window_s', 0.0):.1f} s"


def _cost(point: Point) -> str:
    """What it cost, and by which price; empty without."""
    cost = point.cost or {}
    if point.per_million is None:
        return ""
    said = ", ".join(word for word in (cost["source"], f"as of {cost['as_of']}" if cost["as_of"] else "") if word)
    price = f"{cost['gpus']} GPUs at {cost['per_gpu_hour']:g} {point.currency} an hour"
    return f"{show_money(point.per_million, point.currency)} for 1M output tokens: {price}" + (
        f" ({said})" if said else ""
    )


def _reasons(point: Point) -> list[str]:
    lines = (
        [f"{point.name} is {point.verdict} under changed rules: {', '.join(point.changed)}"] if point.changed else []
    )
    for check in point.reasons:
        lines.append(f"{point.name} {check.state}: {check.code} {check.name}: {check.text}")
        if check.hint:
            lines.append(f"  {check.hint}")
    return lines


@bench.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List stored points, oldest first."""
    from remuda.client.bench import benchmarks as control

    points = control.store().points()
    if as_json:
        print_json([point.to_json() for point in points])
        return
    columns, rows = _rows(points)
    rows = [[*row, point.model, point.endpoint] for row, point in zip(rows, points, strict=True)]
    table((*columns, "model", "endpoint"), rows, empty="no points yet; measure: remuda bench --endpoint URL")


@bench.command()
@click.argument("point")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(point: str, as_json: bool) -> None:
    """Show one point: its numbers and the verdict of each rule."""
    from remuda.bench.judging.verdict import NOT_ASKED, OK
    from remuda.client.bench import benchmarks as control

    kept = control.store()
    found = kept.find(point)
    if as_json:
        print_json({**found.to_json(), "folder": str(kept.folder(found))})
        return
    if found.accuracy:
        accuracy.tell(found)
        return
    load = found.load
    pairs([
        ("point", f"{found.name}: {_verdict(found)}"), ("model", found.model), ("endpoint", found.endpoint),
        ("source", found.source if found.source != "remuda" else ""),
        ("engine", found.engine), ("load", f"{load.label}, {load.isl} in, {load.osl} out, cache {load.cache}"),
        ("input lengths", found.lengths),
        ("measured", _measured(found)),
        ("cost", _cost(found)),
        ("energy", _energy(found)),
        ("when", datetime.fromtimestamp(found.started_at).astimezone().strftime("%Y-%m-%d %H:%M")),
        ("files", str(kept.folder(found))),
    ])  # fmt: skip
    echo()
    names = ("mean", "p50", "p90", "p95", "p99", "max")
    timed = [name for name in ("ttft", "tpot", "icl", "e2e") if isinstance(found.metrics.get(name), dict)]
    table(("", *names), [[name, *(show_ms(found.of(name, one)) for one in names)] for name in timed])
    echo()
    rows = [
        [check.code, check.name, check.state, check.text or ("" if check.state in (OK, NOT_ASKED) else check.hint)]
        for check in found.checks
    ]
    table(("rule", "", "state", "why"), rows)


bench.add_command(search.command(_load_options, _HEADINGS))
bench.add_command(accuracy.command(_run))
bench.add_command(bench_files.export)
bench.add_command(bench_files.import_)
bench.add_command(compare)
bench.add_command(report)
