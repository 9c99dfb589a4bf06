"""What `python -m remuda.testing.slurm` and `python -m remuda.testing.kube` share: how they speak, and their arguments.

What a program reads goes to standard output (`export` lines, or JSON), what a person reads to standard error.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import NotFound, RemudaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def say(text: str) -> None:
    """Tell a person."""
    print(text, file=sys.stderr)  # noqa: T201 - this is a program


def put(text: str) -> None:
    """Tell a program."""
    print(text)  # noqa: T201 - this is a program


def parser(
    module: str, about: str, drills: Sequence[str], target: str
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """The arguments that both have: `up`, `status`, `drill` and `down` of a directory; and those of `up` alone."""
    root = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    root.add_argument("--called-as", default="", help=argparse.SUPPRESS)
    actions = root.add_subparsers(dest="action", required=True)
    made = {}
    for name, text in (("up", "start it"), ("status", "look at it"), ("drill", "break it"), ("down", "remove it")):
        action = made[name] = actions.add_parser(name, help=text)
        action.add_argument("directory", type=Path)
        if name in {"up", "status"}:
            action.add_argument("--json", action="store_true", help="print JSON")
        if name == "drill":
            action.add_argument("drill", choices=drills)
            action.add_argument("target", help=target)
    return root, made["up"]


def ended(action: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> int:
    """Run one action; its exit code, as for all commands of remuda."""
    try:
        action(options)
    except RemudaError as error:
        hint = error.hint
        if isinstance(error, NotFound) and options.called_as and not hint:
            hint = f"start one: {options.called_as}"
        say(f"error: {error}" + (f"\n  {hint}" if hint else ""))
        return error.exit_code
    return 0
