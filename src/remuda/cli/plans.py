"""Plans for eyes: notes, what speaks against them, and what would be sent. The one form of every dry run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.base.shell import show_command
from remuda.cli.show import echo, print_json, say
from remuda.control import swarms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def tell(answer: Mapping[str, Any], *, dry_run: bool = False, as_json: bool = False) -> bool:
    """Say what users should know of plans; of a dry run, also what would fail, and what would be sent.

    Args:
        answer: the plans, as `control.asking` describes them.
        dry_run: nothing is sent.
        as_json: what would be sent is printed as JSON.

    Returns:
        Whether it is a dry run, after which nothing is left to do.
    """
    if answer["said"]:
        say(answer["said"].rstrip())
    for note in answer["notes"]:
        say(f"note: {note}")
    if not dry_run:
        return False
    for finding in answer["findings"]:
        say(f"would fail: {finding}")
    pools = [pools for one in answer["plans"] for pools in one["pools"]]
    tasks = [task for one in answer["plans"] for task in one["tasks"]]
    if as_json:
        said = {"pools": pools[0], "notes": answer["notes"], "findings": answer["findings"]}
        print_json([{**task, "command": show_command(task["argv"], task["env"]), **said} for task in tasks])
        return True
    asked = sorted({name for one in answer["plans"] for name in one["asked"]})
    for task in tasks:
        _show(task, asked, pools[0])
    say("--json prints every file and variable")
    return True


def _show(task: Mapping[str, Any], asked: Sequence[str], pools: Sequence[str]) -> None:
    echo(f"# {task['token']}")
    if pools:
        echo(f"# partitions, best first: {', '.join(pools)}")
    is_here = True
    for path, text in task["files"].items():
        if Path(path).name == "child.json":
            echo(swarms.described(text, asked), exact=True)
            continue
        is_here = False
        echo(f"# {path}:\n{text}", exact=True)
    echo("" if is_here else f"{show_command(task['argv'], task['env'])}\n", exact=True)
