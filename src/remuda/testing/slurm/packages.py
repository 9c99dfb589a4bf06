"""The Debian packages that a bed needs, and which of them this machine lacks."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import RemudaError, Unavailable
from remuda.fleet.tree import PACKAGES, command, which

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE = {program: PACKAGES[program] for program in ("munged", "slurmctld", "slurmd", "sbatch")}
ACCOUNTING = {
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server-core",
    "mariadb": "mariadb-client-core",
}
PLUGINS = {"accounting": "slurm-wlm-mysql-plugin", "base": "slurm-wlm-basic-plugins"}
_FILES = {"accounting": "accounting_storage_mysql.so", "base": "auth_munge.so"}
_POLICY = Path("/usr/sbin/policy-rc.d")


def missing(*, accounting: bool) -> list[str]:
    """Packages that must be installed first, in a fixed order."""
    wanted = {**BASE, **(ACCOUNTING if accounting else {})}
    lacking = [package for program, package in wanted.items() if not which(program)]
    lacking += [PLUGINS[part] for part in (["base", "accounting"] if accounting else ["base"]) if not _plugin(part)]
    return lacking


def _plugin(part: str) -> bool:
    return any(Path("/usr/lib").glob(f"*/slurm*/{_FILES[part]}"))


def require(*, accounting: bool) -> None:
    """Check that everything is here.

    Raises:
        Unavailable: it says exactly what is missing and how to install it.
    """
    if lacking := missing(accounting=accounting):
        raise Unavailable(
            f"a Slurm test bed needs packages that are not installed: {', '.join(lacking)}", hint=command(lacking)
        )


def install(packages: list[str]) -> None:
    """Install them, as root, without the daemons that they would start.

    Raises:
        Unavailable: not root.
        RemudaError: apt-get failed.
    """
    if os.geteuid() != 0:
        raise Unavailable("only root can install packages", hint=f"sudo {command(packages)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600"]
    with _no_daemons():
        for words in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
            done = subprocess.run([*apt, *words], env=env, capture_output=True, text=True, check=False)
            if done.returncode != 0 and words[0] == "install":
                raise RemudaError(f"apt-get install failed: {done.stderr.strip()[-500:]}", hint=command(packages))


@contextmanager
def _no_daemons() -> Iterator[None]:
    """Tell Debian's packages to start nothing while they are installed."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()
