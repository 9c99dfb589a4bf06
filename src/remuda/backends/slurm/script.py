"""The text of a job script: what runs on the node before the node program takes over. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.plan.placing.place import SlurmPlace

#: In words of a script that is shared by an array; no argument of any program can contain it.
INDEX = "\0"

#: --export=NONE would reach every srun of the user's script through this variable, and leave its tasks bare.
SLURMS_ENVIRONMENT = "export SLURM_EXPORT_ENV=ALL"

_MODULE_INITS = (
    "/etc/profile.d/modules.sh", "/etc/profile.d/lmod.sh", "/etc/profile.d/z00_lmod.sh",
    "/usr/share/lmod/lmod/init/bash", "/usr/share/Modules/init/bash", "/usr/share/modules/init/bash",
)  # fmt: skip


def script_text(
    place: SlurmPlace,
    command: Sequence[str],
    *,
    token: str,
    array: bool,
    env_file: str = "",
    restarts_file: str = "",
) -> str:
    """A batch script that ends in `command`.

    Args:
        place: the workload's settings.
        command: the words to execute; in an array, `INDEX` in them stands for the task's index.
        token: of the allocation, likewise; empty: the node program alone says it.
        array: whether the script is shared by the tasks of an array.
        env_file: a file of exports to read before modules are loaded; empty for none.
        restarts_file: where to note how often Slurm has put the job back into its queue; empty: nowhere.
    """
    preamble = [line for text in place.preamble for line in text.splitlines()]
    directives = [line for line in preamble if line.startswith("#SBATCH")]
    commands = [line for line in preamble if not line.startswith("#SBATCH")]
    # What a site or a user wrote for the head of a job script was written for bash.
    shell = "/bin/bash" if commands or place.modules else "/bin/sh"
    lines = [f"#!{shell}", *(f"#SBATCH {option}" for option in place.directives), *directives]
    if token:
        lines.append(f"export REMUDA_TOKEN={_quote(token, array=array)}")
    lines.append(SLURMS_ENVIRONMENT)
    if place.workdir:
        lines.append(f"export SLURM_SUBMIT_DIR={shlex.quote(place.workdir)}")
    if restarts_file:
        lines.append(f'echo "${{SLURM_RESTART_COUNT:-0}}" > {_quote(restarts_file, array=array)}')
    if env_file:
        lines.append(f". {_quote(env_file, array=array)}")
    lines += _module_lines(place.modules)
    lines += commands
    lines.append("exec " + " ".join(_quote(word, array=array) for word in command))
    return "\n".join(lines) + "\n"


def env_text(env: dict[str, str]) -> str:
    """Exports that any shell reads back as exactly `env`."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(env.items()))


def _module_lines(modules: Sequence[str]) -> list[str]:
    if not modules:
        return []
    inits = " ".join(_MODULE_INITS)
    return [
        "if ! command -v module >/dev/null 2>&1; then",
        f'  for init in "${{MODULESHOME:-}}/init/bash" "${{LMOD_PKG:-}}/init/bash" {inits}; do',
        '    if [ -r "$init" ]; then . "$init"; break; fi',
        "  done",
        "fi",
        *(
            f"module load {shlex.quote(name)} || "
            f"{{ echo {shlex.quote(f'remuda: module load {name} failed')} >&2; exit 1; }}"
            for name in modules
        ),
    ]


def _quote(text: str, *, array: bool) -> str:
    """A word that the shell reads back verbatim, but for `INDEX`, which in an array is the task's index."""
    if not array:
        return shlex.quote(text)
    return '"$SLURM_ARRAY_TASK_ID"'.join(shlex.quote(part) if part else "" for part in text.split(INDEX))
