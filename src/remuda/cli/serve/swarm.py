"""`swarm list`, `swarm describe`."""

from __future__ import annotations

from typing import Any

import click

from remuda.base.ids import api_path
from remuda.cli import taskview
from remuda.cli.lazy import NearGroup, named
from remuda.cli.show import echo, looked, pairs, print_json, table


@click.group(cls=NearGroup)
def swarm() -> None:
    """List and describe swarms."""


@swarm.command(name="list")
@click.option("--probe/--no-probe", default=True, help="Ask each endpoint now (default), or show the last known state.")
@click.option("-a", "--all", "everything", is_flag=True, help="Include stopped workloads.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(probe: bool, everything: bool, as_json: bool) -> None:
    """List swarms: name, backend, phase, endpoint, notes."""
    from remuda.client.swarms import http_status

    views = looked("/workloads", kind="swarm", everything=str(everything).lower())
    for view in views:
        view["http"] = http_status(view) if probe and view["phase"] in ("RUNNING", "DEGRADED") else 0
    if as_json:
        print_json(views)
        return
    rows = [[view["name"], view["backend"], view["phase"], view["endpoint"], _notes(view, probe)] for view in views]
    table(["name", "backend", "phase", "endpoint", "notes"], rows, empty="no swarm is up")


def _notes(view: dict[str, Any], probe: bool) -> str:
    notes = [f"rep={ready}"] if (ready := taskview.ready(view)) else []
    if probe and view["phase"] in ("RUNNING", "DEGRADED"):
        notes.insert(0, f"HTTP {view['http']}" if view["http"] else "no answer")
    if view["reason"]:
        notes.append(view["reason"][:80])
    return " ".join(notes)


@swarm.command()
@click.argument("name", shell_complete=named)
@click.option("-o", "--output", type=click.Choice(["table", "yaml", "json"]), default="table", show_default=True,
              help="Output format.")  # fmt: skip
def describe(name: str, output: str) -> None:
    """Show every value of NAME's document, defaults included, without probing it."""
    import json

    answer = looked(api_path(name, "spec"))
    spec = json.loads(answer["spec"]) if answer["spec"] else {}
    data = {"name": name, **spec}
    if output == "json":
        print_json(data)
    elif output == "yaml":
        import yaml

        echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False, exact=True)
    else:
        pairs(list(_flat(data)))


def _flat(data: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    flat: list[tuple[str, str]] = []
    for key, value in data.items():
        if isinstance(value, dict) and value:
            flat += _flat(value, f"{prefix}{key}.")
        elif value not in ({}, [], None, ""):
            flat.append((f"{prefix}{key}", " ".join(map(str, value)) if isinstance(value, list) else str(value)))
    return flat
