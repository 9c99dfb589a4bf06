"""`gang`: ranks that train together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from remuda.base.units import show_counted
from remuda.cli.lazy import NearGroup, dry, examples, together
from remuda.cli.show import echo, pairs, print_json, say, table
from remuda.cli.staying import WithArguments, finished, stay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@click.group(cls=NearGroup)
def gang() -> None:
    """Train with several ranks that meet in an object store; a failed rank rejoins the others."""


_how = together(
    click.option("--name", default="", help="Name of the gang."),
    click.option("-s", "--set", "settings", multiple=True, metavar="KEY=VALUE",
                 help="Field of a gang document to set, e.g. max_retries=3 (repeatable)."),
    click.option("--env", multiple=True, metavar="NAME[=VALUE]",
                 help="Variable for the ranks: NAME=VALUE, or NAME for its value here; secrets are sent as files."),
    click.option("--profile", is_flag=False, flag_value="10Hz", default="", metavar="[FREQ]",
                 help="GPU sampling rate of each rank, e.g. 10Hz (default) or 100ms."),
    dry(),
    click.option("-f", "--follow", is_flag=True, help="Show the output of all ranks until they end."),
    click.option("--wait", is_flag=True, help="Wait until it ends; exit with 1 if it failed."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)  # fmt: skip
"""The options that both ways to start a gang have."""


@gang.command(
    cls=WithArguments,
    own="COMMAND",
    epilog=examples("remuda gang run -n 4 --gpus 1 -- python train.py", "remuda gang run -n 2 -f -- ./train.sh --lr 1"),
)
@click.option("-n", "--ranks", type=click.IntRange(min=1), required=True, help="Number of ranks.")
@click.option("--gpus", type=click.IntRange(min=0), default=0, show_default=True, help="GPUs of each rank.")
@click.option("--rendezvous", default="", metavar="URL",
              help="URL where ranks meet, or none (default: a folder of the gang; not on Kubernetes).")  # fmt: skip
@click.option("--mode", type=click.Choice(("elastic", "rigid")),
              help="When a rank fails, it rejoins the others (elastic, default), or all restart (rigid).")  # fmt: skip
@click.option("--backend", type=click.Choice(("local", "slurm", "fleet", "kubernetes")),
              help="`local` (default); `slurm`, `kubernetes`: a job for each rank, or one if it is rigid.")  # fmt: skip
@click.option("--image", default="", help="Container image on Kubernetes, with Python 3.9 or newer.")
@click.option("-p", "--partitions", default="", help="Partitions of Slurm to use, the preferred one first.")
@_how
@click.pass_context
def run(
    ctx: click.Context, /, ranks: int, gpus: int, rendezvous: str, mode: str | None, backend: str | None,
    image: str, partitions: str, **given: Any,
) -> int:  # fmt: skip
    """Run COMMAND with N ranks on this machine, Slurm or Kubernetes, and restart ranks that fail.

    Each rank gets REPLICA_RANK and REPLICA_COUNT (also as RANK and WORLD_SIZE), RUN_ID and REMUDA_RENDEZVOUS in its
    environment. On this machine GPUs are allocated to all ranks in one step.
    """
    command = list(ctx.meta["remuda.args"])
    if not command:
        raise click.UsageError("say what each rank runs, behind --: remuda gang run -n 4 -- python train.py")
    said = {"kind": "gang", "ranks": ranks, "resources.gpus": gpus, "command": command, "rendezvous": rendezvous}
    said |= {"mode": mode or "", "backend": backend or "", "image": image, "partitions": partitions}
    return _start("", said, **given)


@gang.command(epilog=examples("remuda gang up gang.yaml", "remuda gang up gang.yaml --dry-run"))
@click.argument("document", required=False)
@click.option("-c", "--config", "file", help="Document of kind gang (YAML); same as DOCUMENT.")
@_how
def up(document: str | None, file: str | None, **given: Any) -> int:
    """Start the gang that DOCUMENT describes."""
    if (document is None) == (file is None):
        raise click.UsageError("name the gang's document once: with -c or without it")
    return _start(document or file or "", {}, **given)


def _start(  # noqa: PLR0913 - the options of both
    file: str, said: Mapping[str, Any], *, name: str, profile: str, settings: Sequence[str], env: Sequence[str],
    dry_run: bool, follow: bool, wait: bool, as_json: bool,
) -> int:  # fmt: skip
    from remuda.cli import plans
    from remuda.client import gangs, submission

    given = {key: value for key, value in {**said, "name": name, "profile": profile}.items() if value != ""}
    planned = submission.ask("gang", dry_run=dry_run, file=file, given=given, settings=settings, env=env)
    if plans.tell(planned, dry_run=dry_run, as_json=as_json):
        return 0
    view = submission.send(planned)[0]
    if not as_json:
        _announce(planned["plans"][0])
    if follow:
        return stay(str(view["name"]), gangs.follow)
    return finished([gangs.ended(view["name"]) if wait else view], wait=wait, as_json=as_json)


def _announce(planned: Mapping[str, Any]) -> None:
    name, spec = planned["name"], planned["spec"]
    each = spec["resources"]["gpus"]
    gpus = f", each with {show_counted(each, 'GPU')}" if each else ""
    say(f"{name} is accepted on {planned['backend']}: {show_counted(spec['ranks'], 'rank')}{gpus}")
    say(f"  remuda status {name} · remuda logs {name} --rank 0 -f · remuda explain {name} · remuda stop {name}")
    echo(name)


@gang.command(epilog=examples("remuda gang rounds train", "remuda gang rounds s3://bucket/train --run-id train"))
@click.argument("target", metavar="NAME|URL")
@click.option("--run-id", default="", help="Training run ID (default: the gang's name).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rounds(target: str, run_id: str, as_json: bool) -> None:
    """Show the rounds committed by the ranks of NAME, or by the ranks that meet at URL."""
    from remuda.client import gangs

    found = gangs.rounds(target, run_id)
    if as_json:
        print_json(found)
        return
    lists = {key: value for key, value in found.items() if _is_table(value)}
    pairs([(key.replace("_", " "), _text(value)) for key, value in found.items() if key not in lists])
    for rows in lists.values():
        echo("")
        table([*rows[0]], [[_text(value) for value in row.values()] for row in rows], empty="")


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else "" if value is None else str(value)
