"""`advise`: which measured config to choose under latency targets, and what to measure next."""

from __future__ import annotations

import click

from remuda.base.units import show_ms, show_number
from remuda.cli.lazy import examples
from remuda.cli.show import echo, print_json, table


@click.command(
    epilog=examples("remuda advise --slo ttft_p99=500ms", "remuda advise --slo ttft_p99=500ms,tpot_p99=30ms")
)
@click.option("--slo", required=True, metavar="TEXT", help="Latency targets: ttft_p99=500ms,tpot_p99=30ms.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def advise(slo: str, as_json: bool) -> None:
    """Show the best measured load of each config that meets latency targets, by tokens/s/GPU.

    Counts valid points of `bench` and of sweeps. Below them: commands that measure loads beside the best ones that were
    never measured. Nothing is started.
    """
    from remuda.client.bench import advice, benchmarks
    from remuda.client.http import looking
    from remuda.specs.reading.resolve import Override

    targets = benchmarks.read(None, [Override("slo", slo, "--slo")]).spec.slo
    views = looking().get("/workloads", everything="true")
    found = advice.advise(benchmarks.store().points(), targets, views)
    if as_json:
        more = [{"best": one.best and one.best.to_json(), "tok_s_gpu": advice.score(one.best)} for one in found]
        print_json([vars(one) | {"shape": one.shape.to_json()} | best for one, best in zip(found, more, strict=True)])
        return
    rows = []
    for one in found:
        row = [one.name, f"{one.shape.isl:,}/{one.shape.osl:,}", "none meets it", *["–"] * (len(targets) + 1), ""]
        if one.best is not None:
            times = [show_ms(one.best.of(*name.rsplit("_", 1))) for name in targets]
            row[2:] = [one.best.load.label, show_number(advice.score(one.best)), *times, one.best.name]
        rows.append(row)
    names = [name.replace("_", " ") for name in targets]
    table(["config", "isl/osl", "best load", "tok/s/gpu", *names, "point"], rows, empty="no points yet")
    for command in dict.fromkeys(one.command for one in found if one.command):
        echo(command)
