"""`profiler`: record what the GPUs of this machine or of a fleet do, and look at recordings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from remuda.base.extras import need_batch
from remuda.base.units import parse_interval, show_counted, show_duration, show_interval, show_size
from remuda.cli.lazy import NearGroup, dry, examples
from remuda.cli.look import gpuview
from remuda.cli.show import age, console, echo, is_terminal, print_json, say, table, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from remuda.client.recordings.profiler import Live, Session

_AGAIN_S: Final = 1.0
_READING: Final = "to read a recording takes"
_KINDS: Final = ("parquet", "json", "chrome", "csv")


@click.group(cls=NearGroup)
def profiler() -> None:
    """Sample GPUs many times per second beside the work: load, memory, watts, joules, processes."""


@profiler.command(epilog=examples("remuda profiler start", "remuda profiler start --name exp1 --freq 10Hz --gpus 0,1"))
@click.option("--name", default="", help="Name of the recording (default: a timestamp).")
@click.option(
    "--freq",
    default="10Hz",
    show_default=True,
    metavar="FREQ",
    help="Rate: 10Hz, 100ms, or milliseconds: 1000.",
)
@click.option("--gpus", default="", metavar="0,1", help="Indexes as in nvidia-smi, or UUIDs (default: all).")
@click.option("--node", "nodes", multiple=True, metavar="NODE",
              help="Node of this host's fleet to record; repeatable (default: all with GPUs).")  # fmt: skip
@click.option("--here", is_flag=True, help="Record this machine, although its host has a fleet.")
@dry()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def start(
    name: str, freq: str, gpus: str, nodes: tuple[str, ...], here: bool, dry_run: bool, as_json: bool
) -> None:  # fmt: skip
    """Start recording the GPUs of this machine, or of all nodes of its fleet, until `profiler stop`.

    It survives this command.
    """
    from remuda.base.errors import InputError, located
    from remuda.cli import plans
    from remuda.client.recordings import profiler as recordings
    from remuda.look import planning

    with located("--freq"):
        interval = parse_interval(freq)
    if not interval:
        raise InputError("0 is not a sampling rate", hint="write 10Hz, 100ms or 1000", where="--freq")
    if here and nodes:
        raise click.UsageError("--here is this machine, and --node one of the fleet: say one of them")
    where = () if here else recordings.nodes_of_fleet(nodes)
    facts = planning.facts_of()
    planned = recordings.plan(name, interval, _chosen(gpus), facts, where)
    if plans.tell(planning.answered([planned], facts, dry_run=dry_run), dry_run=dry_run, as_json=as_json):
        return
    live = recordings.begin(planned)
    if as_json:
        print_json([one.to_json() for one in live] if where else live[0].to_json())
        return
    made = planned.workload.name
    count = show_counted(sum(len(one.status.gpus) for one in live), "GPU")
    on = f" of {show_counted(sum(bool(one.status.gpus) for one in live), 'node')}" if where else ""
    say(f"{made} records {count}{on} at {show_interval(interval)}")
    for one in live:
        if one.status.state != "recording":
            say(f"  {one.node}: {one.status.reason}")
    say(f"  remuda profiler status -w · remuda profiler stop · remuda profiler analyze {made}")
    echo(made)


def _chosen(text: str) -> list[str]:
    """GPUs that were named.

    Raises:
        UsageError: one of them is neither an index nor a UUID.
    """
    chosen = [word.strip() for word in text.split(",") if word.strip()]
    for word in chosen:
        if not word.isdigit() and not word.startswith("GPU-"):
            raise click.UsageError(f"--gpus: {word!r} is neither an index nor a UUID; write --gpus 0,1")
    return chosen


@profiler.command(epilog=examples("remuda profiler status", "remuda profiler status -w"))
@click.option("--name", default="", help="Name of the recording (default: all).")
@click.option("--node", default="", metavar="NODE", help="Node of the fleet to show (default: all).")
@click.option("-w", "--watch", is_flag=True, help="Redraw every second until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name: str, node: str, watch: bool, as_json: bool) -> None:
    """Show the GPUs now, one line each: load, memory, watts, temperature and processes."""
    looks = _looks(name, node, watch=watch)
    if watch and is_terminal() and not as_json:
        _draw(looks)
        return
    for found in looks:
        if as_json:
            print_json([live.to_json() for live in found])
        else:
            _print(found)


def _looks(name: str, node: str, *, watch: bool) -> Iterator[list[Live]]:
    from remuda.client.recordings import profiler as recordings

    yield recordings.live(name, node)
    while watch:
        time.sleep(_AGAIN_S)
        yield recordings.live(name, node)


def _print(found: list[Live]) -> None:
    if not found:
        echo("nothing is recorded; begin with: remuda profiler start")
    for live in found:
        for line in gpuview.lines(live, time.time()):
            echo(line)


def _draw(looks: Iterable[list[Live]]) -> None:
    """Lines that stay where they are, until Ctrl-C."""
    from rich.console import Group
    from rich.live import Live as Screen

    with Screen(console=console(), refresh_per_second=4) as screen:
        for found in looks:
            lines = [line for live in found for line in gpuview.lines(live, time.time())]
            screen.update(Group(*map(words, lines or ["nothing is recorded"])))


@profiler.command(epilog=examples("remuda profiler stop", "remuda profiler stop --name exp1"))
@click.option("--name", default="", help="Name of the recording (default: the only active one).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stop(name: str, as_json: bool) -> None:
    """Stop a recording, and write it as one Parquet file."""
    from remuda.client.recordings import profiler as recordings

    session = recordings.stop(name)
    if as_json:
        print_json(vars(session))
        return
    say(f"{session.name} is complete: {show_counted(session.gpus, 'GPU')}, {show_size(session.size_bytes)}")
    say(f"  {session.folder}")
    echo(session.name)


@profiler.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def sessions(as_json: bool) -> None:
    """List recordings, newest first: yours, and those of tasks."""
    from remuda.client.recordings import profiler as recordings

    found = recordings.sessions()
    if as_json:
        print_json([vars(session) for session in found])
        return
    table(["name", "state", "began", "GPUs", "every", "size", "files"], [_row(one) for one in found],
          empty="no recordings; begin one: remuda profiler start")  # fmt: skip


def _row(one: Session) -> list[str]:
    began = f"{age(one.began)} ago" if one.began else "-"
    every = show_duration(one.interval_s) if one.interval_s >= 1 else f"{one.interval_s * 1000:g}ms"
    return [one.name, one.state, began, str(one.gpus), every, show_size(one.size_bytes), one.folder]


@profiler.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def recover(as_json: bool) -> None:
    """Finalise recordings interrupted by a crash, without losing written samples."""
    from remuda.client.recordings import profiler as recordings

    found = list(recordings.recover())
    if as_json:
        print_json([vars(session) for session in found])
        return
    for session in found:
        echo(f"{session.name}: {show_counted(session.gpus, 'GPU')}, {show_size(session.size_bytes)}: {session.folder}")
    if not found:
        ago = f"{recordings.FRESH_S:.0f} s ago"
        say(f"nothing to recover: every recording is complete, or was under way less than {ago}")


@profiler.command(
    epilog=examples("remuda profiler analyze exp1", "remuda profiler analyze train --plot train.html",
                    "remuda profiler analyze --data old.json --plot out.pdf")
)  # fmt: skip
@click.argument("target", required=False, metavar="NAME|RUN|FILE")
@click.option("--data", default="", metavar="FILE", help="Recording file; same as FILE.")
@click.option("-p", "--plot", type=click.Path(dir_okay=False), help="Chart to write: .html, .png or .pdf.")
@click.option("--csv", "form", flag_value="csv", help="Print the tables as CSV.")
@click.option("--json", "form", flag_value="json", help="Print JSON.")
def analyze(target: str | None, data: str, plot: str | None, form: str | None) -> None:
    """Summarise a recording: mean, p50, p95, max, idle share and joules per GPU, task and process."""
    from pathlib import Path

    need_batch(_READING)
    from remuda import profile
    from remuda.client.recordings import profiler as recordings

    picture = Path(plot) if plot else None
    if picture is not None:
        profile.check_picture(picture.suffix)
    recorded = recordings.read(_one(target, data))
    analysis = profile.analyse(recorded)
    if picture is not None:
        _plot(picture, recorded, analysis)
    if form == "json":
        print_json({"name": recorded.name, **profile.as_json(analysis), "facts": profile.facts(analysis)})
    elif form == "csv":
        echo(profile.as_csv(analysis), nl=False, exact=True)
    else:
        _tell(recorded.name, analysis)


def _one(target: str | None, data: str) -> str:
    if bool(target) == bool(data):
        raise click.UsageError("say once what to read: a name, a run, a file, or --data FILE")
    return target or data


def _plot(path: Path, recorded: Any, analysis: Any) -> None:
    from remuda import profile
    from remuda.base.disk.files import write_named

    is_page = path.suffix == ".html"
    drawn = profile.page(recorded, analysis, now=time.time()) if is_page else profile.picture(recorded, path.suffix)
    write_named(path, drawn)
    say(f"{path} is drawn")


def _tell(name: str, analysis: Any) -> None:
    from remuda import profile

    span = show_duration((analysis.end_us - analysis.begin_us) / 1e6)
    echo(f"{name or 'recording'}: {show_counted(len(analysis.gpus), 'GPU')}, {span}")
    for sentence in profile.facts(analysis):
        echo(f"  {sentence}")
    for part in profile.tables(analysis):
        echo("")
        echo(part.title)
        table(part.columns, part.rows)
        if part.more:
            echo(f"and {part.more} more: --json has all")


@profiler.command(
    epilog=examples("remuda profiler export exp1 --format chrome", "remuda profiler export train -o t.json")
)
@click.argument("target", metavar="NAME|RUN|FILE")
@click.option("--format", "kind", type=click.Choice(_KINDS), default="parquet", show_default=True,
              help="Format to write; chrome opens in Perfetto, json is gswarm's layout.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File to write (default: named after NAME).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def export(target: str, kind: str, output: str | None, as_json: bool) -> None:
    """Write a recording for other programs."""
    from pathlib import Path

    need_batch(_READING)
    from remuda import profile
    from remuda.client.recordings import profiler as recordings

    recorded = recordings.read(target)
    name = Path(target).stem if "/" in target or Path(target).suffix else target
    path = Path(output or f"{name}{'-trace' if kind == 'chrome' else ''}{profile.FORMATS[kind]}")
    profile.export(recorded, kind, path)
    if as_json:
        print_json({"file": str(path), "format": kind, "size_bytes": path.stat().st_size})
        return
    opens = ", opens in https://ui.perfetto.dev" if kind == "chrome" else ""
    say(f"{path}: {show_size(path.stat().st_size)}{opens}")
    echo(str(path))
