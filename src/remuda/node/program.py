"""The command line of the node program: `child SPEC.json`, `smoke`, `--version`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from remuda import __version__
from remuda.wire import exit as codes
from remuda.wire.child import ChildSpec

USAGE = "usage: remuda-node child SPEC.json | smoke [--json] [--gpus N] [--timeout SECONDS] | --version\n"

_MANY = 1 << 20
PROGRAMS = {
    "smoke": ("gpu.smoke", "main", 1, _MANY),
    "spread": ("guard.spread", "main", 4, _MANY),
    "guardroom": ("guard.guard_server", "main", 3, 3),
    "guard": ("guard.guard", "main", 2, 2),
    "recorder": ("recorder.writer", "main", 2, _MANY),
    "member": ("guard.member", "main", 2, 2),
    "crew": ("guard.crew", "lead", 2, 2),
    "seats": ("guard.crew", "seats", 2, 2),
    "step": ("script.steps", "main", 5, _MANY),
}
"""First word -> module of this room and function that is given the others, and how many words it takes."""


def main(arguments: list[str]) -> int:
    """Run one subcommand; the exit code, as `wire.exit` and `docs/exit-codes.md` list them."""
    if arguments == ["--version"]:
        sys.stdout.write(f"remuda-node {__version__}\n")
        return 0
    module, function, least, most = PROGRAMS.get(arguments[0] if arguments else "", ("", "", 0, 0))
    if module and least <= len(arguments) <= most:
        code: int = getattr(import_module(f"remuda.node.{module}"), function)(arguments[1:])
        return code
    if len(arguments) != 2 or arguments[0] != "child":
        sys.stderr.write(USAGE)
        return codes.BAD_SPEC
    return run_child(Path(arguments[1]))


def run_child(document: Path) -> int:
    """Claim the allocation that a document describes and supervise its child to the end."""
    try:
        spec = ChildSpec.from_json(document.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return _say(codes.BAD_SPEC, f"cannot read {document}: {error}")
    from remuda.node.child.signals import Signals
    from remuda.node.claim import claim, start_number

    signals = Signals()  # before the claim: from then on a signal ends the allocation in order
    start = start_number(os.environ)
    try:
        if not claim(Path(spec.run_dir), start):
            return _say(codes.FENCED, f"{spec.token}: another copy holds {spec.run_dir}")
    except OSError as error:
        code = codes.NO_ROOM if codes.is_full(error) else codes.CANNOT_START
        return _say(code, f"{spec.token}: cannot claim {spec.run_dir}: {error}")
    from remuda.node.child.loop import ChildSupervisor

    supervisor = ChildSupervisor(spec, signals, start)
    code = supervisor.run()
    if spec.away is not None:  # its standard error is the child's output there
        return code
    return _say(code, f"{spec.token}: {supervisor.life.reason}")


def _say(code: int, what: str) -> int:
    with suppress(OSError):  # the code says it, too; what is left in a buffer would change that at the very end
        os.write(2, f"remuda-node: {what} (exit {code}: {codes.meaning(code)})\n".encode(errors="replace"))
    return code
