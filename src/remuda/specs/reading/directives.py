"""The `#REMUDA`, `#SHEPHERD` and `#SBATCH` lines in the head of a script. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.base.units import is_interval
from remuda.specs.reading.document import Problem, fail
from remuda.specs.reading.errors import nearest_key
from remuda.specs.reading.resolve import Layer, Origin, ValueOrigin
from remuda.specs.reading.sbatch import SbatchLine, take_options
from remuda.specs.reading.sbatch_options import BUILT_IN
from remuda.specs.run import ALIASES, FLAGS, SWITCHES, WITHOUT
from remuda.specs.strict import Plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.specs.reading.sbatch_options import Takes

_OURS = re.compile(r"#(?:REMUDA|SHEPHERD)(?:\s+(.*))?$|#\s+(?:REMUDA|SHEPHERD)\s+(--.*)$")
_SBATCH = re.compile(r"#SBATCH\s+(.*)$")
_LISTS: Final = frozenset({"partitions", "modules", "preamble", "node_selector", "tolerations", "image_pull_secrets"})
_WORDS: Final = frozenset({"sbatch_args"})
_MAPPINGS: Final = frozenset({"env"})


@dataclass(frozen=True)
class Directives:
    """What the head of a script says."""

    own: Layer
    """Of `#REMUDA` and `#SHEPHERD` lines."""
    sbatch: Layer
    """What `#SBATCH` lines say about fields of a run."""
    options: tuple[str, ...] = ()
    """Options of the `#SBATCH` lines that are handed on to sbatch, e.g. `--ntasks=4`."""
    notes: tuple[str, ...] = ()


@dataclass
class _Found:
    """What was read so far."""

    data: dict[str, Any] = field(default_factory=dict)
    values: dict[tuple[str | int, ...], Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def layer(self) -> Layer:
        """As a layer of settings."""
        return Layer(self.data, self.values, dict(self.values))


def read_directives(text: str, name: str, table: Mapping[str, Takes] = BUILT_IN) -> Directives:
    """Read the head of a script: its lines up to the first command.

    Args:
        text: the script.
        name: of the file, for messages.
        table: options of the cluster's own sbatch.

    Raises:
        InputError: an unknown or unusable directive; all are named, each with its line.
    """
    found, lines = _Found(), []
    head = list(_head(text))
    for number, line in head:
        ours = _OURS.match(line)
        if ours is not None:
            _take_ours(found, ours[1] or ours[2] or "", f"{name}:{number}", number)
        elif slurm := _SBATCH.match(line):
            lines.append(SbatchLine(number, slurm[1]))
    try:
        taken = take_options(lines, name, table)
    except InputError as error:
        at = int(error.where.rpartition(":")[2])
        message = error.message.removeprefix(f"{error.where}: ")
        found.problems.append(Problem(error.where, message, error.hint, (at, 0)))
        raise fail(found.problems) from error
    if found.problems:
        raise fail(found.problems)
    late = _late(text, head[-1][0] if head else 0, name)
    return Directives(found.layer(), taken.layer, taken.options, (*taken.notes, *late))


def _head(text: str) -> Iterator[tuple[int, str]]:
    """Comments before the first command, with their numbers."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            yield number, line.rstrip()
        elif line.strip():
            return


def _late(text: str, end: int, name: str) -> Iterator[str]:
    """Directives that nobody reads, because a command stands before them."""
    for number, line in enumerate(text.splitlines(), 1):
        if number > end and re.match(r"#(REMUDA|SHEPHERD|SBATCH)\s+-", line):
            word = line.split()[0]
            yield f"{name}:{number}: this {word} line comes after the first command, so it is not read"


def _take_ours(found: _Found, text: str, where: str, number: int) -> None:
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        found.problems.append(Problem(where, f"cannot be split into words: {str(error).lower()}",
                                      "close the quotation", (number, 0)))  # fmt: skip
        return
    while words:
        problem = _take_one(found, words, where)
        if problem:
            message, hint = problem
            found.problems.append(Problem(where, message, hint, (number, len(found.problems))))


def _take_one(found: _Found, words: list[str], where: str) -> tuple[str, str] | None:
    """Take one directive off `words`; what is wrong with it, and a hint."""
    word = words.pop(0)
    if not word.startswith("--"):
        _skip_values(words)
        return f"{word!r} is not a directive", "directives begin with --, e.g. --gpus 4"
    flag, equals, value = word[2:].partition("=")
    key, said = _field(flag)
    if not key:
        _skip_values(words)
        near = nearest_key(flag, FLAGS.values()).replace("_", "-")
        return f"unknown directive '--{flag}'", f"did you mean '--{near}'?" if near else "see `remuda run --help`"
    if key in SWITCHES:
        _put(found, key, Plain(value) if equals else said, where)
        return None
    if not equals:
        if key in WITHOUT and (not words or not is_interval(words[0])):
            _put(found, key, Plain(WITHOUT[key]), where)
            return None
        if not words or words[0].startswith("--"):
            return f"'--{flag}' needs a value", f"write --{flag}=VALUE"
        value = words.pop(0)
    return _put_value(found, key, value, where)


def _skip_values(words: list[str]) -> None:
    """Leave out what belongs to a wrong word, so that it is told once."""
    while words and not words[0].startswith("--"):
        words.pop(0)


def _field(flag: str) -> tuple[str, bool]:
    """Field that a flag sets, and to what a switch sets it; an empty name for an unknown one."""
    name = flag.replace("_", "-")
    if name in FLAGS or name in ALIASES:
        return FLAGS.get(name) or ALIASES[name], True
    negated = FLAGS.get(name.removeprefix("no-"), "")
    return (negated, False) if name.startswith("no-") and negated in SWITCHES else ("", True)


def _put_value(found: _Found, key: str, value: str, where: str) -> tuple[str, str] | None:
    if key in _MAPPINGS:
        name, equals, text = value.partition("=")
        if not equals:
            return f"'--env {value}' is not NAME=VALUE", ""
        found.data.setdefault(key, {})[name] = text
        found.values[key, name] = Origin(ValueOrigin.SCRIPT, where)
        return None
    if key == "secret_env":
        return "secrets cannot be named by a directive", "use --env NAME on the command line, or a document"
    if key in _LISTS:
        _put(found, key, [*found.data.get(key, []), value], where)
    elif key in _WORDS:
        _put(found, key, [*found.data.get(key, []), *shlex.split(value)], where)
    else:
        _put(found, key, Plain(value), where)
    return None


def _put(found: _Found, key: str, value: object, where: str) -> None:
    found.data[key] = value
    found.values[(key,)] = Origin(ValueOrigin.SCRIPT, where)
