"""`try slurm` and `try kubernetes`: a practice cluster on this machine, to see what remuda does when nodes fail."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from remuda.base.words import DRILLS, TRY_LETTERS
from remuda.cli.lazy import NearGroup


@click.group("try", cls=NearGroup)
def try_() -> None:
    """Start a practice cluster in a directory, to try things on a laptop and rehearse failures."""


@try_.command()
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Directory (default: in the state directory).")
@click.option("--no-accounting", is_flag=True, help="Leave out slurmdbd and its database: lighter, but without sacct.")
@click.option("--shared", is_flag=True, help="Let nodes share this machine's network even if isolation is possible.")
@click.option("--install", is_flag=True, help="Install missing Debian packages (as root).")
@click.option("--drill", nargs=2, type=(click.Choice(DRILLS["slurm"]), str), metavar="DRILL NAME",
              help=f"Break or repair a node or a service: {', '.join(DRILLS['slurm'])}.")  # fmt: skip
@click.option("--status", "show", is_flag=True, help="Show the state of the cluster.")
@click.option("--down", is_flag=True, help="Stop the cluster and remove its directory.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def slurm(
    folder: Path | None,
    no_accounting: bool,
    shared: bool,
    install: bool,
    drill: tuple[str, str] | None,
    show: bool,
    down: bool,
    as_json: bool,
) -> int:
    """Start a real Slurm of six nodes with fake GPUs in one directory, break it, remove it.

    Needs Debian's Slurm packages, and lists missing ones. Changes nothing outside of the directory. As root every node
    has a network of its own. `eval "$(remuda try slurm)"` makes this shell use the cluster. --down also deletes bans
    and recorded failures of its nodes.
    """
    chosen = {"--no-accounting": no_accounting, "--shared": shared, "--install": install}
    asked = _Asked("slurm", "slurm", folder, drill, show, down, as_json)
    return asked.run([flag for flag, given in chosen.items() if given])


@try_.command()
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Directory (default: in the state directory).")
@click.option("--drill", nargs=2, type=(click.Choice(DRILLS["kubernetes"]), str), metavar="DRILL NAME",
              help="`crash` or `start` a node, or `advance` the cluster's clock by seconds.")  # fmt: skip
@click.option("--status", "show", is_flag=True, help="Show the state of the cluster.")
@click.option("--down", is_flag=True, help="Stop the cluster and remove its directory.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def kubernetes(folder: Path | None, drill: tuple[str, str] | None, show: bool, down: bool, as_json: bool) -> int:
    """Start a stand-in of Kubernetes with four nodes and a pretended GPU each in one directory, break it, remove it.

    Answers as an API server does, to remuda and to kubectl. Images are names: containers are processes of this machine
    with namespaces of their own, and end with the cluster. `eval "$(remuda try kubernetes)"` makes this shell use it.
    """
    return _Asked("kubernetes", "kube", folder, drill, show, down, as_json).run([])


@dataclass(frozen=True)
class _Asked:
    """What was typed of one practice cluster."""

    name: str
    module: str
    folder: Path | None
    drill: tuple[str, str] | None
    show: bool
    down: bool
    as_json: bool

    def run(self, flags: list[str]) -> int:
        """Let its program do it; `flags` are for the start.

        Raises:
            click.UsageError: more than one thing was asked for.
        """
        if sum([bool(self.drill), self.show, self.down]) > 1:
            raise click.UsageError("--drill, --status and --down exclude each other")
        words = ["remuda", "try", self.name] + (["--dir", str(self.folder)] if self.folder else [])
        where = str(self.folder.absolute() if self.folder else default_folder(self.name))
        data = ["--json"] if self.as_json else []
        if self.drill:
            action = ["drill", where, *self.drill]
        elif self.down:
            action = ["down", where]
        else:
            action = ["status", where, *data] if self.show else ["up", where, *data, *flags]
        program = [sys.executable, "-P", "-m", f"remuda.testing.{self.module}", "--called-as", shlex.join(words)]
        done = subprocess.run(
            [*program, *action], stdout=subprocess.PIPE if self.down else None, text=True, check=False
        )
        if self.down and done.returncode == 0:
            _forget(done.stdout.strip(), self.name)
        return done.returncode


def _forget(nodes: str, backend: str) -> None:
    """The next cluster's nodes have the same names and never failed; a host that was not running ends again."""
    from remuda.client.http import HostClient, connect

    client = HostClient()
    was_up = client.is_up()
    if was_up or client.paths.database.exists():
        connect().call("DELETE", f"/nodes/{nodes}/evidence", query={"backend": backend})
    if not was_up and client.is_up():
        client.stop(15)


def default_folder(name: str) -> Path:
    """`try/NAME` in the state directory; under `/tmp` when that is too deep for the sockets in it."""
    from remuda.base.disk.paths import state_paths

    usual = state_paths().root / "try" / name
    if len(str(usual.resolve())) <= TRY_LETTERS:
        return usual
    tag = hashlib.sha256(os.fsencode(usual)).hexdigest()[:12]
    return Path("/tmp") / f"remuda-try-{os.getuid()}-{tag}"  # noqa: S108 - made by the program, never shared
