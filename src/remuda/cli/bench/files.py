"""`bench export | import`: points in the formats of other tools."""

from __future__ import annotations

from pathlib import Path

import click

from remuda.cli.lazy import examples
from remuda.cli.show import echo, print_json, say, table


@click.command(
    epilog=examples(
        "remuda bench export 3f9a01c2 --format vllm -o result.json",
        "remuda bench export 3f9a 77b0 --format inferencex --set precision=fp8 --set tp=8",
        "remuda bench export 3f9a 77b0 --format csv > points.csv",
    )
)
@click.argument("points", nargs=-1, required=True, metavar="POINT…")
@click.option("--format", "kind", type=click.Choice(["vllm", "inferencex", "csv"]), required=True, help="Format.")
@click.option("-o", "--output", "file", type=click.Path(path_type=Path), help="File to write (default: stdout).")
@click.option(
    "--set",
    "said",
    multiple=True,
    metavar="NAME=VALUE",
    help="Metadata that InferenceX requires, e.g. hw=h200.",
)
def export(points: tuple[str, ...], kind: str, file: Path | None, said: tuple[str, ...]) -> None:
    """Write points in the format of another tool.

    vllm is the result of `vllm bench serve`, one line per point if there are several. inferencex is InferenceX's
    aggregate; it needs hw, image, framework, precision and tp, from `--meta` of the points or --set. csv has one row
    per point.
    """
    from remuda.base.disk.files import write_atomic
    from remuda.base.errors import InputError, Unwritable
    from remuda.client.bench import benchmarks as control
    from remuda.client.bench import files as bench_files

    pairs = {name: text for name, mark, text in (item.partition("=") for item in said) if mark and name}
    if len(pairs) != len(said):
        raise InputError(f"{', '.join(said)} must be NAME=VALUE, each name once", where="--set")
    kept = control.store()
    found = [kept.find(name) for name in points]
    text = bench_files.export(kept, found, kind, pairs)
    for point in found:
        if not point.counts:
            say(f"{point.name} is {point.verdict}: {', '.join(c.code for c in point.reasons) or point.source}")
    if file is None:
        echo(text, nl=False, exact=True)
        return
    try:
        write_atomic(file, text)
    except OSError as error:
        raise Unwritable(f"{file} cannot be written: {error.strerror or error}", hint="name another with -o") from error


@click.command(name="import", epilog=examples("remuda bench import results/*.json", "remuda bench import sglang.jsonl"))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option("--json", "as_json", is_flag=True, help="Print the points as JSON.")
def import_(files: tuple[Path, ...], as_json: bool) -> int:
    """Store results of other tools as points.

    FILE is a result of `vllm bench serve`, sglang.bench_serving or sa-bench, or an aggregate of InferenceX. Imported
    points are marked "imported", as remuda did not run the load, or invalid if the file has failed requests or answers
    without a token. Importing a result twice changes nothing.

    Exit code 10: a result is invalid.
    """
    from remuda.bench.judging.verdict import INVALID
    from remuda.cli.bench.bench import _reasons, _rows
    from remuda.client.bench import benchmarks as control
    from remuda.client.bench import files as bench_files
    from remuda.client.bench.job import IS_INVALID

    found = bench_files.take_in(control.store(), files)
    if as_json:
        print_json(control.to_json(found))
    else:
        columns, rows = _rows([one.point for one in found])
        sources = [one.point.source for one in found]
        table((*columns, "source"), [[*row, source] for row, source in zip(rows, sources, strict=True)])
        for one in found:
            for line in _reasons(one.point):
                echo(line)
        if old := sum(one.is_stored for one in found):
            say(f"{old} of {len(found)} were imported before")
    return IS_INVALID if any(one.point.verdict == INVALID for one in found) else 0
