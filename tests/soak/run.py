"""A soak as a command: `python -m tests.soak.run --minutes 20`, half of it on this machine and half on the cluster."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import Home
from tests.soak.places import Cluster, ThisMachine
from tests.soak.soak import Soak, as_json, table
from tests.soak.work import Lost

from remuda.testing.slurm import SlurmBed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.places import Place


@contextmanager
def a_home() -> Iterator[Home]:
    """A state directory that is gone afterwards, with all that ran in it."""
    home = Home(Path(tempfile.mkdtemp(prefix="rh", dir="/tmp")), cold=True)
    try:
        yield home
    finally:
        home.close()


@contextmanager
def this_machine() -> Iterator[tuple[Home, Place]]:
    """The place without a scheduler."""
    with a_home() as home:
        yield home, ThisMachine()


@contextmanager
def a_cluster() -> Iterator[tuple[Home, Place]]:
    """A real Slurm."""
    bed = SlurmBed(tempfile.mkdtemp(prefix="rmsl", dir="/tmp"), owned=True)
    try:
        bed.up()
        with a_home() as home:
            home.env |= {**bed.env(), "REMUDA_SLURM_POLL_S": "0.5"}
            yield home, Cluster(home, bed)
    finally:
        bed.down()


PLACES = {"local": this_machine, "slurm": a_cluster}


def main() -> int:
    """0 when everything held, 1 with what did not."""
    asked = argparse.ArgumentParser(prog="python -m tests.soak.run", description=__doc__)
    asked.add_argument("--minutes", type=float, default=20.0, help="of kills, over all places")
    asked.add_argument("--seed", type=int, default=secrets.randbelow(10_000), help="which kills come when")
    asked.add_argument("--place", choices=sorted(PLACES), help="only this one")
    asked.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = asked.parse_args()
    names = [options.place] if options.place else list(PLACES)
    for name in names:
        with PLACES[name]() as (home, place):
            try:
                figures = Soak(home, place, options.seed).go(options.minutes * 60 / len(names))
            except Lost as error:
                sys.stderr.write(f"{place.name}, seed {options.seed}: {error}\n")
                return 1
        sys.stdout.write((as_json(figures) if options.json else table(figures)) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
