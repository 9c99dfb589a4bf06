"""`python -m remuda.testing.slurm up | drill | status | down DIRECTORY`: what `remuda try slurm` runs."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError
from remuda.base.words import DRILLS
from remuda.testing import program
from remuda.testing.program import put, say
from remuda.testing.slurm import packages, registry
from remuda.testing.slurm.bed import SlurmBed
from remuda.testing.slurm.status import look
from remuda.testing.slurm.topology import DEFAULT, Topology

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    about = "A real Slurm in one directory."
    root, action = program.parser("remuda.testing.slurm", about, DRILLS["slurm"], "node or service")
    action.add_argument("--no-accounting", action="store_true", help="without slurmdbd")
    action.add_argument("--shared", action="store_true", help="nodes share this machine's network")
    action.add_argument("--preempt", choices=("partition", "qos"), default="partition")
    action.add_argument("--topology", type=Path, help="JSON file of nodes and partitions")
    action.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="line of slurm.conf")
    action.add_argument("--install", action="store_true", help="install missing packages (as root)")
    return root


def up(options: argparse.Namespace) -> None:
    """Start a bed, or what does not run of it, and say how it is used."""
    accounting = not options.no_accounting
    lacking = packages.missing(accounting=accounting)
    if lacking and options.install:
        say(f"installing {', '.join(lacking)}")
        packages.install(lacking)
    begin = time.monotonic()
    bed = SlurmBed(
        options.directory,
        topology=_topology(options.topology),
        accounting=accounting,
        isolated=False if options.shared else None,
        preempt=options.preempt,
        extra=_settings(options.set),
    )
    bed.up()
    seen = look(bed)
    if options.json:
        put(json.dumps(seen, indent=2))
        return
    say(f"Slurm is up in {bed.root} after {time.monotonic() - begin:.1f} s")
    _describe(bed, seen)
    _advise(options.called_as, bed)
    put(f"export SLURM_CONF={shlex.quote(seen['slurm_conf'])}")


def _topology(path: Path | None) -> Topology:
    if path is None:
        return DEFAULT
    try:
        return Topology.from_json(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}", where="--topology") from error


def _settings(lines: Sequence[str]) -> tuple[str, ...]:
    for line in lines:
        if "=" not in line:
            raise InputError(f"{line!r} is not KEY=VALUE", where="--set")
    return tuple(lines)


def _describe(bed: SlurmBed, seen: dict[str, Any]) -> None:
    services = ", ".join(name if state == "up" else f"{name} ({state})" for name, state in seen["services"].items())
    say(f"  services    {services}")
    for name, node in seen["nodes"].items():
        state = node["state"] or "unknown"
        daemon = "" if node["daemon"] == "up" else f" (slurmd {node['daemon']})"
        say(f"  {name:10}  {node['address']:13}  {node['gpus'] or 'no GPU':8}  {state}{daemon}")
    say(f"  partitions  {', '.join(partition.name for partition in bed.layout.topology.partitions)}")
    isolated = "a network, a host name and processes of their own" if seen["isolated"] else "this machine's network"
    say(f"  nodes have {isolated}; all of it takes {seen['memory_bytes'] / 1e6:.0f} MB of memory")


def _advise(called_as: str, bed: SlurmBed) -> None:
    if not called_as:
        return
    node = bed.layout.topology.names[0]
    say("\nUse it in this shell, which both `remuda` and `squeue` then do:")
    say(f'  eval "$({called_as})"')
    say("Then try:")
    say(f"  {'remuda run train.sh':38}  # a run that remuda keeps alive")
    say(f"  {f'{called_as} --drill crash {node}':38}  # the power of its node fails")
    say(f"  {'remuda status train':38}  # watch it come back elsewhere; `remuda explain train` says why")
    say(f"Remove it: {called_as} --down")


def status(options: argparse.Namespace) -> None:
    """Say how a bed is."""
    bed = SlurmBed.open(options.directory)
    seen = look(bed)
    if options.json:
        put(json.dumps(seen, indent=2))
        return
    say(f"Slurm in {bed.root}")
    _describe(bed, seen)


def drill(options: argparse.Namespace) -> None:
    """Break a node or a service, or mend it."""
    bed = SlurmBed.open(options.directory)
    getattr(bed, options.drill)(options.target)
    say(f"{options.target}: {_DONE[options.drill]}")


_DONE = {
    "crash": "its power has failed; `start` brings it back",
    "freeze": "frozen; `thaw` lets it go on",
    "thaw": "goes on",
    "cut": "its cable is pulled; `heal` puts it back in",
    "heal": "its cable is in",
    "stop": "stopped in good order; `start` brings it back",
    "start": "started",
    "drain": "takes no more jobs; `resume` lets it",
    "resume": "takes jobs",
}


def down(options: argparse.Namespace) -> None:
    """End a bed and remove its directory; says the names of its nodes."""
    bed = SlurmBed.open(options.directory)
    names = bed.node_names
    bed.down(wipe=True)
    put(",".join(names))
    say(f"{bed.root} is removed, and nothing of it runs")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one action; its exit code, as for all commands of remuda."""
    options = parser().parse_args(argv)
    action = {"up": up, "status": status, "drill": drill, "down": down}[options.action]

    def alone(options: argparse.Namespace) -> None:
        with registry.locked(registry.registry() / "program.lock"):
            action(options)

    # Two programs that start and break beds at once would surprise each other.
    return program.ended(alone, options)


if __name__ == "__main__":
    sys.exit(main())
