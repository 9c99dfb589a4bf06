"""Plans for eyes: notes, what speaks against them, and what would be sent. The one form of every dry run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.shell import show_command
from remuda.cli.show import echo, print_json, say
from remuda.control import planning, rendering, swarms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.backends.base import Rendered
    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan


def tell(plans: Sequence[Plan], facts: Looked, *, dry_run: bool = False, as_json: bool = False) -> bool:
    """Say what users should know of plans; of a dry run, also what would fail, and what would be sent.

    Returns:
        Whether it is a dry run, after which nothing is left to do.
    """
    notes, problems = planning.look(plans, facts)
    for note in notes:
        say(f"note: {note}")
    if not dry_run:
        return False
    for problem in problems:
        say(f"would fail: {planning.line_of(problem)}")
    items = rendering.shown([one.workload for one in plans], facts.paths)
    pools = [[pool.name for pool in group.pools] for one in plans for group in one.workload.groups]
    if as_json:
        said = {"pools": pools[0], "notes": notes, "findings": [planning.line_of(problem) for problem in problems]}
        print_json([
            {
                "token": item.token, "argv": list(item.argv), "command": show_command(item.argv, item.env),
                "env": dict(item.env), "files": dict(item.files), **said,
            }
            for item in items
        ])  # fmt: skip
        return True
    for item in items:
        _show(item, plans, pools[0])
    say("--json prints every file and variable")
    return True


def _show(item: Rendered, plans: Sequence[Plan], pools: Sequence[str]) -> None:
    echo(f"# {item.token}")
    if pools:
        echo(f"# partitions, best first: {', '.join(pools)}")
    asked = {name for one in plans for name in getattr(one.spec, "env", ())}
    asked |= {name for one in plans if len(one.workload.groups) == 1 for name in one.workload.groups[0].command.env}
    is_here = True
    for path, text in item.files.items():
        if Path(path).name == "child.json":
            echo(swarms.described(text, sorted(asked)), exact=True)
            continue
        is_here = False
        echo(f"# {path}:\n{text}", exact=True)
    echo("" if is_here else f"{show_command(item.argv, item.env)}\n", exact=True)
