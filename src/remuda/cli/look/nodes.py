"""`nodes list | status | ban | unban | lost | history | test`."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from remuda.base.units import show_duration, show_size
from remuda.cli.lazy import NearGroup, examples
from remuda.cli.show import console, echo, is_terminal, pairs, print_json, say, style_of, table, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remuda.client.upkeep.node_tests import SmokeOptions, SmokeView

_BACKEND = click.option("--backend", default="", help="slurm, fleet or local (default: slurm where sbatch is on PATH).")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_PARTITION = click.option("-p", "--partition", default="", help="Partition whose nodes to use (default: all).")


@click.group(cls=NearGroup, invoke_without_command=True)
@click.option("--list", "listing", is_flag=True, help="List nodes, as `nodes list` does.")
@_PARTITION
@_BACKEND
@_JSON
@click.pass_context
def nodes(context: click.Context, listing: bool, partition: str, backend: str, as_json: bool) -> None:
    """List, test and ban nodes; show their failures."""
    if context.invoked_subcommand is None:
        show_nodes(partition, backend, as_json=as_json)
    elif listing or partition or backend or as_json:
        raise click.UsageError(f"write options behind the command: remuda nodes {context.invoked_subcommand} …")


@nodes.command(name="list", epilog=examples("remuda nodes list -p gpu-a100"))
@_PARTITION
@_BACKEND
@_JSON
def list_(partition: str, backend: str, as_json: bool) -> None:
    """List nodes: state, partitions, GPUs and CPUs (free/all), weight of the evidence against them, bans, reasons."""
    show_nodes(partition, backend, as_json=as_json)


def show_nodes(partition: str, backend: str, *, as_json: bool) -> None:
    """One line a node."""
    from remuda.client.http import connect

    views = connect().get("/nodes", pool=partition, backend=backend)
    if as_json:
        print_json(views)
        return
    draw_nodes(views)


_COLUMNS = ["node", "state", "GPUs", "type", "CPUs", "weight", "heard", "partitions"]


def draw_nodes(views: Sequence[dict[str, Any]]) -> None:
    """A line for each node, and what is to be said of it below."""
    rows, below = [_row(view) for view in views], ["; ".join(_notes(view)) for view in views]
    table(_COLUMNS, rows, below=below, rarely=["weight", "CPUs", "heard", "type"], empty="there are no nodes")


@nodes.command(name="status", epilog=examples("remuda nodes status gpu-box-2"))
@click.argument("name", metavar="NODE")
@_BACKEND
@_JSON
def status_(name: str, backend: str, as_json: bool) -> int:
    """Show one node in full. Ends with 1 where it gets no work, or its client says that something is wrong."""
    from remuda.client.http import connect
    from remuda.views.nodes import unknown_node

    views = {view["name"]: view for view in connect().get("/nodes", backend=backend)}
    if name not in views:
        raise unknown_node(name, views, "the cluster")
    joined: dict[str, Any] = next((one for one in connect().get("/fleet").get("nodes", ()) if one["name"] == name), {})
    view = joined | views[name]
    if as_json:
        print_json(view)
    else:
        told = [(key, view.get(key, "")) for key in ("address", "remuda", "slurm")]
        disk = ("disk free", show_size(view["free_bytes"]) if view.get("free_bytes") else "")
        pairs([*zip(_COLUMNS, _row(view), strict=True), ("memory", show_size(view["mem_bytes"])), *told, disk,
               ("notes", "; ".join(_notes(view)))])  # fmt: skip
    return not view["usable"] or bool(view["problems"])


def _row(view: dict[str, Any]) -> list[str]:
    return [
        view["name"],
        view["state"],
        f"{view['gpus_free']}/{view['gpus']}" if view["gpus"] else "-",
        view["gpu_type"] or "-",
        f"{view['cpus_free']}/{view['cpus']}" if view["cpus"] else "-",
        f"{view['weight']:g}" if view["weight"] else "-",
        f"{show_duration(heard)} ago" if (heard := view.get("heard_s")) is not None else "-",
        ",".join(view["pools"]) or "-",
    ]


def _notes(view: dict[str, Any]) -> list[str]:
    notes = []
    if view["ban"]:
        by = f" by {view['ban']['by']}" if view["ban"]["by"] else ""
        notes.append(f"banned{by} for {_left(view['ban']['until'])} more: {view['ban']['reason']}")
    elif view["is_avoided"]:
        notes.append(f"avoided (remuda nodes history {view['name']})")
    if view["reason"]:
        notes.append(view["reason"])
    return [*notes, *view.get("problems", ())]


def _left(until: float) -> str:
    return show_duration(max(0.0, until - time.time()))


def _node_words(words: tuple[str, ...], node: str) -> str:
    """The nodes that were named, as arguments or with the option."""
    named = ",".join([*words, *([node] if node else [])])
    if not named:
        raise click.UsageError("name a node: node001, or node[001-003,7]")
    return named


_NODE = click.option("--node", default="", help="Synonym of NODE.")


@nodes.command(epilog=examples("remuda nodes ban node017 --ttl 12h"))
@click.argument("words", nargs=-1, metavar="NODE...")
@_NODE
@click.option("--ttl", default="12h", show_default=True, help="Duration of the ban: seconds, 90s, 1h, 7d.")
@click.option("--reason", default="", help="Reason, shown in the list of nodes.")
@click.option("--force", is_flag=True, help="Ban a node even if the cluster does not know it or does not answer.")
@_BACKEND
@_JSON
def ban(words: tuple[str, ...], node: str, ttl: str, reason: str, force: bool, backend: str, as_json: bool) -> None:
    """Keep tasks of all workloads away from NODE for a while. NODE may be a list: node[001-003,7],gpu5."""
    from remuda.cli import typed
    from remuda.client.http import connect

    named = _node_words(words, node)
    body = {"ttl_s": typed.duration(ttl, "--ttl"), "reason": reason, "force": force}
    bans = connect().call("POST", f"/nodes/{named}/ban", body, query={"backend": backend})
    if as_json:
        print_json(bans)
        return
    for one in bans:
        say(f"{one['node']} is banned for {_left(one['until'])}: {one['reason']}")


@nodes.command()
@click.argument("words", nargs=-1, metavar="NODE...")
@_NODE
@_BACKEND
@_JSON
def unban(words: tuple[str, ...], node: str, backend: str, as_json: bool) -> None:
    """End bans of NODE; recorded failures stay."""
    from remuda.client.http import connect

    named = _node_words(words, node)
    ended = connect().call("DELETE", f"/nodes/{named}/ban", query={"backend": backend})
    if as_json:
        print_json(ended)
        return
    say(f"{', '.join(ended)}: no ban any more")


@nodes.command(epilog=examples("remuda nodes lost gpu-box-2"))
@click.argument("name", metavar="NODE")
@click.option("--force", is_flag=True, help="Believe it even of a machine that was just heard.")
def lost(name: str, force: bool) -> None:
    """Say that a machine of the fleet is off: what ran there starts elsewhere, without the wait for its silence.

    Of a machine that is only cut off this is wrong: two copies would write. It works again as soon as it is back.
    """
    from remuda.client.http import connect

    connect().call("POST", f"/fleet/nodes/{name}/lost", query={"force": force})
    say(f"{name} is taken for off; what ran there starts elsewhere")


@nodes.command()
@click.argument("name", metavar="NODE")
@click.option("-n", "--lines", "limit", type=click.IntRange(1, 10000), default=100, show_default=True,
              help="Show the last N lines.")  # fmt: skip
@_BACKEND
@_JSON
def history(name: str, limit: int, backend: str, as_json: bool) -> None:
    """Show all recorded failures of NODE, its bans and their ends, oldest first."""
    from remuda.client.http import connect

    lines = connect().get(f"/nodes/{name}/history", backend=backend, limit=limit)
    if as_json:
        print_json(lines)
        return
    rows = [
        [_clock(line["at"]), line["kind"], f"{line['weight']:g}" if line["weight"] else "-",
         f"{_left(line['expires_at'])} more" if line["counts"] else "no", line["device"] or "-",
         line["workload"] or line["by"] or "-", line["detail"]]
        for line in lines
    ]  # fmt: skip
    table(
        ["time", "kind", "weight", "counts", "device", "from", "detail"], rows, empty=f"nothing speaks against {name}"
    )


def _clock(at: float) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.localtime(at))


_OUTCOME_ICONS = {"ok": "✓", "failed": "✗", "no-cuda": "○", "busy": "◐", "refused": "⊘", "timeout": "⏱"}


def _read_env(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    pairs = [word.partition("=") for word in words]
    for name, equals, _value in pairs:
        if not equals or not name.isidentifier():
            raise click.BadParameter("write NAME=VALUE")
    return tuple((name, value) for name, _equals, value in pairs)


@nodes.command()
@_PARTITION
@click.option("--nodes", "named", default="", help="Nodes to test: node[001-003,7] (default: all with GPUs).")
@click.option("--all", "everything", is_flag=True, help="Include nodes without GPUs.")
@click.option("--gpus", type=click.IntRange(min=1), default=1, show_default=True, help="GPUs to test per node.")
@click.option("--timeout", default="60s", show_default=True, help="Time limit of one test, from its start.")
@click.option("--wait", type=click.IntRange(2, 3600), default=10, show_default=True, metavar="SECONDS",
              help="Time to wait for a free GPU before a node counts as busy.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), default=16, show_default=True, help="Number of tests at a time.")
@click.option("--account", default="", help="Account to charge.")
@click.option("--qos", default="", help="Quality of service to use.")
@click.option("--python", default="", help="Python on the nodes, 3.9 or newer (default: python3).")
@click.option("--env", multiple=True, callback=_read_env, metavar="NAME=VALUE",
              help="Variable for the test, e.g. LD_LIBRARY_PATH; it gets no others of your environment.")  # fmt: skip
@click.option("--no-record", is_flag=True, help="Do not record failures of nodes.")
@_BACKEND
@_JSON
def test(**given: Any) -> int:
    """Run the GPU smoke test on every node. Exits with 1 if CUDA fails on any.

    ✓ CUDA working · ✗ CUDA failed · ○ no CUDA libs installed · ◐ node busy (no free GPUs) · ⊘ QOS/partition error ·
    ⏱ timeout
    """
    from remuda.client.upkeep import node_tests

    options = _options(given)
    this = node_tests.prepare(options, given["backend"])
    width = max(len(view.name) for view in this.targets)
    results = _with_progress(
        len(this.targets), width, lambda tell: node_tests.perform(this, options, tell), as_json=given["as_json"]
    )
    recorded = None if given["no_record"] else node_tests.record(this, results)
    if given["as_json"]:
        print_json([item.model_dump() for item in results])
    say(_summary(results))
    if recorded is not None and recorded.failed:
        say(f"held against {', '.join(recorded.failed)} for 12 hours (remuda nodes history NODE)")
    return int(any(item.outcome == "failed" for item in results))


def _options(given: dict[str, Any]) -> SmokeOptions:
    from remuda.base.errors import InputError
    from remuda.cli import typed
    from remuda.client.upkeep.node_tests import SmokeOptions

    timeout_s = typed.duration(given["timeout"], "--timeout")
    if timeout_s <= 0:
        raise InputError("a test needs some time", hint="write --timeout 60s", where="--timeout")
    return SmokeOptions(
        nodes=given["named"], partition=given["partition"], everything=given["everything"], gpus=given["gpus"],
        timeout_s=timeout_s, wait_s=given["wait"], at_once=given["jobs"], account=given["account"], qos=given["qos"],
        python=given["python"], env=given["env"],
    )  # fmt: skip


def _with_progress(
    count: int, width: int, perform: Callable[[Callable[[SmokeView], None]], list[SmokeView]], *, as_json: bool
) -> list[SmokeView]:
    """Run the tests and show each result as it comes: as JSON is asked for, on standard error."""
    drawn = is_terminal() and not as_json
    terminal = console() if drawn else None
    done = 0

    def tell(result: SmokeView) -> None:
        nonlocal done
        done += 1
        line = _line(result, width, with_icon=drawn)
        if terminal is not None and status is not None:
            terminal.print(words(line, style_of(line)))
            status.update(f"{done} of {count} tested")
        else:
            echo(line, err=as_json)

    with terminal.status(f"testing {count} nodes") if terminal is not None else nullcontext() as status:
        return perform(tell)


def _line(result: SmokeView, width: int, *, with_icon: bool) -> str:
    word = _OUTCOME_ICONS[result.outcome] if with_icon else result.outcome.ljust(7)
    what = {"ok": ", ".join(sorted(set(filter(None, result.gpus)))), "no-cuda": ""}.get(result.outcome, result.detail)
    text = f"{word} {result.node.ljust(width)}  {result.meaning}" + (f": {what}" if what else "")
    return f"{text} ({result.seconds:g} s)"


def _summary(results: list[SmokeView]) -> str:
    counts = Counter(item.meaning for item in results)
    nodes_text = "1 node" if len(results) == 1 else f"{len(results)} nodes"
    return f"{nodes_text}: " + ", ".join(f"{count} {meaning}" for meaning, count in counts.most_common())
