"""How sbatch reads its words: which options there are, which take a value, and what an abbreviation means. Pure.

The table holds the options of Slurm 20.11 to 25.05, as `man sbatch` has them. What a newer one has besides is learned
from its own `sbatch --help` (`learn`), which does not list all of the others.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Takes(Enum):
    """Whether an option has a value."""

    NOTHING = "nothing"
    VALUE = "a value, after `=` or as the next word"
    MAYBE = "a value, after `=` only"


Table = dict[str, Takes]
"""Long option -> whether it has a value."""

_NOTHING = (
    "contiguous", "external", "help", "hold", "ignore-pbs", "no-bell", "no-requeue", "oom-kill-step", "overcommit",
    "oversubscribe", "parsable", "quiet", "reboot", "requeue", "share", "spread-job", "spread-segments", "stepmgr",
    "test-only", "usage", "use-min-nodes", "verbose", "version", "wait",
)  # fmt: skip
_MAYBE = (
    "exclusive", "get-user-env", "immediate", "nice", "no-kill", "no-shell", "propagate", "resv-ports",
)  # fmt: skip
_VALUE = (
    "account", "acctg-freq", "array", "batch", "bb", "bbf", "begin", "chdir", "cluster", "cluster-constraint",
    "clusters", "comment", "consolidate-segments", "constraint", "container", "container-id", "core-spec",
    "cores-per-socket", "cpu-freq", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot", "dependency",
    "distribution", "error", "exclude", "export", "export-file", "extra", "extra-node-info", "gid", "gpu-bind",
    "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint", "input",
    "job-name", "kill-on-invalid-dep", "licenses", "mail-type", "mail-user", "mcs-label", "mem", "mem-bind",
    "mem-per-cpu", "mem-per-gpu", "mincpus", "network", "nodefile", "nodelist", "nodes", "ntasks", "ntasks-per-core",
    "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "open-mode", "output", "partition", "power", "prefer",
    "priority", "profile", "qos", "reservation", "segment", "signal", "sockets-per-node", "switches",
    "tasks-per-node", "thread-spec", "threads-per-core", "time", "time-min", "tmp", "tres-bind", "tres-per-job",
    "tres-per-task", "uid", "wait-all-nodes", "wckey", "workdir", "wrap",
)  # fmt: skip
BUILT_IN: Final[Mapping[str, Takes]] = {
    **dict.fromkeys(_NOTHING, Takes.NOTHING),
    **dict.fromkeys(_MAYBE, Takes.MAYBE),
    **dict.fromkeys(_VALUE, Takes.VALUE),
}
SHORT: Final[Mapping[str, str]] = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "h": "help",
    "I": "immediate", "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters",
    "m": "distribution", "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output", "p": "partition", "Q": "quiet",
    "q": "qos", "S": "core-spec", "s": "oversubscribe", "t": "time", "V": "version", "v": "verbose", "W": "wait",
    "w": "nodelist", "x": "exclude",
}  # fmt: skip
"""One-letter options."""
_LINE = re.compile(r" {2}(?:-\w,? +| {4})--(?P<name>[a-z][a-z0-9-]+)(?P<value>\[=[^\]]*\]|=\S+)?(?:\s.*)?")


def learn(text: str) -> Table:
    """The table of the Slurm whose `sbatch --help` said `text`: ours, and what it has besides."""
    table = dict(BUILT_IN)
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is not None and found["name"] not in table:
            value = found["value"] or ""
            table[found["name"]] = _takes(value)
    return table


def _takes(value: str) -> Takes:
    if not value:
        return Takes.NOTHING
    return Takes.MAYBE if value.startswith("[") else Takes.VALUE


def options_of(
    words: Sequence[str], where: str = "", table: Mapping[str, Takes] = BUILT_IN
) -> list[tuple[str, str | None]]:
    """Long names and values of sbatch's words, read as sbatch reads them; None for an option without a value.

    An option that is not in the table has the value that follows it, unless that looks like an option.

    Raises:
        InputError: a word that is no option, an option without its value, or an abbreviation of several.
    """
    rest = list(words)
    found: list[tuple[str, str | None]] = []
    while rest:
        word = rest.pop(0)
        if word in ("hetjob", "packjob"):
            found.append((word, None))
        elif word.startswith("--") and len(word) > 2:
            found.append(_long(word[2:], rest, where, table))
        elif word.startswith("-") and len(word) > 1 and word[1] != "-":
            found += _short(word, rest, where)
        else:
            raise InputError(f"{word!r} is not an option of sbatch", hint="options begin with -", where=where)
    return found


def _long(text: str, rest: list[str], where: str, table: Mapping[str, Takes]) -> tuple[str, str | None]:
    said, equals, value = text.partition("=")
    name = full_name(said, table, where)
    if equals:
        return name, value
    takes = table.get(name)
    if takes is None:
        return name, rest.pop(0) if rest and not rest[0].startswith("-") else None
    if takes is not Takes.VALUE:
        return name, None
    if not rest:
        raise InputError(f"'--{name}' needs a value", where=where)
    return name, rest.pop(0)


def full_name(said: str, table: Mapping[str, Takes] = BUILT_IN, where: str = "") -> str:
    """The option that a name or the beginning of one means, as getopt finds it; a name that is none stays as it is.

    Raises:
        InputError: it is the beginning of several.
    """
    if said in table:
        return said
    meant = sorted(name for name in table if name.startswith(said))
    if len(meant) > 1:
        shown = ", ".join(f"--{name}" for name in meant)
        raise InputError(f"'--{said}' could be any of {shown}", hint="write it out", where=where)
    return meant[0] if meant else said


def _short(word: str, rest: list[str], where: str) -> Iterator[tuple[str, str | None]]:
    """`-N2`, `-N 2`, `-Hp cpu`: letters up to the first that takes a value, which is what follows."""
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        name = SHORT.get(letter)
        if name is None:
            raise InputError(f"{word!r} is not an option of sbatch: it has no -{letter}", where=where)
        takes = BUILT_IN[name]
        if takes is Takes.NOTHING:
            yield name, None
        elif letters or takes is Takes.MAYBE:
            yield name, letters.removeprefix("=") or None
            return
        elif not rest:
            raise InputError(f"'{word}' needs a value", where=where)
        else:
            yield name, rest.pop(0)
