"""`bench search`: the largest load that keeps an SLO."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.base.units import show_ms, show_number
from remuda.cli import typed
from remuda.cli.lazy import Headed, examples
from remuda.cli.show import echo, print_json, say, table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from remuda.bench.point import Point
    from remuda.client.bench.benchmarks import Measured
    from remuda.client.bench.search import Hunt, SearchOutcome


def command(load_options: Callable[[Any], Any], headings: Mapping[str, str]) -> click.Command:
    """The command, with the options of a load that `bench` has."""

    @click.command(
        cls=Headed,
        headings=headings,
        epilog=examples(
            "remuda bench search --name chat --maximise concurrency --slo ttft_p99=500ms,tpot_p99=30ms",
            "remuda bench search --endpoint http://host:8000/v1 --maximise rate --max 50 --slo e2e_p95=10s",
        ),
    )
    @click.option("-c", "--config", "file", type=click.Path(path_type=Path), help="Benchmark document (YAML).")
    @click.option(
        "--maximise", default="", metavar="concurrency|rate", help="Quantity to maximise: concurrency or rate."
    )
    @click.option("--min", "low", default="1", metavar="NUMBER", help="Lower bound of the search (default: 1).")
    @click.option("--max", "high", default="4096", metavar="NUMBER", help="Upper bound of the search (default: 4096).")
    @load_options
    def search(file: Path | None, maximise: str, low: str, high: str, **options: Any) -> int:
        """Find the largest load that meets an SLO.

        The load doubles until it misses the SLO; then the gap is halved, to one request in flight or 3 % of a rate.
        Each load is a point like those of `bench`: it is stored, and stored points are reused.

        Exit code 10: a load has no valid point, so there is no answer; 11: the answer rests on suspect points, or
        too few requests for a percentile.
        """
        what = typed.one_of(maximise, ("concurrency", "rate"), "--maximise")
        return _run(file, options, what, typed.number(low, "--min", "1"), typed.number(high, "--max", "64"))

    return search


def _run(file: Path | None, options: dict[str, Any], maximise: str, low: float, high: float) -> int:
    from remuda.base.errors import Interrupted
    from remuda.cli.bench.bench import _allowed, _overrides, _progress, _tell
    from remuda.client.bench import benchmarks as control
    from remuda.client.bench import search as bench_search

    kept = control.store()
    loaded = control.read(file, _overrides(options))
    hunt = bench_search.plan(loaded, say, maximise=maximise, low=low, high=high)
    say(bench_search.forecast(hunt))
    tried: list[Measured] = []

    def tell(one: Measured) -> None:
        tried.append(one)
        if not options["as_json"]:
            _tell(one)

    try:
        with _progress() as show:
            outcome = bench_search.run(hunt, kept, show, tell, again=options["again"])
    except KeyboardInterrupt:
        words = f"{len(tried)} points are kept; the one under way was cut short and does not count"
        raise Interrupted(words, hint="re-run the same command: stored points are not measured again") from None
    if options["as_json"]:
        print_json(bench_search.to_json(hunt, outcome, tried))
    else:
        _show(hunt, outcome, tried)
    return bench_search.exit_code(outcome, **_allowed(options))


def _show(hunt: Hunt, outcome: SearchOutcome, tried: list[Measured]) -> None:
    from remuda.cli.bench.bench import _reasons, _rows
    from remuda.client.bench.search import result

    echo(result(hunt, outcome))
    for smaller, larger in outcome.found.contradictions:
        less, more = hunt.at(smaller).label, hunt.at(larger).label
        echo(f"{less} missed it twice, although {more} met it: the smaller one counts")
    if outcome.found.met is not None:
        echo(_numbers(outcome.points[outcome.found.met]))
    echo()
    ordered = sorted(tried, key=lambda one: hunt.value(one.point.load))
    table(*_rows([one.point for one in ordered]))
    for point in outcome.grounds:
        for line in _reasons(point):
            echo(line)


def _numbers(point: Point) -> str:
    from remuda.cli.bench.bench import _verdict

    times = [
        f"{name} p50 {show_ms(point.of(name))}, p99 {show_ms(point.of(name, 'p99'))}"
        for name in ("ttft", "tpot", "e2e")
        if point.of(name) is not None
    ]
    words = [*times, f"{show_number(point.of('output_tok_s'))} output tok/s", f"{show_number(point.of('req_s'))} req/s"]
    return f"{point.name}: {'; '.join(words)}; {_verdict(point)}"
