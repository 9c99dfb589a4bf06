"""`up`, `down`, `scale`: change what shall run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from remuda.base.ids import api_path
from remuda.base.units import show_counted
from remuda.cli.lazy import EVERY, dry, examples, named
from remuda.cli.show import print_json, say

if TYPE_CHECKING:
    from collections.abc import Mapping

_USUAL = Path("swarm.yaml")


@click.command(epilog=examples("remuda up swarm.yaml", "remuda up train.sh", "remuda up swarm.yaml -r 4 --dry-run"))
@click.argument("document", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option("-c", "--config", "file", type=click.Path(path_type=Path), help="Document (YAML); same as FILE.")
@click.option("-r", "--replicas", type=click.IntRange(min=1), help="Number of replicas; overrides the document.")
@click.option("-n", "--name", default="", help="Name of the swarm; overrides the document.")
@click.option("--reverse-proxy/--no-reverse-proxy", "router", default=None, help="Put a router before the replicas.")
@click.option(
    "-s",
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a field of the document, e.g. port=8100 (repeatable).",
)
@dry()
@click.option("--wait/--no-wait", default=True, help="Wait until the endpoint answers (default), or return at once.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def up(
    ctx: click.Context, /, document: Path | None, file: Path | None, *, dry_run: bool, wait: bool, as_json: bool,
    **given: Any,
) -> int:  # fmt: skip
    """Start the workload in FILE; for a swarm, wait until it answers and print its URL.

    FILE is a document of any kind, a recipe, or a script (default: swarm.yaml in the working directory). `run`,
    `apply`, `gang up`, `pool` and `bench run` do the same, with more options. Running `up` again for a swarm that is up
    waits until it answers.
    """
    from remuda.specs.reading.shapes import kind_in

    target = _document(document, file)
    kind = kind_in(str(target))
    if kind != "swarm":
        return _other(ctx, kind, str(target), {**given, "dry_run": dry_run, "wait": wait, "as_json": as_json})
    bring("swarm", dry_run=dry_run, wait=wait, as_json=as_json, file=str(target), **given)
    return 0


_WORDS: Final = {
    "run": ("run",), "gang": ("gang", "up"), "deployment": ("apply",), "pool": ("pool", "-c"),
    "benchmark": ("bench", "run", "-c"),
}  # fmt: skip
"""Kind of a document -> the command that starts it."""
_SEVERAL: Final = {
    "run": ", or start it that many times: remuda run {} --array 1-{}",
    "gang": ", or say how many ranks: -s ranks={1}",
    "deployment": ", or say how many workers of a role once it is up: remuda scale NAME ROLE={1}",
}  # of its file and their number


def _other(ctx: click.Context, kind: str, target: str, said: Mapping[str, Any]) -> int:
    """Start what is no swarm, as the command of its kind does, with what is said of `up`."""
    for name, flag in (("replicas", "-r"), ("router", "--reverse-proxy")):
        if said[name] is not None:
            more = _SEVERAL.get(kind, "").format(target, said[name]) if name == "replicas" else ""
            raise click.UsageError(f"{flag} is for swarms, and {target} is a {kind}: leave it out{more}")
    flags = {
        "--dry-run": said["dry_run"],
        "-v": ctx.meta[EVERY],
        "--json": said["as_json"],
        "--no-wait": not said["wait"] and kind == "deployment",
    }
    words = [*_WORDS[kind], target, *(flag for flag, is_said in flags.items() if is_said)]
    words += ["--name", said["name"]] if said["name"] else []
    words += [word for text in said["settings"] for word in ("--set", text)]
    root = ctx.find_root()
    with root.command.make_context("remuda", words) as again:
        return int(root.command.invoke(again) or 0)


@click.command(epilog=examples("remuda serve model.gguf", "remuda serve Qwen/Qwen3-8B --engine vllm --gpus 2"))
@click.argument("model")
@click.option("-e", "--engine", default="", help="vllm, sglang, llamacpp or transformers (default: first found).")
@click.option(
    "-g",
    "--gpus",
    "--tensor-parallel-size",
    type=click.IntRange(min=0),
    help="GPUs per replica (default: an equal share of all).",
)
@click.option(
    "-p", "--port", type=click.IntRange(1, 65535), default=None, help="Endpoint port (default: first free from 9000)."
)
@click.option("-r", "--replicas", type=click.IntRange(min=1), default=1, show_default=True, help="Number of replicas.")
@click.option("-n", "--name", default="", help="Name of the swarm (default: the model's).")
@click.option("-s", "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Field of a swarm document to set.")
@dry()
@click.option("--wait/--no-wait", default=True, help="Wait until the endpoint answers (default), or return at once.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def serve(model: str, *, dry_run: bool, wait: bool, as_json: bool, **given: Any) -> None:
    """Serve MODEL on this machine; no config file needed.

    MODEL is a GGUF file, a directory, or a name that the engine knows. It runs on your GPUs, or the CPU if there are
    none, with the engine that is installed. Manage it like any swarm: `remuda status`, `logs`, `scale`, `down`.
    """
    given["port"] = given["port"] or 0
    bring("serve", dry_run=dry_run, wait=wait, as_json=as_json, model=model, **given)


def bring(
    kind: str, *, dry_run: bool, wait: bool, as_json: bool, write: str = "", **words: Any
) -> dict[str, Any]:  # fmt: skip
    """Bring up what is asked for, follow it until its endpoint answers, and print its URL.

    Args:
        kind: of `look.kinds.READERS`.
        dry_run: show it instead.
        wait: follow it.
        as_json: print JSON.
        write: folder for which the plan's files are made.
        words: what the command line says.

    Returns:
        Its view; of a dry run, the files of its plan.
    """
    from remuda.cli import plans, watch
    from remuda.client import submission

    planned = submission.ask(kind, dry_run=dry_run, write=write, **words)
    if plans.tell(planned, dry_run=dry_run, as_json=as_json):
        return dict(planned["files"])
    view = submission.send(planned, repeats=True)[0]
    if wait:
        view = watch.until_up(view, planned["plans"][0])
    if as_json:
        print_json(view)
    else:
        watch.announce(view)
    return view


def _document(document: Path | None, file: Path | None) -> Path:
    if document is not None and file is not None:
        raise click.UsageError("name the file once: with -c or without it")
    found = document or file or _USUAL
    if found is _USUAL and not _USUAL.is_file():
        raise click.UsageError("name the file: there is no swarm.yaml here")
    return found


@click.command()
@click.argument("names", nargs=-1, shell_complete=named)
@click.option("--all", "everything", is_flag=True, help="Stop everything that runs.")
@click.option("--remove", is_flag=True, help="Delete their records and run directories, too.")
@click.option("--wait/--no-wait", default=True, help="Return when nothing is left (default), or at once.")
@click.option("--timeout", default=180.0, show_default=True, help="Seconds to wait for all of them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def down(
    ctx: click.Context, /, names: tuple[str, ...], everything: bool, remove: bool, wait: bool, timeout: float,
    as_json: bool,
) -> None:  # fmt: skip
    """Stop NAMES, whatever they are, and wait until nothing is left, or say what is; `down` and `stop` are one command.

    Ctrl-C stops the waiting only. A second `down` of the same waits again, and is fine when it is down already.
    """
    from remuda.client import ending

    if not names and not everything:
        raise click.UsageError("name what to stop, or give --all")
    if as_json and (remove or everything):
        raise click.UsageError("--json shows what was named and is kept")
    is_down, ends = ("stopped", "stopped") if ctx.info_name == "stop" else ("down", "taken down")
    limit_s = timeout if wait else 0.0
    for name in ending.take_down(names, everything=everything, wait_s=limit_s, remove=remove, tell=say):
        if not as_json:
            say(f"{name} is {is_down}" if wait else f"{name} is being {ends}")
    if as_json:
        from remuda.client.http import connect

        views = [connect().get(api_path(name)) for name in names]
        print_json(views if len(views) > 1 else views[0])


def _count(text: str) -> tuple[str, int]:
    """Name of the group, empty without one, and its number: `4`, or `decode=4`."""
    group, _, number = text.rpartition("=")
    return group, int(click.IntRange(min=1)(number))


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog=examples("remuda scale chat 3", "remuda scale chat decode=4 prefill=2"),
)
@click.argument("name", shell_complete=named)
@click.argument("counts", nargs=-1, required=True, type=_count, metavar="[GROUP=]COUNT...")
def scale(name: str, counts: tuple[tuple[str, int], ...]) -> None:
    """Change how many replicas the running swarm NAME has, or how many tasks of a group."""
    from remuda.cli import taskview
    from remuda.client.http import connect

    groups = dict(counts)
    if len(groups) < len(counts) or ("" in groups and len(groups) > 1):
        raise click.UsageError("give one number, or one for each group: decode=4 prefill=2")
    view = connect().post(api_path(name, "scale"), {"replicas": groups.pop("", None), "groups": groups})
    if len(view["roles"]) > 1:
        say(f"scaling {name}: {taskview.ready(view)} are ready (remuda status {name})")
        return
    say(f"scaling {name} to {show_counted(view['wanted'], 'replica')} ({view['ready']} ready; remuda status {name})")
