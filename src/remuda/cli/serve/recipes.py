"""`apply`, `preflight`, `resolve`: a recipe or deployment is brought up, checked, or shown with every value."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from remuda.cli.lazy import dry, examples, together
from remuda.cli.show import cell, echo, print_json, say, table

if TYPE_CHECKING:
    from remuda.specs.recipe.load import Recipe


_SET: Final = "Set a key of the file; lists and mappings as in YAML: [1, 2] (repeatable)."


_of_recipes = together(
    click.option("-s", "--set", "settings", multiple=True, metavar="KEY=VALUE", help=_SET),
    click.option("--unset", multiple=True, metavar="KEY", help="Remove a key from the recipe (repeatable)."),
    click.option(
        "--backend", type=click.Choice(["local", "slurm", "fleet"]), help="Backend to run on; overrides the file."
    ),
    click.option(
        "--cluster", "cluster_file", type=click.Path(path_type=Path), help="Cluster file (default: auto-detected)."
    ),
)
"""The options of every command that reads recipes."""


@click.command(epilog=examples("remuda apply recipe.yaml --backend local", "remuda apply recipe.yaml:tp8 --dry-run"))
@click.argument("targets", nargs=-1, required=True, metavar="FILE[:SELECTOR]...")
@click.option("-n", "--name", default="", help="Name of the deployment; overrides the file.")
@_of_recipes
@dry()
@click.option(
    "--write",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the commands and the resolved recipe of --dry-run to DIR.",
)
@click.option("--sweep", is_flag=True, help="Measure what is not known of FILE: its section `sweep`, selected recipes.")
@click.option("--again", is_flag=True, help="Measure known points of --sweep once more, too.")
@click.option("--wait/--no-wait", default=True, help="Wait until the endpoint answers (default), or return at once.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def apply(  # noqa: PLR0913
    targets: tuple[str, ...], name: str, settings: tuple[str, ...], unset: tuple[str, ...], backend: str | None,
    cluster_file: Path | None, *, dry_run: bool, write: Path | None, sweep: bool, again: bool, wait: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Bring up the deployment of a recipe: workers by role, then the frontend; print its URL.

    FILE is an srtctl recipe (version 1 or 2) or a document of kind deployment. Manage it like a swarm: status,
    logs --role decode, explain, scale NAME decode=4, restart NAME prefill, down. Several FILEs are one --sweep.

    Streams the recipe's benchmark; the deployment stops when it finishes. The exit code is that of `bench`, or of the
    benchmark's command.
    """
    from remuda.cli.serve.up import bring

    if write is not None and sweep:
        raise click.UsageError("--sweep is several deployments: it goes without --write")
    if write is not None and not dry_run:
        raise click.UsageError("--write goes with --dry-run: an apply writes its directory by itself")
    if again and not sweep:
        raise click.UsageError("--again goes with --sweep: what `apply` measures is always measured")
    if len(targets) > 1 and not sweep:
        raise click.UsageError(f"apply brings up one deployment, not {len(targets)}: --sweep has several measured")
    cluster = str(cluster_file.absolute()) if cluster_file is not None else ""
    words: dict[str, Any] = {
        "settings": settings, "unset": unset, "name": name, "backend": backend or "",
        "cluster_file": cluster,
    }  # fmt: skip
    if sweep:
        from remuda.cli.serve import sweeps

        words["targets"] = targets
        said = {"again": again, "as_json": as_json}
        return sweeps.show(words, **said) if dry_run else sweeps.run(words, wait=wait, **said)
    words["target"] = targets[0]
    if wait and not dry_run:
        from remuda.cli.serve import deployed

        return deployed.follow(words, as_json=as_json)
    folder = str(write.absolute()) if write is not None else ""
    view = bring("deployment", dry_run=dry_run, wait=wait, as_json=as_json, write=folder, **words)
    if write is not None:
        from remuda.look import run_dirs

        run_dirs.write_files(view, is_new=True)
        say(f"written to {write}")
    elif not dry_run:
        say(f"files: {view['labels'].get('directory', '')}")
    return 0


@click.command(
    epilog=examples(
        "remuda resolve recipe.yaml",
        "remuda resolve 'recipe.yaml:override_tp*' --set resources.decode_nodes=4",
        "remuda resolve recipe.yaml --backend local --json",
    )
)
@click.argument("targets", nargs=-1, required=True, metavar="FILE[:SELECTOR]...")
@_of_recipes
@click.option("-a", "--all", "everything", is_flag=True, help="Include defaults.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def resolve(
    targets: tuple[str, ...], settings: tuple[str, ...], unset: tuple[str, ...], backend: str | None,
    cluster_file: Path | None, *, everything: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print a deployment's values and where each came from. Reads srtctl recipes as they are.

    FILE is an srtctl recipe (version 1 or 2) or a document of kind deployment. SELECTOR chooses recipes of a file with
    a base and overrides; * and ? are wildcards.
    """
    from remuda.look import recipes

    found = [
        recipe
        for target in targets
        for recipe in recipes.resolve(target, settings, unset, backend=backend or "", cluster_file=cluster_file)
    ]
    if as_json:
        print_json([_as_data(recipe) for recipe in found])
        return
    for note in dict.fromkeys(note for recipe in found for note in recipe.notes):
        say(f"note: {note}")
    for recipe in found:
        if len(found) > 1:
            echo(f"{recipe.loaded.file}:{recipe.selector}" if recipe.selector else recipe.loaded.file)
        rows = [[item.path, cell(item.value), item.origin] for item in recipe.loaded.show(derived=recipe.derived)
                if everything or item.origin != "built-in"]  # fmt: skip
        table(["key", "value", "origin"], rows)


@click.command(
    epilog=examples(
        "remuda preflight recipe.yaml", "remuda preflight 'recipe.yaml:override_tp*' --backend local --json"
    )
)
@click.argument("targets", nargs=-1, required=True, metavar="FILE[:SELECTOR]...")
@_of_recipes
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def preflight(
    targets: tuple[str, ...], settings: tuple[str, ...], unset: tuple[str, ...], backend: str | None,
    cluster_file: Path | None, *, as_json: bool,
) -> int:  # fmt: skip
    """Check FILE for problems before it takes a GPU. Prints one line per problem; exits with 1 if there are any.

    FILE is a recipe, a document of any kind, or a script. For a deployment it checks that roles fit together, flags
    against the engine's own --help, the model, the container, GPUs, partition and port. Checks that are not possible
    from here are notes.
    """
    from remuda.client import documents
    from remuda.look import planning

    facts = planning.facts_of()
    asked = documents.Given(settings, unset, backend or "", cluster_file)
    seen = [one for target in targets for one in documents.preflight(target, facts, asked)]
    if as_json:
        print_json([{**asdict(one), "good": not one.failures} for one in seen])
        return int(any(one.failures for one in seen))
    for one in seen:
        name = f"{one.file}:{one.selector}" if one.selector else one.file
        if len(seen) > 1 and one.failures:
            echo(f"# {name}")
        for note in one.notes:
            say(f"note: {note}")
        for failure in one.failures:
            echo(failure)
        if not one.failures:
            echo(f"{name}: good")
    return int(any(one.failures for one in seen))


def _as_data(recipe: Recipe) -> dict[str, Any]:
    shown = recipe.loaded.show(derived=recipe.derived)
    return {
        "file": recipe.loaded.file,
        "selector": recipe.selector,
        "notes": list(recipe.notes),
        "values": [{"key": item.path, "value": item.value, "origin": item.origin} for item in shown],
    }
