"""Columns in the names of folders, as Hive, Spark and pyarrow write them: `lang=de/year=2024/part-0.parquet`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
Value = str | int | None


class Partitions:
    """What the folders of an input say of its files.

    Args:
        folder: the input as the user named it; folders above it say nothing.
        files: all below it.
    """

    def __init__(self, folder: Path, files: Sequence[Path]) -> None:
        texts = {path: _read(path.parent.relative_to(folder).parts) for path in files}
        names = dict.fromkeys(name for found in texts.values() for name in found)
        whole = {name: all(_is_whole(found.get(name)) for found in texts.values()) for name in names}
        self.schema = pa.schema([(name, pa.int64() if whole[name] else pa.string()) for name in names])
        """Whole numbers where all values are some, else text; in the order of the folders."""
        self._values: dict[Path, dict[str, Value]] = {
            path: {name: _value(found.get(name), whole=whole[name]) for name in names} for path, found in texts.items()
        }

    def of(self, path: Path) -> Mapping[str, Value]:
        """Value by column of one file's rows; None where its path says nothing."""
        return self._values.get(path, {})


def _read(folders: Sequence[str]) -> dict[str, str]:
    pairs = [part.partition("=") for part in folders]
    return {unquote(name): unquote(text) for name, sign, text in pairs if sign and name}


def _is_whole(text: str | None) -> bool:
    if text is None or text == _NULL:
        return True
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and str(int(text)) == text and abs(int(text)) < 1 << 63


def _value(text: str | None, *, whole: bool) -> Value:
    if text is None or text == _NULL:
        return None
    return int(text) if whole else text
