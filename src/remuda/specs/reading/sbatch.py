"""What `#SBATCH` lines and sbatch's arguments mean for a supervised run. Pure.

Options that a run has fields for become values of those fields, the others are handed on, and those that would break
the supervision (`--wrap`, …) are refused or left out with a note.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError, located
from remuda.specs.reading.resolve import Layer, Origin, ValueOrigin
from remuda.specs.reading.sbatch_options import BUILT_IN, options_of
from remuda.specs.strict import Plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.specs.reading.sbatch_options import Takes

REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "array": ("an array is made by the run itself", "give it as `array`: remuda run --array 1-50%4"),
    "wrap": ("--wrap takes the place of the script", "leave it out"),
    "hetjob": ("heterogeneous jobs cannot be supervised", "leave out what follows `hetjob`"),
    "packjob": ("heterogeneous jobs cannot be supervised", "leave out what follows `packjob`"),
    "cluster": ("runs are submitted to the cluster of this machine", "leave --cluster out"),
    "clusters": ("runs are submitted to the cluster of this machine", "leave --clusters out"),
    "test-only": ("--test-only would start nothing", "remuda run --dry-run shows what would be sent"),
    "uid": ("a job of another user cannot be watched", "leave --uid out"),
    "help": ("--help would start nothing", "see `sbatch --help`"),
    "usage": ("--usage would start nothing", "see `sbatch --usage`"),
    "version": ("--version would start nothing", "see `sbatch --version`"),
    "external": ("a job without a script of its own cannot be watched", "leave --external out"),
}  # fmt: skip
OVERRULED: Final[Mapping[str, str]] = {
    "hold": "the run is released as soon as it is recorded",
    "wait": "remuda run --wait waits for the end",
    "parsable": "the answer is read by remuda",
    "quiet": "the answer is read by remuda",
    "verbose": "the answer is read by remuda",
    "export": "nothing but what `--env` names and search paths reaches the script",
    "export-file": "nothing but what `--env` names and search paths reaches the script",
    "get-user-env": "the script gets the environment of the command line that started it",
    "open-mode": "every attempt has an output of its own",
    "input": "the script's input is empty",
    "ignore-pbs": "PBS lines are never read",
    "immediate": "the run waits for its turn",
}  # fmt: skip
_GRES = re.compile(r"(?:gres/)?gpu(?::([A-Za-z][\w.-]*))?(?:[:=](\d+))?(?:\(.*\))?")


@dataclass(frozen=True)
class SbatchLine:
    """One `#SBATCH` line: its number, and what stands after the word."""

    number: int
    text: str


@dataclass(frozen=True)
class Options:
    """What `#SBATCH` lines say."""

    layer: Layer
    options: tuple[str, ...]
    """Those that are handed on, each one word: `--ntasks=4`."""
    notes: tuple[str, ...]


def slurm_seconds(text: str) -> float:
    """A time limit as Slurm writes it: `90` minutes, `1:30` minutes and seconds, `1:00:00`, `2-12`, `2-12:30:00`.

    Raises:
        InputError: it is none of these.
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "0"):
        return 0.0
    match = re.fullmatch(r"(?:(\d+)-(\d+)(?::(\d+))?(?::(\d+))?|(?:(\d+):)??(\d+)(?::(\d+))?)", text)
    if match is None:
        raise InputError(f"{text!r} is not a time as Slurm writes it", hint="write 90 (minutes), 1:30:00 or 2-12")
    days, hours, minutes, seconds, alone_hours, alone_minutes, alone_seconds = (
        int(part or 0) for part in match.groups()
    )
    if match[1] is not None:
        return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)
    return float(alone_hours * 3600 + alone_minutes * 60 + alone_seconds)


def slurm_memory(text: str) -> str:
    """Memory as Slurm writes it (`4000` is megabytes), as a size."""
    return f"{text}M" if text.isdigit() else text


def refuse(name: str, where: str) -> None:
    """Refuse an option with which a run could not be supervised.

    Raises:
        InputError: it is one.
    """
    if name in REFUSED:
        sentence, hint = REFUSED[name]
        raise InputError(sentence, hint=hint, where=where)


