"""`gpus`: what GPUs there are, and how many are free."""

from __future__ import annotations

from typing import Any

import click

from remuda.cli.show import is_terminal, print_json, table

_ICONS = {"full": "○", "partial": "◐", "none": "●"}


@click.command()
@click.option("--backend", default="", help="slurm, fleet or local (default: slurm where sbatch is on PATH).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def gpus(backend: str, as_json: bool) -> None:
    """Show GPUs by partition and type: memory, most per node, most free on a node now, nodes, total."""
    from remuda.client.http import connect

    views = connect().get("/gpus", backend=backend)
    if as_json:
        print_json(views)
        return
    columns = ["partition", "GPU", "VRAM", "max", "avail", "nodes", "total"]
    table(columns, [_row(view) for view in views], empty="there are no GPUs")


def _row(view: dict[str, Any]) -> list[str]:
    count, word = view["available"], view["availability"]
    return [
        view["pool"] + ("" if view["is_up"] else " (down)"),
        view["gpu"] or "?",
        _vram(view),
        str(view["max_per_node"]),
        f"{_ICONS[word]} {count}" if is_terminal() else f"{count} {word}",
        f"{view['nodes_free']}/{view['nodes']}",
        f"{view['free']}/{view['total']}",
    ]


def _vram(view: dict[str, Any]) -> str:
    if view["vram_gb"]:
        return f"{view['vram_gb']:g}GB"
    return " or ".join(f"{size:g}" for size in view["vram_variants"]) + "GB" if view["vram_variants"] else "?"
