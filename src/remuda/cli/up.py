"""`up`, `down`, `scale`: change what shall run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.base.ids import api_path
from remuda.base.units import show_counted
from remuda.cli.lazy import examples
from remuda.cli.show import print_json, say

if TYPE_CHECKING:
    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan

_USUAL = Path("swarm.yaml")


@click.command(epilog=examples("remuda up swarm.yaml", "remuda up swarm.yaml -r 4 --dry-run"))
@click.argument("document", required=False, type=click.Path(path_type=Path))
@click.option("-c", "--config", "file", type=click.Path(path_type=Path), help="The same: swarm document (YAML).")
@click.option("-r", "--replicas", type=click.IntRange(min=1), help="Number of replicas; wins over the document.")
@click.option("-n", "--name", default="", help="Name of the swarm; wins over the document.")
@click.option(
    "--reverse-proxy/--no-reverse-proxy", "router", default=None, help="With or without a router before the replicas."
)
@click.option(
    "-s",
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a field of the document, e.g. port=8100 (repeatable).",
)
@click.option("--dry-run", is_flag=True, help="Show exactly what would be started, and start nothing.")
@click.option("--wait/--no-wait", default=True, help="Wait until the endpoint answers (default), or return at once.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def up(document: Path | None, file: Path | None, *, dry_run: bool, wait: bool, as_json: bool, **given: Any) -> None:
    """Start the swarm that DOCUMENT describes, wait until it answers, and print its URL.

    Without DOCUMENT it is `swarm.yaml` in the working directory. Typed again for a swarm that is up already, it waits
    for that one.
    """
    from remuda.control import planning, swarms

    facts = planning.facts_of()
    planned = swarms.plan(_document(document, file), facts, **given)
    bring(planned, facts, dry_run=dry_run, wait=wait, as_json=as_json)


@click.command(epilog=examples("remuda serve model.gguf", "remuda serve Qwen/Qwen3-8B --engine vllm --gpus 2"))
@click.argument("model")
@click.option("-e", "--engine", default="", help="vllm, sglang, llamacpp or transformers; default: one that is here.")
@click.option(
    "-g",
    "--gpus",
    "--tensor-parallel-size",
    type=click.IntRange(min=0),
    help="GPUs of each replica; default: its share of all.",
)
@click.option(
    "-p", "--port", type=click.IntRange(1, 65535), default=None, help="Of the endpoint; default: 9000 or next."
)
@click.option("-r", "--replicas", type=click.IntRange(min=1), default=1, show_default=True, help="Number of replicas.")
@click.option("-n", "--name", default="", help="Name of the swarm; default: the model's.")
@click.option("-s", "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other value of a document.")
@click.option("--dry-run", is_flag=True, help="Show exactly what would be started, and start nothing.")
@click.option("--wait/--no-wait", default=True, help="Wait until the endpoint answers (default), or return at once.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def serve(model: str, *, dry_run: bool, wait: bool, as_json: bool, **given: Any) -> None:
    """Serve MODEL on this machine; no config file needed.

    MODEL is a GGUF file, a directory, or a name that the engine knows. It uses your GPUs, or the CPU if there are none,
    and whichever engine is installed. It is a swarm like others: `remuda status`, `logs`, `scale`, `down`.
    """
    from remuda.control import planning
    from remuda.control import serve as serving

    given["port"], facts = given["port"] or 0, planning.facts_of()
    bring(serving.plan(model, facts, **given), facts, dry_run=dry_run, wait=wait, as_json=as_json)


def bring(planned: Plan, facts: Looked, *, dry_run: bool, wait: bool, as_json: bool) -> dict[str, Any]:
    """Bring up what is planned, follow it until its endpoint answers, and print its URL.

    Returns:
        Its view; empty of a dry run.
    """
    from remuda.cli import plans, watch
    from remuda.control import swarms

    if plans.tell([planned], facts, dry_run=dry_run, as_json=as_json):
        return {}
    view = swarms.bring_up(planned, facts)
    if wait:
        view = watch.until_up(view, planned.workload)
    if as_json:
        print_json(view)
    else:
        watch.announce(view)
    return view


def _document(document: Path | None, file: Path | None) -> Path:
    if document is not None and file is not None:
        raise click.UsageError("name the document once: with -c or without it")
    found = document or file or _USUAL
    if found is _USUAL and not _USUAL.is_file():
        raise click.UsageError("name the swarm's document: there is no swarm.yaml here")
    return found


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Take down everything that runs.")
@click.option("--remove", is_flag=True, help="Also delete their records and run directories.")
@click.option("--wait/--no-wait", default=True, help="Return when nothing is left (default), or at once.")
@click.option("--timeout", default=120.0, show_default=True, help="Seconds to wait for all; what is left is named.")
def down(names: tuple[str, ...], everything: bool, remove: bool, wait: bool, timeout: float) -> None:
    """Shut down swarms, runs or jobs. Returns once everything has stopped, or reports what is still running.

    Ctrl-C stops the waiting only. A second `down` of the same waits again, and is fine when it is down already.
    """
    from remuda.control import ending

    if not names and not everything:
        raise click.UsageError("name what to take down, or give --all")
    limit_s = timeout if wait else 0.0
    for name in ending.take_down(names, everything=everything, wait_s=limit_s, remove=remove, tell=say):
        say(f"{name} is down" if wait else f"{name} is being taken down")


def _count(text: str) -> tuple[str, int]:
    """Name of the group, empty without one, and its number: `4`, or `decode=4`."""
    group, _, number = text.rpartition("=")
    return group, int(click.IntRange(min=1)(number))


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog=examples("remuda scale chat 3", "remuda scale chat decode=4 prefill=2"),
)
@click.argument("name")
@click.argument("counts", nargs=-1, required=True, type=_count, metavar="[GROUP=]COUNT...")
def scale(name: str, counts: tuple[tuple[str, int], ...]) -> None:
    """Change how many replicas the running swarm NAME has, or how many tasks of a group."""
    from remuda.cli import taskview
    from remuda.control.client import connect

    groups = dict(counts)
    if len(groups) < len(counts) or ("" in groups and len(groups) > 1):
        raise click.UsageError("give one number, or one for each group: decode=4 prefill=2")
    view = connect().post(api_path(name, "scale"), {"replicas": groups.pop("", None), "groups": groups})
    if len(view["roles"]) > 1:
        say(f"scaling {name}: {taskview.ready(view)} are ready (remuda status {name})")
        return
    say(f"scaling {name} to {show_counted(view['wanted'], 'replica')} ({view['ready']} ready; remuda status {name})")
