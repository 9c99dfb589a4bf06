"""Where the programs of Slurm and munge are: of this machine, or unpacked from Debian's packages without root."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.base.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SBIN: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES: Final = {
    "munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "slurmstepd": "slurmd",
    **dict.fromkeys(("scontrol", "sbatch", "squeue", "scancel", "sinfo", "srun"), "slurm-client"),
}  # fmt: skip
"""Debian's package of each program."""
_LIBRARIES = ("libmunge2", "slurm-wlm-basic-plugins", "libhwloc15", "libnuma1")
"""What the programs load besides, and what a machine may lack."""
OLDEST: Final = (22, 5)
"""The first Slurm whose nodes join by themselves."""


@dataclass(frozen=True)
class Tree:
    """One installation of Slurm and munge."""

    programs: Mapping[str, str]
    """Path of each program, by name: `munged`, `slurmctld`, `slurmd`, `slurmstepd`, `sbatch`, …."""
    version: tuple[int, ...]
    """Of Slurm, as in `(22, 5, 8)`."""
    plugins: str = ""
    """Folder of Slurm's plugins; empty where the programs know it themselves."""

    @property
    def path(self) -> str:
        """What PATH needs for these programs."""
        return ":".join(dict.fromkeys(str(Path(program).parent) for program in self.programs.values()))


def which(program: str, path: str | None = None) -> str | None:
    """Path of a program, also where PATH lacks the folders of daemons."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '') if path is None else path}:{SBIN}")


def needed(*, head: bool) -> list[str]:
    """Programs of a head, or of a node."""
    not_here = {"slurmd", "slurmstepd"} if head else {"slurmctld"}
    return [name for name in PACKAGES if name not in not_here]


def command(packages: Iterable[str]) -> str:
    """How a person installs them."""
    return f"apt-get install --no-install-recommends {' '.join(packages)}"


def find(*, head: bool = False, unpacked: Path | None = None) -> Tree:
    """The programs of a node, or of a head: in PATH, in the folders of daemons, or in what was unpacked here.

    Raises:
        Unavailable: one is missing, or too old; says which package has it, and how to get it.
    """
    wanted = needed(head=head)
    if unpacked is not None and (unpacked / "bin").is_dir():
        own = str(unpacked / "bin")
        return _tree({name: shutil.which(name, path=own) for name in wanted}, _plugins(unpacked))
    return _tree({name: which(name) for name in wanted}, "")


def _tree(found: Mapping[str, str | None], plugins: str) -> Tree:
    if lacking := list(dict.fromkeys(PACKAGES[name] for name, path in found.items() if not path)):
        raise Unavailable(
            f"this machine lacks Debian's packages {', '.join(lacking)}",
            hint=f"{command(lacking)}; without root: --unpack",
        )
    programs = {name: path for name, path in found.items() if path}
    version = _version(programs["slurmctld" if "slurmctld" in found else "slurmd"])
    if version < OLDEST:
        raise Unavailable(f"Slurm {'.'.join(map(str, version))} is too old: nodes join by themselves from 22.05 on")
    return Tree(programs, version, plugins)


def _version(program: str) -> tuple[int, ...]:
    try:
        done = subprocess.run([program, "-V"], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{program} cannot be run: {error}") from error
    numbers = re.findall(r"\d+", done.stdout)
    if done.returncode != 0 or len(numbers) < 2:
        raise Unavailable(f"{program} -V does not say its version: {(done.stderr or done.stdout).strip()[-300:]}")
    return tuple(map(int, numbers[:3]))


def unpack(folder: Path, *, head: bool = False) -> Tree:
    """Fetch Debian's packages into a folder and unpack them there, without root; what lies there already is used.

    Raises:
        Unavailable: no apt-get or dpkg here, or no such package; says what to install instead.
    """
    packages = list(dict.fromkeys([*(PACKAGES[name] for name in needed(head=head)), *_LIBRARIES]))
    done = folder / f"unpacked-{'head' if head else 'node'}"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _run(["apt-get", "download", *packages], folder, packages)
        for package in sorted(folder.glob("*.deb")):
            _run(["dpkg", "-x", str(package), str(folder / "root")], folder, packages)
            package.unlink()
        _link(folder, head=head)
        done.touch()
    return find(head=head, unpacked=folder)


def _run(words: Sequence[str], folder: Path, packages: Sequence[str]) -> None:
    hint = f"as root: {command(packages)}"
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    except FileNotFoundError as error:
        raise Unavailable(f"--unpack needs {words[0]}, which is not on this machine", hint=hint) from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{words[0]} did not end within ten minutes", hint=hint) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Unavailable(f"{words[0]} {words[1]} failed: {''.join(said)}", hint=hint)


def _link(folder: Path, *, head: bool) -> None:
    """A program each in `bin`, which finds its libraries; slurmd looks at its own name, so it is called by that."""
    root = folder / "root"
    libraries = ":".join(dict.fromkeys([_plugins(folder), *(str(at.parent) for at in root.rglob("lib*.so.*"))]))
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "real").mkdir(exist_ok=True)
    for name in needed(head=head):
        there = [
            at for at in root.rglob(f"{name}*") if at.name in {name, f"{name}-wlm"} and at.parent.name.endswith("bin")
        ]
        if not there:
            raise Unavailable(
                f"Debian's package {PACKAGES[name]} has no program {name}", hint=f"as root: {command([PACKAGES[name]])}"
            )
        real = folder / "real" / name
        real.unlink(missing_ok=True)
        real.symlink_to(there[0])
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={shlex.quote(libraries)} exec {shlex.quote(str(real))} "$@"\n')
        path.chmod(0o755)


def _plugins(folder: Path) -> str:
    """Where the plugins of an unpacked Slurm are."""
    return next((str(at.parent) for at in (folder / "root").rglob("auth_munge.so")), "")
