"""Durations, sizes and numbers as people write them: parsed at the edge into seconds and bytes, shown with units."""

from __future__ import annotations

import re

from remuda.base.errors import InputError

_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d|w)")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{1,2})(?::(\d{1,2}))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
_SIZE_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
UNKNOWN = "–"
"""Where a number is not known."""


def parse_duration(text: str | float) -> float:
    """Read `90`, `90s`, `1h30m`, `2d`, `36:00:00` or `1-12:00:00` as seconds.

    A bare `A:B` is hours and minutes when a day part precedes it, else minutes and seconds, as Slurm reads it.

    Raises:
        InputError: the text is none of these.
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return float(text)
    value = str(text).strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    if clock := _CLOCK.fullmatch(value):
        days, first, second, third = clock.groups()
        if third is not None:
            seconds = int(first) * 3600 + int(second) * 60 + int(third)
        elif days is not None:
            seconds = int(first) * 3600 + int(second) * 60
        else:
            seconds = int(first) * 60 + int(second)
        return float(seconds + int(days or 0) * 86400)
    parts = _DURATION_PART.findall(value)
    if parts and _DURATION_PART.sub("", value).strip() == "":
        return sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)
    raise InputError(f"{text!r} is not a duration", hint="write seconds, 90s, 1h30m, 2d or 36:00:00")


INTERVALS = "write 10Hz, 100ms, 1s, or a number of milliseconds"
_FREQUENCY = re.compile(r"(\d+(?:\.\d+)?)\s*hz")


def parse_interval(text: str | float) -> float:
    """Read how often something is looked at: `10Hz`, `100ms`, `1s`, or a number of milliseconds; 0 is never.

    Returns:
        Seconds between two looks, 0.01 to 60, or 0.

    Raises:
        InputError: the text is none of these, or too often or too seldom.
    """
    value = str(text).strip().lower()
    if frequency := _FREQUENCY.fullmatch(value):
        hertz = float(frequency[1])
        seconds = 1 / hertz if hertz else 0.0
    elif re.fullmatch(r"\d+(\.\d+)?", value):
        seconds = float(value) / 1000
    else:
        try:
            seconds = parse_duration(value)
        except InputError as error:
            raise InputError(f"{str(text)!r} is not a sampling rate", hint=INTERVALS) from error
    if seconds and not 0.01 <= seconds <= 60:
        raise InputError(f"{str(text)!r} is not between 100Hz and once a minute", hint=INTERVALS)
    return seconds


def is_interval(word: str) -> bool:
    """Whether a word says how often, and so belongs to the flag before it."""
    try:
        parse_interval(word)
    except InputError:
        return False
    return True


def show_interval(seconds: float) -> str:
    """Write it as a frequency where that is a whole number: `10Hz`, `2500ms`."""
    hertz = 1 / seconds if seconds else 0.0
    return f"{round(hertz)}Hz" if hertz >= 1 and abs(hertz - round(hertz)) < 1e-6 else f"{round(seconds * 1000)}ms"


def parse_size(text: str | int) -> int:
    """Read `16GB`, `512Mi`, `1.5 TiB` or plain bytes; every unit is a power of 1024, as schedulers read it.

    Raises:
        InputError: the text is none of these.
    """
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise InputError(f"{text!r} is not a size", hint="write bytes, 512MB, 16GB or 1.5TiB")
    return int(float(match.group(1)) * 1024 ** _SIZE_POWER[match.group(2).lower()])


def show_counted(count: int, word: str, *verb: str) -> str:
    """A count with its word: `1 row`, `2,000 rows`; and with `verb`, its forms for one and for several, with that."""
    text = f"{show_count(count)} {word}{'' if count == 1 else 's'}"
    return f"{text} {verb[count != 1]}" if verb else text


def show_duration(seconds: float) -> str:
    """Write seconds as the two largest units: `1d 4h`, `3m 20s`, `4.2s`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    rest = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or (parts and len(parts) < 2):
            parts.append(f"{count}{unit}")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0")) or "0s"


def show_count(number: float) -> str:
    """Write a count with thousands separated: `12,345`."""
    return f"{number:,.0f}"


def show_number(value: float | None, factor: float = 1.0) -> str:
    """Three figures, whole ones from 100 on: `0.5`, `12.3`, `1,234`."""
    if value is None:
        return UNKNOWN
    value *= factor
    return show_count(value) if abs(value) >= 100 else f"{value:.3g}"


def show_ms(seconds: float | None) -> str:
    """`3.6 ms`, `1,234 ms`."""
    return UNKNOWN if seconds is None else f"{show_number(seconds, 1000)} ms"


def show_figures(number: float) -> str:
    """A number in three figures: `912`, `12.5k`, `3.07M`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= 0.9995 * size:
            return f"{number / size:#.3g}".rstrip(".") + unit
    return f"{number:.3g}"


def show_tenths(value: float) -> str:
    """`1,234`, `45.2`, `7`; never 0 where there is some."""
    shown = show_count(value) if abs(value) >= 100 else f"{value:.1f}".removesuffix(".0")
    return "<0.1" if shown == "0" and value > 0 else shown


def show_percent(share: float) -> str:
    """`4.8 %`, `12 %`."""
    return f"{share * 100:.{1 if share < 0.1 else 0}f} %"


def show_share(share: float | None) -> str:
    """`94 %`; never 100 where some is missing, never 0 where there is some."""
    if share is None:
        return UNKNOWN
    percent = 100 * share
    if 0 < percent < 0.5:
        return "<1 %"
    return ">99 %" if 99.5 <= percent < 100 else f"{percent:.0f} %"


def show_energy(joules: float | None) -> str:
    """`812 J`, `45 kJ`, `1.82 kWh`: from 0.1 kWh on as a bill has it."""
    if joules is None:
        return UNKNOWN
    if joules >= 360_000:
        return f"{joules / 3.6e6:.2f} kWh" if joules < 3.6e8 else f"{joules / 3.6e6:,.0f} kWh"
    return f"{joules / 1000:.1f} kJ" if joules >= 1000 else f"{joules:.0f} J"


def show_money(value: float | None, currency: str) -> str:
    """`0.034 USD`, `1,234.50 EUR`."""
    return UNKNOWN if value is None else f"{value:{',.2f' if value >= 1 else '.2g'}} {currency}"


def show_value(value: object, *, none: str = "-", empty: str = "-") -> str:
    """A value of a document, with words for no value and for an empty list."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or empty
    if isinstance(value, bool):
        return str(value).lower()
    return none if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def show_size(count: int) -> str:
    """`512 B`, `3.2 MB`; units are powers of 1024, as `parse_size` reads them."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
