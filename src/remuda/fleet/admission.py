"""Why a machine cannot be a node of a fleet, in one sentence. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.base.text import brief
from remuda.base.units import show_duration
from remuda.fleet.conf import NodeConf, gpus_of

if TYPE_CHECKING:
    from remuda.wire.fleet import Joining

CLOCK_S = 60.0
"""Clocks may differ by so much. Munge itself refuses five minutes."""
SILENT_S = 60.0
"""A name is its machine's until nothing was heard of it for so long; then another machine may have it."""
RELEASES: Final = (
    (22, 5), (23, 2), (23, 11), (24, 5), (24, 11), (25, 5), (25, 11),
)  # fmt: skip
"""Of Slurm, in their order, from the first that has `slurmd -Z`."""
OLDER: Final = 2
"""By so many releases a slurmd may be older than its slurmctld."""


def refusal(said: Joining, *, uid: int, now: float, slurm: tuple[int, ...]) -> str:
    """Why a head refuses whoever wants to join, whatever its key or token; empty when it does not.

    Args:
        said: what it says of itself.
        uid: user of the head's daemons.
        now: seconds since the epoch, on the head.
        slurm: version of the head's slurmctld.
    """
    return (
        malformed(said)
        or _of_user(said, uid)
        or _of_clock(said, now)
        or release_refusal(f"node {said.name}", version_of(said.slurm), slurm)
    )


def malformed(said: Joining) -> str:
    """What is wrong with its words; all of them end in files of Slurm."""
    try:
        NodeConf(said.name, str(ipaddress.IPv4Address(said.address)), said.cpus, said.memory, said.gpus)
        gpus_of(said.gpus)
    except ipaddress.AddressValueError:
        return f"{brief(said.address)!r} is not the IPv4 address of node {brief(said.name)!r}"
    except InputError as error:
        return f"{error.message} ({error.hint})" if error.hint else error.message
    if len(said.key) < 32 or said.cpus < 1 or said.memory < 1:
        return f"node {said.name} does not say its key, CPUs or memory"
    return ""


def _of_user(said: Joining, uid: int) -> str:
    if said.uid == uid:
        return ""
    return (
        f"node {said.name} runs as user number {said.uid} and this fleet as {uid}: Slurm needs the same number on all "
        "machines"
    )


def _of_clock(said: Joining, now: float) -> str:
    by = said.at - now
    if abs(by) <= CLOCK_S:
        return ""
    way = "ahead of" if by > 0 else "behind"
    return f"the clock of node {said.name} is {show_duration(abs(by))} {way} the head's: set it, by NTP for example"


def version_of(text: str) -> tuple[int, ...]:
    """A version as numbers: `22.05.8` is (22, 5, 8); empty where it is none."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in found.groups() if part) if found else ()


def release_refusal(who: str, node: tuple[int, ...], head: tuple[int, ...]) -> str:
    """Why slurmd of one version cannot be under a slurmctld of another; empty when it can.

    A release after the last of `RELEASES` is taken for one more.
    """
    mine, theirs = node[:2], head[:2]
    if len(mine) < 2:
        return f"{who} does not say which Slurm it has"
    shown, wanted = (f"{one[0]}.{one[1]:02}" for one in (mine, theirs))
    if mine > theirs:
        return f"{who} has Slurm {shown} and the head {wanted}: a node's may be older, never newer"
    if mine < RELEASES[0]:
        return f"{who} has Slurm {shown}: nodes that join by themselves need 22.05 or newer"
    between = sum(mine < one <= theirs for one in {*RELEASES, theirs})
    if between > OLDER:
        return f"{who} has Slurm {shown} and the head {wanted}: a node's may be two releases older at most"
    return ""


def taken(name: str, address: str, silent_s: float) -> str:
    """Why a name is not to be had by a machine that does not know its key; empty when it is."""
    if silent_s > SILENT_S:
        return ""
    return (
        f"a node {name} is in this fleet already, at {address}, heard {show_duration(silent_s)} ago: choose another "
        "name (--node-id), or let that one leave (remuda client disconnect there)"
    )