def take_options(lines: Sequence[SbatchLine], name: str, table: Mapping[str, Takes] = BUILT_IN) -> Options:
    """Sort the options of a script's `#SBATCH` lines.

    Args:
        lines: in order; of two that say the same the later counts.
        name: of the script, for messages.
        table: options of the cluster's own sbatch.

    Raises:
        InputError: an option that cannot be read or kept; says where.
    """
    data: dict[str, Any] = {}
    values: dict[tuple[str | int, ...], Origin] = {}
    passed: dict[str, str] = {}
    notes: list[str] = []
    said = [(line, option, value) for line in lines for option, value in _words(line, name, table)]
    # `--gpus` counts those of all nodes, so it is read when their number is known.
    for line, option, value in sorted(said, key=lambda item: item[1] == "gpus"):
        where = f"{name}:{line.number}"
        if option not in _PLAIN:
            refuse(option, where)
        if option in OVERRULED:
            notes.append(f"{where}: --{option} is not kept: {OVERRULED[option]}")
            continue
        fields, rest = _fields_and_rest(option, value, data, where)
        data |= fields
        values |= {(key,): Origin(ValueOrigin.SCRIPT, where) for key in fields}
        if not fields or rest:
            passed[option] = f"--{option}" if value is None else f"--{option}={rest or value}"
    return Options(Layer(data, values, dict(values)), tuple(passed.values()), tuple(notes))


def _words(line: SbatchLine, name: str, table: Mapping[str, Takes]) -> list[tuple[str, str | None]]:
    where = f"{name}:{line.number}"
    try:
        return options_of(shlex.split(line.text, comments=True), where, table)
    except ValueError as error:
        raise InputError(f"cannot be split into words: {str(error).lower()}", where=where) from error


_PLAIN: Final[Mapping[str, str]] = {
    "account": "account", "qos": "qos", "constraint": "constraint", "reservation": "reservation",
    "exclude": "exclude_nodes", "nodelist": "node_list", "output": "output", "error": "error", "job-name": "name",
    "chdir": "workdir", "mail-user": "mail_user", "partition": "partitions", "cpus-per-task": "cpus_per_task",
    "signal": "signal", "array": "array",
}  # fmt: skip
"""Options that mean a field as they are."""
_READ: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "time": ("time_limit", slurm_seconds),
    "mem": ("mem", slurm_memory),
}


def _fields_and_rest(
    option: str, value: str | None, data: Mapping[str, Any], where: str
) -> tuple[dict[str, object], str]:
    """Fields of a run that an option sets, and what of its value they do not say."""
    if option != "gres" or value is None:
        return _fields(option, value, data, where), ""
    items = [item for item in value.split(",") if item]
    gpus = [item for item in items if _GRES.fullmatch(item)]
    if len(gpus) != 1:
        return {}, ""
    rest = ",".join(item for item in items if item not in gpus)
    return _fields(option, gpus[0], data, where), rest


def _fields(option: str, value: str | None, data: Mapping[str, Any], where: str) -> dict[str, object]:
    """Fields of a run that an option sets; empty when sbatch shall see it."""
    if option in ("requeue", "no-requeue"):
        return {"requeue": option == "requeue"}
    if value is None:
        return {}
    if option == "job-name":
        return {"name": _name(value)}
    if option in _PLAIN:
        return {_PLAIN[option]: Plain(value)}
    if option in _READ and value != "0":
        key, read = _READ[option]
        with located(where):
            return {key: read(value)}
    if option == "nodes" and re.fullmatch(r"(\d+)(-\1)?", value):
        return {"nodes": Plain(value.partition("-")[0])}
    if option in ("gres", "gpus-per-node", "gpus"):
        return _gpus(option, value, data, where)
    return {}


def _name(text: str) -> str:
    from remuda.base.ids import slug

    return slug(text)


def _gpus(option: str, value: str, data: Mapping[str, Any], where: str) -> dict[str, object]:
    """GPUs of each node; empty for what is no plain number of GPUs of one kind."""
    match = _GRES.fullmatch(value if option == "gres" else f"gpu:{value}")
    if match is None:
        return {}
    count = int(match[2] or 1)
    if option == "gpus":
        nodes = int(data.get("nodes", 1))
        if count % nodes:
            raise InputError(f"{count} GPUs cannot be spread evenly over {nodes} nodes", where=where,
                             hint="write --gpus-per-node")  # fmt: skip
        count //= nodes
    return {"gpus": count, **({"gpu_type": match[1]} if match[1] else {})}
