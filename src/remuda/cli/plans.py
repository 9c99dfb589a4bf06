"""Plans for eyes: notes, what speaks against them, and what would be sent. The one form of every dry run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from remuda.base.shell import show_command
from remuda.base.units import show_counted, show_duration
from remuda.cli.lazy import EVERY
from remuda.cli.show import echo, print_json, say
from remuda.client import swarms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_FILLED_IN: Final = re.compile(r"__REMUDA_\w+?__(?![A-Za-z0-9])")
"""What a node program replaces (`wire.child`, `wire.spread`)."""


def tell(answer: Mapping[str, Any], *, dry_run: bool = False, as_json: bool = False) -> bool:
    """Say what users should know of plans; of a dry run, also what would fail, and what would be sent.

    Args:
        answer: the plans, as `client.submission` describes them.
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
    if as_json:
        print_json([*_items(answer)])
        return True
    for one in answer["plans"]:
        for line in summary(one):
            echo(f"# {line}")
    echo("")
    _show(answer["tasks"], sorted({name for one in answer["plans"] for name in one["asked"]}))
    return True


def _show(tasks: Sequence[Mapping[str, Any]], asked: Sequence[str]) -> None:
    """The first task of each group for eyes; with `-v` every one."""
    parts = None if click.get_current_context().meta.get(EVERY) else 2
    alike, marks = dict[str, list[Any]](), dict[str, None]()
    for task in tasks:
        alike.setdefault(".".join(task["token"].split(".")[:parts]), []).append(task)
    is_any_read = any(_is_read(task) for task in tasks)
    for first, *others in alike.values():
        echo(f"# {first['token']}" + (f" and {show_counted(len(others), 'task')} like it" if others else ""))
        text = "\n".join(_parts(first, asked))
        if is_any_read and not _is_read(first):  # a command reads all of this
            text = "".join(f"# {line}" if line.strip() else line for line in text.splitlines(keepends=True))
        echo(text, exact=True)
        marks.update(dict.fromkeys(_FILLED_IN.findall(text)))
    if marks:
        echo(f"# {', '.join(marks)}: filled in where a task runs, when it starts")
    folded = "" if len(alike) == len(tasks) else "-v shows every task; "
    say(f"{folded}--json prints every task, file and variable")


def _items(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Tasks for programs, with the pools of their groups; several runs that one call starts together have the same."""
    plans = ((one["name"], *pair) for one in answer["plans"] for pair in zip(one["groups"], one["pools"], strict=True))
    pools = {f"{name}.{group['group']}": names for name, group, names in plans}
    said = {"notes": answer["notes"], "findings": answer["findings"]}
    for task in answer["tasks"]:
        mine = pools.get(task["token"].rsplit(".", 3)[0]) or next(iter(pools.values()))
        yield {**task, "command": show_command(task["argv"], task["env"]), "pools": mine, **said}


def summary(plan: Mapping[str, Any]) -> list[str]:
    """What a plan starts, in a line for each group. Pure."""
    lines = [f"{plan['name']}: {plan['kind']} on {plan['backend']}"]
    for group in plan["groups"]:
        said = [show_counted(group["nodes"], "node")] if group["nodes"] > 1 else []
        each = " a node" if group["nodes"] > 1 else ""
        said += [show_counted(group["gpus"], "GPU") + each] if group["gpus"] else []
        said += [show_counted(group["cpus"], "CPU") + each] if group["cpus"] else []
        said += [f"{group['mem_bytes'] / 2**30:.3g} GB{each}"] if group["mem_bytes"] else []
        said += [f"at most {show_duration(group['time_limit_s'])}"] if group["time_limit_s"] else []
        said += [f"partition {' or '.join(group['partitions'])}"] if any(group["partitions"]) else []
        lines.append(
            f"  {group['group']}: {show_counted(group['tasks'], 'task')}" + "".join(f", {one}" for one in said)
        )
    hours = [one["tasks"] * one["nodes"] * one["gpus"] * one["time_limit_s"] / 3600 for one in plan["groups"]]
    return [*lines, f"  at most {sum(hours):.4g} GPU-hours{_cost(plan['groups'], hours)}"] if sum(hours) else lines


def _cost(groups: Sequence[Mapping[str, Any]], hours: Sequence[float]) -> str:
    """What these hours cost; empty where not all of their GPUs have a price. All are of one list, in one currency."""
    paid = [(one.get("price"), hour) for one, hour in zip(groups, hours, strict=True) if hour]
    known = [(price, price["hour"] * hour) for price, hour in paid if price]
    if len(known) < len(paid):
        return ""
    currency, total = known[0][0]["currency"], sum(cost for _, cost in known)
    each = dict.fromkeys(f"{price['gpu']}: {price['hour']:.2f} {currency} an hour" for price, _ in known)
    return f", about {total:,.{0 if total >= 100 else 2}f} {currency} at list price ({', '.join(each)})"


def _is_read(task: Mapping[str, Any]) -> bool:
    """Whether what is shown of a task is what its command reads."""
    return bool(task["argv"][-1] == "-")


def _parts(task: Mapping[str, Any], asked: Sequence[str]) -> Iterator[str]:
    is_here, told = True, set[str]()
    is_read = _is_read(task)
    for path, text in task["files"].items():
        if Path(path).name == "child.json":
            if (words := swarms.described(text, asked)) not in told:
                yield words
            told.add(words)
            continue
        is_here = False
        yield f"---\n{text}" if is_read else f"# {path}:\n{text}"
    said = show_command(task["argv"], task["env"])
    yield "" if is_here else f"{'# ' if is_read else ''}{said}\n"
