"""`config check | show | schema`, `init defaults`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.lazy import NearGroup
from remuda.cli.show import echo, print_json, say, table

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.group(cls=NearGroup)
def config() -> None:
    """Check documents, show values and their origins, print schemas."""


@config.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def check(files: tuple[Path, ...]) -> None:
    """Read FILES and plan them; say what is wrong with file:line:column."""
    for file in files:
        for note in _notes(file):
            say(f"{file}: note: {note}")
        echo(f"{file}: good")


def _notes(file: Path) -> Sequence[str]:
    """What a document's author may want to know, once it was planned as its kind."""
    from remuda.base.paths import state_paths
    from remuda.control import gangs, pool, recipes, runs, swarms
    from remuda.specs.load import load
    from remuda.specs.pooling import load_pool

    match load(file, expect="swarm").kind:
        case "run":
            return runs.Planner().plan(str(file)).notes
        case "gang":
            return gangs.plan(str(file)).notes
        case "deployment":
            return [note for recipe in recipes.resolve(str(file)) for note in recipe.notes]
        case "pool":
            members = pool.plan_pool(load_pool(file), state_paths())
            return [f"{one.entry.name}: {note}" for one in members for note in one.planned.notes]
        case _:
            return swarms.plan(file, name="check").notes


@config.command()
@click.option("-c", "--config", "file", required=True, type=click.Path(path_type=Path), help="Document to show.")
@click.option("-r", "--replicas", type=click.IntRange(min=1), help="As for `up`.")
@click.option("-s", "--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for `up`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(file: Path, replicas: int | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Print every value of a document, filled in, with where it came from."""
    from remuda.control import swarms

    shown = swarms.plan(file, replicas=replicas, settings=settings).shown
    if as_json:
        print_json([{"key": item.path, "value": item.value, "origin": item.origin} for item in shown])
        return
    table(["key", "value", "origin"], [[item.path, _text(item.value), item.origin] for item in shown])


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


@config.command()
@click.argument("kind", default="swarm")
def schema(kind: str) -> None:
    """Print the JSON Schema of one KIND of document, for editors."""
    from remuda.specs.schema import schema_of

    print_json(schema_of(kind))


@click.group(cls=NearGroup)
def init() -> None:
    """Write a file of your own defaults."""


@init.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Default: defaults.yaml in the state directory.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def defaults(output: Path | None, force: bool) -> None:
    """Ask for the values that you would write into every document, and save them."""
    from remuda.base.errors import Conflict
    from remuda.base.files import write_atomic
    from remuda.base.private import make_missing
    from remuda.specs.defaults import render_defaults
    from remuda.specs.load import defaults_path

    path = (output or Path(defaults_path()[0])).expanduser().absolute()
    if path.exists() and not force:
        raise Conflict(f"{path} exists", hint="--force overwrites it")
    text = render_defaults(_ask())
    make_missing(path.parent)
    write_atomic(path, text, mode=0o600)
    say(f"wrote {path}; a document, the environment and flags win over it")


def _ask() -> dict[str, str]:
    from remuda.specs.defaults import QUESTIONS

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
