"""`config check | show | schema`, `init defaults | cluster`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.lazy import NearGroup
from remuda.cli.show import cell, echo, print_json, say, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.specs.recipe.draft import DraftLine


@click.group(cls=NearGroup)
def config() -> None:
    """Check documents, show values and their origins, print schemas."""


@config.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def check(files: tuple[Path, ...]) -> None:
    """Read and plan FILES; report errors with file:line:column."""
    for file in files:
        for note in _notes(file):
            say(f"{file}: note: {note}")
        echo(f"{file}: good")


def _notes(file: Path) -> Sequence[str]:
    """What a document's author may want to know, once it was planned as its kind."""
    from remuda.base.errors import InputError
    from remuda.client import documents
    from remuda.look import planning
    from remuda.specs.reading.document import fail

    said: list[str] = []
    for selector, plan in documents.plans_of(str(file), facts := planning.facts_of()):
        if isinstance(plan, InputError):
            raise plan
        notes, problems = planning.look([plan], facts)
        if problems and plan.workload.kind.value != "deployment":  # whose model may be elsewhere
            raise fail(problems)
        said += [f"{selector}: {note}" if selector else note for note in notes]
    return said


@config.command()
@click.option("-c", "--config", "file", required=True, type=click.Path(path_type=Path), help="Document to show.")
@click.option("-r", "--replicas", type=click.IntRange(min=1), help="Value to override, as in `up`.")
@click.option("-s", "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Value to override, as in `up`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(file: Path, replicas: int | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Print every value of a document and where it came from, defaults included."""
    from remuda.look import planning
    from remuda.look.kinds.swarm import plan

    shown = plan(planning.facts_of(), file, replicas=replicas, settings=settings)[0].shown
    if as_json:
        print_json([{"key": item.path, "value": item.value, "origin": item.origin} for item in shown])
        return
    table(["key", "value", "origin"], [[item.path, cell(item.value), item.origin] for item in shown])


@config.command()
@click.argument("kind", default="swarm")
def schema(kind: str) -> None:
    """Print the JSON Schema of one KIND of document, for editors."""
    from remuda.specs.schema import schema_of

    print_json(schema_of(kind))


@click.group(cls=NearGroup)
def init() -> None:
    """Create a file of your defaults, or the cluster file of recipes."""


@init.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File (default: REMUDA_HOME/defaults.yaml).")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def defaults(output: Path | None, force: bool) -> None:
    """Ask for the values that are the same in all of your documents, and save them."""
    from remuda.base.disk.files import write_atomic
    from remuda.base.disk.private import make_missing
    from remuda.look.cluster_file import refuse_existing
    from remuda.specs.reading.defaults import render_defaults
    from remuda.specs.reading.load import defaults_path

    path = (output or Path(defaults_path()[0])).expanduser().absolute()
    refuse_existing(path, force=force)
    text = render_defaults(_ask())
    make_missing(path.parent)
    write_atomic(path, text, mode=0o600)
    say(f"wrote {path}; a document, the environment and flags win over it")


@init.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write (default: srtslurm.yaml here).")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for missing values.")
@click.option("-A", "--account", help="Account to charge.")
@click.option("-p", "--partition", help="Partition to submit to.")
@click.option("--gpus-per-node", type=click.IntRange(min=0), help="Number of GPUs per node.")
@click.option("--gpu-type", help="GPU type, in the cluster's words.")
@click.option("--network-interface", help="Interface whose address workers listen on, e.g. ib0.")
@click.option("--time-limit", help="Time limit of jobs, in Slurm's format.")
def cluster(output: Path | None, *, force: bool, yes: bool, **given: Any) -> None:
    """Write the cluster file: values that all recipes of a cluster share.

    Values come from flags, then from Slurm and this machine. On a terminal it asks for those still missing.
    """
    from remuda.look import cluster_file
    from remuda.specs.recipe.cluster import NAME

    path = (output or Path(NAME)).expanduser().absolute()
    cluster_file.refuse_existing(path, force=force)
    said = {key: str(value) for key, flag in cluster_file.FLAGS.items()
            if (value := given[flag.removeprefix("--").replace("-", "_")]) is not None}  # fmt: skip
    found = cluster_file.gathered(said)
    chosen = cluster_file.lines(found, said)
    while sys.stdin.isatty() and not yes and (open_ := [line for line in chosen if line.is_open]):
        said[open_[0].key] = _answer(open_[0])
        chosen = cluster_file.lines(found, said)
    cluster_file.write(path, chosen)
    empty = ", ".join(line.key for line in chosen if line.value is None)
    say(f"wrote {path}{f'; not known: {empty}' if empty else ''}")


def _answer(line: DraftLine) -> str:
    is_number = line.key == "gpus_per_node"
    kind = click.IntRange(min=0) if is_number else str
    shown = line.value if line.value is not None else 0 if is_number else ""
    text = f"{line.key} ({line.why})"
    return str(click.prompt(text, default=shown, show_default=shown != "", type=kind, err=True)).strip()


def _ask() -> dict[str, str]:
    from remuda.specs.reading.defaults import QUESTIONS

    answers: dict[str, str] = {}
    wanted: dict[str, bool] = {"": True}
    for question in QUESTIONS:
        if question.group not in wanted:
            is_backend = answers.get("backend") == question.group
            wanted[question.group] = is_backend or click.confirm(f"Use {question.group}?", default=False)
        if wanted[question.group]:
            kind = click.Choice(question.choices) if question.choices else str
            answers[question.key] = str(
                click.prompt(question.prompt, default=question.default, show_default=bool(question.default), type=kind)
            )
    return answers
