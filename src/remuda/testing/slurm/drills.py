"""Drills that need more than one step, and the way back from all of them."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from remuda.base.errors import TimedOut
from remuda.testing.slurm import procs

if TYPE_CHECKING:
    from remuda.testing.slurm.bed import SlurmBed


def note(bed: SlurmBed, what: str) -> None:
    """Write a drill down in `log/drills.log`, so that nobody takes it for a failure of the bed."""
    with (bed.root / "log" / "drills.log").open("a") as log:
        log.write(f"{time.strftime('%H:%M:%S')} {what}\n")


def save_state(bed: SlurmBed) -> None:
    """Copy the state directory while the controller is down: it writes everything when it ends in good order."""
    bed.stop("slurmctld")
    shutil.rmtree(bed.root / "state.saved", ignore_errors=True)
    shutil.copytree(bed.root / "state", bed.root / "state.saved")
    bed.start("slurmctld")


def lose_state(bed: SlurmBed) -> None:
    """Kill the controller and give it older state, or none."""
    bed.crash("slurmctld")
    shutil.rmtree(bed.root / "state")
    if (bed.root / "state.saved").exists():
        shutil.copytree(bed.root / "state.saved", bed.root / "state")
    else:
        (bed.root / "state").mkdir()
    bed.start("slurmctld")


def restore(bed: SlurmBed, limit_s: float) -> None:
    """Undo whatever was done to a bed; cheap when nothing was."""
    deadline = time.monotonic() + limit_s
    _reconnect(bed)
    shutil.rmtree(bed.root / "state.saved", ignore_errors=True)
    bed.start_all()
    _open_partitions(bed)
    _delete_reservations(bed)
    while True:
        busy = _cancel_jobs(bed)
        odd = {name: state for name, state in bed.node_states().items() if state != "idle"}
        if not busy and not odd:
            return
        if time.monotonic() > deadline:
            raise TimedOut(f"the bed is not idle after {limit_s:.0f} s: jobs {busy or 'none'}, nodes {odd or 'idle'}")
        for name in (name for name, state in odd.items() if state.startswith(("down", "drain", "drng", "fail"))):
            bed.resume(name)
        time.sleep(0.2)


def _reconnect(bed: SlurmBed) -> None:
    """Thaw what is frozen and put pulled cables in."""
    for name in bed.services:
        pid = bed.daemons.pid(name)
        if pid and procs.state(pid) == "T":
            bed.thaw(name)
    for node in bed.nodes.values():
        if node.is_frozen():
            node.thaw()
        if node.is_cut():
            node.heal()


def _cancel_jobs(bed: SlurmBed) -> list[str]:
    """Cancel all jobs; ids of those that were there."""
    jobs = bed.run("squeue", "-h", "-a", "-o", "%i", check=False).stdout.split()
    if jobs:
        bed.run("scancel", "-u", bed.layout.user, check=False)
    return jobs


def _open_partitions(bed: SlurmBed) -> None:
    """Give each partition the state that it is configured with."""
    lines = bed.run("sinfo", "-h", "-a", "-o", "%R %a", check=False).stdout.splitlines()
    now = dict(line.split() for line in lines if len(line.split()) == 2)
    for partition in bed.layout.topology.partitions:
        words = [word.partition("=") for word in partition.options.split()]
        wanted = next((value for key, _, value in words if key == "State"), "UP")
        if now.get(partition.name, "").upper()[:5] != wanted.upper()[:5]:
            bed.run("scontrol", "update", f"partitionname={partition.name}", f"state={wanted}")


def _delete_reservations(bed: SlurmBed) -> None:
    for line in bed.run("scontrol", "show", "reservation", "-o", check=False).stdout.splitlines():
        if line.startswith("ReservationName="):
            bed.run("scontrol", "delete", line.split()[0], check=False)
