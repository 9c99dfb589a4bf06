"""What `#SBATCH` lines and sbatch's arguments mean for a supervised run. Pure.

Options that a run has fields for become values of those fields, the others are handed on, and those that would break
the supervision (arrays, `--wrap`, …) are refused or left out with a note.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.specs.resolve import Layer, Origin, Source
from remuda.specs.strict import Plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SHORT: Final[Mapping[str, str]] = {
    "A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "D": "chdir",
    "d": "dependency",
    "e": "error", "F": "nodefile", "G": "gpus", "i": "input", "J": "job-name", "L": "licenses", "M": "clusters",
    "m": "distribution", "N": "nodes", "n": "ntasks", "o": "output", "p": "partition", "q": "qos", "S": "core-spec",
    "t": "time", "w": "nodelist", "x": "exclude",
}  # fmt: skip
"""One-letter options that take a value."""
SHORT_SWITCHES: Final[Mapping[str, str]] = {
    "H": "hold", "I": "immediate", "k": "no-kill", "O": "overcommit", "s": "oversubscribe", "v": "verbose", "W": "wait",
    "Q": "quiet",
}  # fmt: skip
SWITCHES: Final = frozenset({
    *SHORT_SWITCHES.values(), "contiguous", "ignore-pbs", "kill-on-invalid-dep", "no-requeue", "parsable", "reboot",
    "requeue", "spread-job", "test-only", "use-min-nodes", "exclusive", "nice", "propagate", "get-user-env",
    "no-bell", "hetjob", "packjob",
})  # fmt: skip
"""Options that stand alone, or whose value needs `=`."""
REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "array": ("job arrays cannot be supervised", "start the script once for each: remuda run a.sh b.sh"),
    "wrap": ("--wrap takes the place of the script", "leave it out"),
    "hetjob": ("heterogeneous jobs cannot be supervised", "leave out what follows `hetjob`"),
    "packjob": ("heterogeneous jobs cannot be supervised", "leave out what follows `packjob`"),
    "clusters": ("runs are submitted to the cluster of this machine", "leave --clusters out"),
    "test-only": ("--test-only would start nothing", "remuda run --dry-run shows what would be sent"),
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


def options_of(words: Sequence[str], where: str = "") -> list[tuple[str, str | None]]:
    """Long names and values of sbatch's words; None for an option without a value.

    Raises:
        InputError: a word that is no option, or an option without its value.
    """
    rest, found = list(words), []
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            if not equals and name not in SWITCHES:
                if not rest:
                    raise InputError(f"'--{name}' needs a value", where=where)
                value, equals = rest.pop(0), "="
            found.append((name, value if equals else None))
        elif len(word) > 1 and word[0] == "-" and word[1] in SHORT_SWITCHES:
            found.append((SHORT_SWITCHES[word[1]], word[2:] or None))
        elif len(word) > 1 and word[0] == "-" and word[1] in SHORT:
            if not word[2:] and not rest:
                raise InputError(f"'{word}' needs a value", where=where)
            found.append((SHORT[word[1]], word[2:].removeprefix("=") or rest.pop(0)))
        elif word in ("hetjob", "packjob"):
            found.append((word, None))
        else:
            hint = "options begin with -" if not word.startswith("-") else ""
            raise InputError(f"{word!r} is not an option of sbatch", hint=hint, where=where)
    return found


def refuse(name: str, where: str) -> None:
    """Refuse an option with which a run could not be supervised.

    Raises:
        InputError: it is one.
    """
    if name in REFUSED:
        sentence, hint = REFUSED[name]
        raise InputError(sentence, hint=hint, where=where)


def take_options(lines: Sequence[SbatchLine], name: str) -> Options:
    """Sort the options of a script's `#SBATCH` lines.

    Args:
        lines: in order; of two that say the same the later counts.
        name: of the script, for messages.

    Raises:
        InputError: an option that cannot be read or kept; says where.
    """
    data: dict[str, Any] = {}
    values: dict[tuple[str | int, ...], Origin] = {}
    passed: dict[str, str] = {}
    notes: list[str] = []
    said = [(line, option, value) for line in lines for option, value in _words(line, name)]
    # `--gpus` counts those of all nodes, so it is read when their number is known.
    for line, option, value in sorted(said, key=lambda item: item[1] == "gpus"):
        where = f"{name}:{line.number}"
        refuse(option, where)
        if option in OVERRULED:
            notes.append(f"{where}: --{option} is not kept: {OVERRULED[option]}")
            continue
        fields = _fields(option, value, data, where)
        data |= fields
        values |= {(key,): Origin(Source.SCRIPT, f"#SBATCH line {line.number}") for key in fields}
        if not fields:
            passed[option] = f"--{option}" if value is None else f"--{option}={value}"
    return Options(Layer(data, values, dict(values)), tuple(passed.values()), tuple(notes))


def _words(line: SbatchLine, name: str) -> list[tuple[str, str | None]]:
    where = f"{name}:{line.number}"
    try:
        return options_of(shlex.split(line.text, comments=True), where)
    except ValueError as error:
        raise InputError(f"cannot be split into words: {str(error).lower()}", where=where) from error


_PLAIN: Final[Mapping[str, str]] = {
    "account": "account", "qos": "qos", "constraint": "constraint", "reservation": "reservation",
    "exclude": "exclude_nodes", "nodelist": "node_list", "output": "output", "error": "error", "job-name": "name",
    "chdir": "workdir", "mail-user": "mail_user", "partition": "partitions", "cpus-per-task": "cpus_per_task",
    "signal": "signal",
}  # fmt: skip
"""Options that mean a field as they are."""
_READ: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "time": ("time_limit", slurm_seconds),
    "mem": ("mem", slurm_memory),
}


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
        try:
            return {key: read(value)}
        except InputError as error:
            raise InputError(error.message, hint=error.hint, where=where) from error
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
