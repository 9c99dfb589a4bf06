"""Which of the user's own sbatch options can be kept. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.specs.reading.sbatch_options import options_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from remuda.plan.placing.place import SlurmPlace

_COMPONENTS: Final = ("hetjob", "packjob")
_REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(_COMPONENTS, "jobs of several components are not supported"),
    "array": "a run is one job; ask for several tasks instead",
    "wrap": "the job's script is the supervisor's own; name a script instead",
    "wait": "sbatch would not return before the job has ended",
    "test-only": "the job would not be submitted",
    "clusters": "jobs on another cluster cannot be watched from here",
    "cluster": "jobs on another cluster cannot be watched from here",
    "het-group": "jobs of several components are not supported",
    "uid": "a job of another user cannot be watched",
    "external": "a job without a script of its own cannot be watched",
    "help": "it is not an option of a job",
    "usage": "it is not an option of a job",
    "version": "it is not an option of a job",
}


def check_directives(place: SlurmPlace) -> None:
    """Refuse options under which a job could not be supervised.

    Raises:
        InputError: says which option, and why.
    """
    for where, name, _ in _user_options(place):
        if name in _REFUSED:
            shown = name if name in _COMPONENTS else f"--{name}"
            raise InputError(f"{where}: {shown} cannot be used here: {_REFUSED[name]}")


def joined_gres(own: str, place: SlurmPlace) -> str:
    """Generic resources of our own with those of the user's words, which `--gres` of ours would replace.

    The user's GPUs win over ours: two counts of one resource are refused by Slurm.
    """
    theirs = [item for _, name, value in _user_options(place) if name == "gres" for item in (value or "").split(",")]
    theirs = [item for item in theirs if item and item.lower() != "none"]
    kinds = {item.partition(":")[0] for item in theirs}
    ours = [item for item in own.split(",") if item and item.partition(":")[0] not in kinds]
    return ",".join(dict.fromkeys((*ours, *theirs)))


def names_gres(words: Sequence[str]) -> bool:
    """Whether words of a command line ask for generic resources."""
    return any(name == "gres" for name, _ in options_of(words))


def check_words(argv: Sequence[str]) -> None:
    """Refuse what cannot be a word of sbatch's command line.

    Raises:
        InputError: a line break or a NUL in an option.
    """
    for word in argv:
        if "\n" in word or "\r" in word or "\0" in word:
            raise InputError(f"{word!r} cannot be given to sbatch: it has a line break or a NUL in it")


def _user_options(place: SlurmPlace) -> Iterator[tuple[str, str, str | None]]:
    """Where it stands, long name and value of each option of the user's own."""
    for where, words in _user_words(place):
        for name, value in options_of(words, where):
            yield where, name, value


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
