"""What a command may see where it was typed, so that planning needs not look. Pure; `look.caller` collects it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Context:
    """The surroundings of a command. They can be stored and sent: they hold no secret.

    Attributes:
        cwd: absolute working directory.
        state: state directory.
        python: remuda's own interpreter.
        nodes_python: the interpreter that nodes probably see, too.
        env: variables that tasks see of the command's environment.
        gpus: ids of the GPUs of this machine that it may use.
        cpus: of this machine.
        has_sbatch: a Slurm cluster with machines can be asked from here.
        is_alone: this machine is the head of a fleet that no other has joined yet.
    """

    cwd: str = ""
    state: str = ""
    python: str = "python3"
    nodes_python: str = "python3"
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    cpus: int = 1
    has_sbatch: bool = False
    is_alone: bool = False

    def run_dir(self, name: str) -> str:
        """Absolute directory for everything that a workload writes."""
        return f"{self.state}/workloads/{name}"

    @property
    def place(self) -> dict[str, object]:
        """What a workload on this machine is told of it."""
        gpus: dict[str, object] = {"gpus": list(self.gpus)} if self.gpus else {}
        return {**gpus, "env": dict(self.env)}

    @property
    def place_elsewhere(self) -> dict[str, object]:
        """What a workload of a scheduler is told of it."""
        return {"python": self.nodes_python, "env": dict(self.env)}
