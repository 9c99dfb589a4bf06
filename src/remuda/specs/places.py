"""What is so of each backend, whatever runs there: asked by everything that would otherwise compare its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class BackendTraits:
    """One backend."""

    is_here: bool = False
    """Tasks are processes of the host's machine: its GPUs, ports, programs and files are theirs."""
    unit: str = "job"
    """What its own tools call an allocation."""
    in_images: bool = False
    """Each task has an image and files of its own: of its user's machine only what the plan carries gets there."""
    variable: str = "SLURM_CONF"
    """Of the environment: says which cluster is asked."""
    kill: str = ""
    """The command that ends one by hand; its id follows."""
    planned_as: str = ""
    """The backend that its documents are planned for, where that is another."""
    fronts_here: bool = False
    """Tasks are elsewhere, and what stands before servers, and drivers, are processes of the host's machine."""


BACKENDS: Final = {
    "local": BackendTraits(is_here=True, unit="pid", kill="kill"),
    "slurm": BackendTraits(kill="scancel"),
    "fleet": BackendTraits(kill="scancel", planned_as="slurm", fronts_here=True),
    "kubernetes": BackendTraits(
        in_images=True, unit="Job", variable="KUBECONFIG", kill="kubectl delete job", fronts_here=True
    ),
}


def traits(backend: str) -> BackendTraits:
    """The traits of a backend, by the name that documents and plans use; one that is not known is a scheduler's."""
    return BACKENDS.get(backend, BackendTraits())


FLEET: Final = "fleet"
"""Partition of all nodes of a fleet."""
NO_MACHINE: Final = ("no machine has joined yet", "`remuda host token` prints the line for them")
"""Of a fleet without nodes: what is so, and what to do."""


def planned_as(backend: str) -> str:
    """The backend that has what is asked of this one."""
    return traits(backend).planned_as or backend


def in_images(backend: str) -> bool:
    """Whether tasks of a backend run in images, on files of their own."""
    return traits(backend).in_images


def fronts_here(backend: str) -> bool:
    """Whether routers and drivers of what a document asks there run on the host's machine, and servers do not."""
    return traits(backend).fronts_here


def is_here(backend: str) -> bool:
    """Whether tasks of a backend run on the host's machine."""
    return traits(backend).is_here
