"""Where the programs of Slurm and munge are: of this machine, or unpacked from Debian's packages without root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tree:
    """One installation of Slurm and munge."""

    programs: dict[str, str]
    """Path of each program, by name: `munged`, `slurmctld`, `slurmd`, `slurmstepd`, `sbatch`, …."""
    version: tuple[int, int, int]
    plugins: str = ""
    """Folder of Slurm's plugins; empty where the programs know it themselves."""
    libraries: str = ""
    """What LD_LIBRARY_PATH has to have; empty where nothing."""


def find(*, head: bool = False, unpacked: Path | None = None) -> Tree:
    """The programs of a node, or of a head: in PATH, in the folders of daemons, or in a tree that was unpacked.

    Raises:
        Unavailable: one is missing; says which package has it, and how to get it.
    """
    raise NotImplementedError


def unpack(folder: Path, *, head: bool = False) -> Tree:
    """Fetch Debian's packages into a folder and unpack them there, without root; what lies there already is used.

    Raises:
        Unavailable: no apt-get or dpkg here, or no package; says what to install instead.
    """
    raise NotImplementedError
