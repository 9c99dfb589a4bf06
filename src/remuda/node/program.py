"""The command line of the node program: `child SPEC.json`, `smoke`, `--version`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from remuda import __version__
from remuda.wire import exit as codes
from remuda.wire.child import ChildSpec

USAGE = "usage: remuda-node child SPEC.json | smoke [--json] [--gpus N] [--timeout SECONDS] | --version\n"


def main(arguments: list[str]) -> int:
    """Run one subcommand; the exit code, as `wire.exit` and `docs/exit-codes.md` list them."""
    if arguments == ["--version"]:
        sys.stdout.write(f"remuda-node {__version__}\n")
        return 0
    if arguments[:1] == ["smoke"]:
        from remuda.node.gpu.smoke import main as smoke

        return smoke(arguments[1:])
    if arguments[:1] == ["spread"] and len(arguments) > 3:
        from remuda.node.guard.spread import main as spread

        return spread(arguments[1:])
    if arguments[:1] == ["guardroom"] and len(arguments) == 3:
        from remuda.node.guard.guard_server import main as guardroom

        return guardroom(arguments[1:])
    if arguments[:1] == ["guard"] and len(arguments) == 2:
        from remuda.node.guard.guard import main as guard

        return guard(arguments[1:])
    if arguments[:1] == ["recorder"] and len(arguments) > 1:
        from remuda.node.recorder.writer import main as recorder

        return recorder(arguments[1:])
    if arguments[:1] == ["member"] and len(arguments) == 2:
        from remuda.node.guard.member import main as member

        return member(arguments[1:])
    if arguments[:1] == ["step"] and len(arguments) > 4:
        from remuda.node.script.steps import main as step

        return step(arguments[1:])
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
    return _say(code, f"{spec.token}: {supervisor.life.reason}")


def _say(code: int, what: str) -> int:
    with suppress(OSError):  # the code says it, too; what is left in a buffer would change that at the very end
        os.write(2, f"remuda-node: {what} (exit {code}: {codes.meaning(code)})\n".encode(errors="replace"))
    return code
