"""Which of the user's own sbatch options can be kept. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from remuda.plan.place import SlurmPlace

_REFUSED: Final[Mapping[str, str]] = {
    "--array": "a run is one job; ask for several tasks instead",
    "--wrap": "the job's script is the supervisor's own; name a script instead",
    "--wait": "sbatch would not return before the job has ended",
    "--test-only": "the job would not be submitted",
    "--clusters": "jobs on another cluster cannot be watched from here",
    "--cluster": "jobs on another cluster cannot be watched from here",
    "--het-group": "jobs of several components are not supported",
    "--uid": "a job of another user cannot be watched",
    "--help": "it is not an option of a job",
    "--usage": "it is not an option of a job",
    "--version": "it is not an option of a job",
}
_SHORT: Final[Mapping[str, str]] = {"a": "--array", "W": "--wait", "M": "--clusters", "h": "--help", "V": "--version"}


def check_directives(place: SlurmPlace) -> None:
    """Refuse options under which a job could not be supervised.

    Raises:
        InputError: says which option, and why.
    """
    for where, words in _user_words(place):
        for word in words:
            name = _long_name(word)
            if name in _REFUSED:
                raise InputError(f"{where}: {name} cannot be used here: {_REFUSED[name]}")
            if word in ("hetjob", "packjob"):
                raise InputError(f"{where}: {word} cannot be used here: jobs of several components are not supported")


def check_words(argv: Sequence[str]) -> None:
    """Refuse what cannot be a word of sbatch's command line.

    Raises:
        InputError: a line break or a NUL in an option.
    """
    for word in argv:
        if "\n" in word or "\r" in word or "\0" in word:
            raise InputError(f"{word!r} cannot be given to sbatch: it has a line break or a NUL in it")


def _user_words(place: SlurmPlace) -> Iterator[tuple[str, list[str]]]:
    for text in place.directives:
        if "\n" in text or "\r" in text or "\0" in text:
            raise InputError(f"place.directives: {text!r} cannot be an #SBATCH line: it has a line break in it")
        yield "place.directives", _split(text, "place.directives")
    for line in (line for text in place.preamble for line in text.splitlines() if line.startswith("#SBATCH")):
        yield "place.preamble", _split(line.removeprefix("#SBATCH"), "place.preamble")
    yield "place.args", list(place.args)


def _split(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise InputError(f"{where}: {text!r} cannot be read: {error}") from error


def _long_name(word: str) -> str:
    """`--array=1-3`, `-a`, `-a1-3` -> `--array`; empty for what is no option."""
    if word.startswith("--"):
        return word.partition("=")[0]
    if word.startswith("-") and len(word) > 1:
        return _SHORT.get(word[1], "")
    return ""
