"""An allocation's output: `child.log` in its directory, and where there is none, the files that Slurm writes."""

from __future__ import annotations

import asyncio
import glob
import json
import os
import pwd
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.backends.base import Life
from remuda.backends.slurm.render import NODE_LOG, OUTPUT
from remuda.base.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

CHILD_LOG: Final = "child.log"
_LOOK_AGAIN_S = 0.2
"""Between two looks for the last word of a node program."""
_PATTERN = re.compile(r"%(\d*)([%AajJNnsStubx])")


def expand_pattern(pattern: str, values: Mapping[str, str]) -> str:
    """A file name of Slurm's with its `%j`, `%4a`, … filled in, as a pattern for `glob`: what is not known is `*`.

    Args:
        pattern: as given to `--output`.
        values: letter -> text, e.g. `{"j": "123", "x": "name"}`.
    """
    if "\\" in pattern:  # Slurm then takes the name as it is, without the backslashes
        return glob.escape(pattern.replace("\\", ""))
    parts: list[str] = []
    end = 0
    for match in _PATTERN.finditer(pattern):
        width, letter = match.groups()
        parts.append(glob.escape(pattern[end : match.start()]))
        end = match.end()
        text = "%" if letter == "%" else values.get(letter, "")
        if not text:
            parts.append("*")
        else:
            parts.append(glob.escape(text.zfill(min(int(width), 10)) if width and text.isdigit() else text))
    return "".join(parts) + glob.escape(pattern[end:])


def values_of(name: str, native: str) -> dict[str, str]:
    """What the letters of a pattern stand for in the batch script of a job."""
    array, _, index = native.partition("_")
    values = {"x": name, "A": array, "n": "0", "t": "0", "s": "batch", "u": pwd.getpwuid(os.getuid()).pw_name}
    if index:
        # A task of an array has an id of its own besides, which is not known once it has left the queue.
        return values | {"a": index, "b": str(int(index) % 10)}
    return values | {"j": array, "J": array}


def find_log(folder: Path, name: str, native: str) -> Path:
    """The file with an allocation's output; `child.log`, which will come, where there is none yet."""
    child = folder / CHILD_LOG
    if child.exists() or child.with_name(f"{CHILD_LOG}.1").exists():
        return child
    for pattern in _patterns(folder):
        found = sorted(glob.glob(expand_pattern(pattern, values_of(name, native))), key=_changed)  # noqa: PTH207
        if found:
            return Path(found[-1])
    return child


def _patterns(folder: Path) -> list[str]:
    """Where Slurm may have written, most likely first."""
    patterns = []
    with suppress(OSError, ValueError, AttributeError):
        told = json.loads((folder / OUTPUT).read_text(encoding="utf-8"))
        workdir = str(told.get("workdir") or folder)
        patterns = [str(told.get("output") or ""), str(told.get("error") or ""), "slurm-%j.out", "slurm-%A_%a.out"]
        patterns = [os.path.join(workdir, pattern) for pattern in patterns if pattern]  # noqa: PTH118 - a pattern
    return [str(folder / NODE_LOG).replace("%", "%%"), *patterns]


def _changed(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0


async def until_ended(life: Callable[[], Awaitable[Life]], folder: Path, every_s: float) -> None:
    """Return when an allocation has ended.

    Args:
        life: asks Slurm; no answer says nothing.
        folder: the allocation's directory. The last word of the node program is seen there sooner.
        every_s: between two questions to Slurm.
    """
    said = asyncio.ensure_future(_until_slurm_says_so(life, every_s))
    try:
        while not said.done() and not await asyncio.to_thread((folder / "exit.json").exists):
            await asyncio.wait({said}, timeout=_LOOK_AGAIN_S)
    finally:
        said.cancel()


async def until_written(folder: Path, ended: Callable[[], Awaitable[None]]) -> None:
    """Return when the output of an allocation has a file of its own, or nothing can come any more.

    Until then only the node program's own words are there. Who follows those would never see the output.

    Args:
        folder: the allocation's directory.
        ended: returns when it has ended.
    """
    over = asyncio.ensure_future(ended())
    try:
        while not over.done() and not await asyncio.to_thread((folder / CHILD_LOG).exists):
            await asyncio.wait({over}, timeout=_LOOK_AGAIN_S)
    finally:
        over.cancel()


async def _until_slurm_says_so(life: Callable[[], Awaitable[Life]], every_s: float) -> None:
    while True:
        with suppress(RemudaError):
            if await life() in (Life.ENDED, Life.GONE):
                return
        await asyncio.sleep(every_s)
