"""Where Slurm's programs are, and what is said where they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import Unavailable
from remuda.fleet import tree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where alone programs are looked for; none is there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tree, "SBIN", str(tmp_path))
    return tmp_path


def put(folder: Path, version: str, *names: str) -> None:
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\necho slurm-wlm {version}\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize("head", [True, False])
def test_all_that_a_side_needs_is_found_with_its_version(folder: Path, head: bool) -> None:
    put(folder, "22.05.8", *tree.needed(head=head))
    found = tree.find(head=head)
    assert found.version == (22, 5, 8)
    assert found.programs["munged"] == f"{folder}/munged"
    assert found.path == str(folder)
    assert ("slurmd" in found.programs) != head


@pytest.mark.parametrize(
    ("there", "head", "lacks"),
    [
        ((), False, "munge, slurmd, slurm-client"),
        ((), True, "munge, slurmctld, slurm-client"),
        (("munged", "slurmd", "slurmstepd", "scontrol"), False, "slurm-client"),
    ],
)
def test_what_is_missing_is_named_by_its_package(folder: Path, there: tuple[str, ...], head: bool, lacks: str) -> None:
    put(folder, "22.05.8", *there)
    with pytest.raises(Unavailable) as told:
        tree.find(head=head)
    assert str(told.value) == f"this machine lacks Debian's packages {lacks}"
    wanted = f"apt-get install --no-install-recommends {lacks.replace(',', '')}; without root: --unpack"
    assert told.value.hint == wanted


def test_a_slurm_whose_nodes_cannot_join_is_refused(folder: Path) -> None:
    put(folder, "21.08.5", *tree.needed(head=False))
    with pytest.raises(Unavailable, match=r"^Slurm 21\.8\.5 is too old: nodes join by themselves from 22\.05 on$"):
        tree.find()


def test_what_was_unpacked_comes_before_what_is_installed(folder: Path) -> None:
    put(folder, "22.05.8", *tree.needed(head=False))
    own = folder / "own" / "bin"
    own.mkdir(parents=True)
    put(own, "23.11.4", *tree.needed(head=False))
    plugins = folder / "own" / "root" / "usr" / "lib" / "slurm-wlm"
    plugins.mkdir(parents=True)
    (plugins / "auth_munge.so").touch()
    found = tree.find(unpacked=folder / "own")
    assert (found.version, found.path, found.plugins) == ((23, 11, 4), str(own), str(plugins))


@pytest.mark.parametrize(
    ("apt", "said"),
    [
        ("", "--unpack needs apt-get, which is not on this machine"),
        ("echo E: Unable to locate package munge >&2; exit 100",
         "apt-get download failed: E: Unable to locate package munge"),
    ],
)  # fmt: skip
def test_where_nothing_can_be_unpacked_it_is_said_what_to_install(folder: Path, apt: str, said: str) -> None:
    if apt:
        (folder / "apt-get").write_text(f"#!/bin/sh\n{apt}\n")
        (folder / "apt-get").chmod(0o755)
    with pytest.raises(Unavailable) as told:
        tree.unpack(folder / "own")
    assert str(told.value) == said
    assert told.value.hint.startswith("as root: apt-get install --no-install-recommends munge slurmd slurm-client")
    assert not (folder / "own" / "unpacked-node").exists()
