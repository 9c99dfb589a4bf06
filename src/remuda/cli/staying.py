"""What `run` and `gang run` share: what stands behind `--`, and staying until the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from remuda.base.units import is_interval
from remuda.cli.lazy import Headed, long_name
from remuda.cli.show import echo, print_json, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from remuda.client.runs import FollowedLine


def _completed(args: Sequence[str], without: Mapping[str, str]) -> Iterator[str]:
    """Words, with a value for a flag that stands without one: what follows it may be the script."""
    for word, following in zip(args, [*args, ""][1:], strict=True):
        key = word.removeprefix("--")
        is_bare = word == f"--{key}" and key in without and not is_interval(following)
        yield f"{word}={without[key]}" if is_bare else word


class WithArguments(Headed):
    """Everything after `--` belongs to the script, or is the command itself.

    Args:
        own: what stands behind `--` when it is more than arguments.
    """

    def __init__(self, *args: Any, own: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.own = own

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the script's own arguments aside."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["remuda.args"] = tuple(args[end + 1 :])
        rates = [one for one in self.params if isinstance(one, click.Option) and one.metavar == "[FREQ]"]
        without = {long_name(one): str(one.flag_value) for one in rates}
        return super().parse_args(ctx, [*_completed(args[:end], without)])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """`SCRIPT... [-- ARGS]`."""
        return [*super().collect_usage_pieces(ctx), f"-- {self.own}" if self.own else "[-- ARGS]"]


def stay(name: str, follow: Callable[[str], Iterable[FollowedLine]]) -> int:
    """Show what it writes until it ends; Ctrl-C leaves it running. Returns the exit code."""
    from remuda.client import runs

    try:
        for line in follow(name):
            echo(line.text, err=not line.is_output)
    except KeyboardInterrupt:
        say(f"{name} keeps running; stop it with: remuda stop {name}")
        return 130
    return finished(runs.ended([name]), wait=True, as_json=False)


def finished(views: Sequence[Mapping[str, Any]], *, wait: bool, as_json: bool) -> int:
    """Print workloads that were started, and where they were waited for how they ended; the exit code."""
    if as_json:
        print_json(views if len(views) > 1 else views[0])
    for view in views if wait and not as_json else ():
        say(f"{view['name']} is {view['phase']}" + (f": {view['reason']}" if view["reason"] else ""))
    return 1 if wait and any(view["phase"] != "DONE" for view in views) else 0
