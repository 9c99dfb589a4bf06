"""From what the user wrote after `--input` to a list of files in natural order."""

from __future__ import annotations

import fnmatch
import glob
import itertools
import re
from pathlib import Path

from remuda.base.errors import InputError
from remuda.base.text import did_you_mean

#: Formats by suffix.
FORMATS = {".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
_RANGE = re.compile(r"\{(\d+)(?:\.\.|-)(\d+)\}")
_DIGITS = re.compile(r"(\d+)")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(text: str) -> bool:
    """Whether it names a place on another machine: `s3://bucket/rows.jsonl`."""
    return bool(_URL.match(text.strip()))


def absolute(path: str) -> str:
    """The driver may run elsewhere: paths become absolute; patterns, URLs and what is empty stay what they are."""
    if not path.strip() or is_url(path):
        return path.strip()
    return str(Path(path).expanduser().absolute()) + ("/" if path.endswith("/") else "")


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which `part-2` comes before `part-10`."""
    parts = _DIGITS.split(text)
    return tuple((1, int(part), part) if part.isdigit() else (0, 0, part) for part in parts)


def expand_ranges(pattern: str) -> list[str]:
    """Write out numeric brace ranges: `in_{08..11}` gives in_08, in_09, in_10, in_11; several give all combinations.

    Numbers are padded to the width of the first bound when either bound has a leading zero. A range may run downwards.
    """
    pieces = _RANGE.split(pattern)
    texts, choices = pieces[0::3], [_numbers(a, b) for a, b in zip(pieces[1::3], pieces[2::3], strict=True)]
    return [
        texts[0] + "".join(number + text for number, text in zip(picked, texts[1:], strict=True))
        for picked in itertools.product(*choices)
    ]


def _numbers(first: str, last: str) -> list[str]:
    width = len(first) if first.startswith("0") or last.startswith("0") else 0
    low, high = int(first), int(last)
    step = 1 if high >= low else -1
    return [str(number).zfill(width) for number in range(low, high + step, step)]


def expand_input(pattern: str) -> list[Path]:
    """The files that `pattern` names.

    Args:
        pattern: a file, a directory (all files of one format below it), a glob, or brace ranges; ranges and globs mix.

    Returns:
        Files in natural order; ranges keep the order in which they are written.

    Raises:
        InputError: nothing matches, a named file is missing, out of reach or no file, or they are of several formats.
    """
    try:
        found = _found(pattern)
    except OSError as error:
        raise InputError(f"input {pattern} cannot be looked at: {error.strerror}", where="--input") from error
    for path in found:
        if not path.is_file():  # opening it may never end
            raise InputError(
                f"input {path} is a pipe, a socket or a device",
                hint="rows are read more than once: write them into a file first",
                where="--input",
            )
    formats = {format_of(path) for path in found}
    if len(formats) > 1:
        raise InputError(f"{pattern} mixes files of several formats: {', '.join(sorted(formats))}", where="--input")
    return found


def would_find(pattern: str, path: Path) -> bool:
    """Whether `expand_input(pattern)` would have `path`, which is not there yet, among the files.

    Raises:
        OSError: it cannot be looked at.
    """
    texts = [pattern] if Path(pattern).exists() else expand_ranges(pattern)
    return any(_is_below(path, Path(text)) or _fits(path, text) for text in texts)


def _is_below(path: Path, folder: Path) -> bool:
    real, root = path.resolve(), folder.resolve()
    return folder.is_dir() and real.is_relative_to(root) and _counts(real.relative_to(root))


def _counts(inside: Path) -> bool:
    """Whether a file of a directory is input."""
    return inside.suffix.lower() in FORMATS and not any(part.startswith((".", "_")) for part in inside.parts)


def _fits(path: Path, text: str) -> bool:
    """Whether a glob means a file."""
    if not glob.has_magic(text):
        return False
    return _fit(list(path.absolute().parts), list(Path(text).absolute().parts))


def _fit(parts: list[str], wanted: list[str]) -> bool:
    if not parts or not wanted:
        return not parts and all(want == "**" for want in wanted)
    is_hidden = parts[0].startswith(".") and not wanted[0].startswith(".")
    if wanted[0] == "**":
        return _fit(parts, wanted[1:]) or (not is_hidden and _fit(parts[1:], wanted))
    return not is_hidden and fnmatch.fnmatchcase(parts[0], wanted[0]) and _fit(parts[1:], wanted[1:])


def _found(pattern: str) -> list[Path]:
    if Path(pattern).exists():
        return _of_directory(Path(pattern)) if Path(pattern).is_dir() else [Path(pattern)]
    return [path for text in expand_ranges(pattern) for path in _matches(text, pattern)]


def _matches(text: str, pattern: str) -> list[Path]:
    path = Path(text)
    if path.is_dir():
        return _of_directory(path)
    if path.exists():
        return [path]
    if glob.has_magic(text):
        found = [Path(name) for name in glob.glob(text, recursive=True) if Path(name).is_file()]  # noqa: PTH207 - absolute patterns
        if found:
            return sorted(found, key=lambda item: natural_key(str(item)))
        raise InputError(f"no file matches {text}", where="--input")
    raise InputError(f"input {text} does not exist", hint=_nearest(path, pattern), where="--input")


def _nearest(path: Path, pattern: str) -> str:
    if path.is_symlink():
        return f"{path} is a link to nothing"
    parent = path.parent
    if not parent.is_dir():
        return f"the directory {parent} does not exist either"
    names = [item.name for item in itertools.islice(parent.iterdir(), 10000)]
    return did_you_mean(path.name, names, f"{pattern} expands to it" if str(path) != pattern else "")


def _of_directory(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if _counts(path.relative_to(folder)) and path.is_file()]
    if not files:
        raise InputError(f"directory {folder} holds no parquet, jsonl or csv file", where="--input")
    return sorted(files, key=lambda path: natural_key(str(path.relative_to(folder))))


def format_of(path: Path) -> str:
    """Format by suffix: parquet, jsonl or csv.

    Raises:
        InputError: the suffix is none of the known ones.
    """
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"cannot tell the format of {path}", hint=f"known suffixes: {', '.join(FORMATS)}")
    return kind
