"""How far a script is: the file in which it says so, what is read from it, and the two tools that write it.

    {"step": 100, "total": 1000, "metrics": {"loss": 2.1}, "message": "…", "at": 1795231062.8}

All fields may be missing; numbers beside them count as metrics too. Any change of the file is progress.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from remuda.node import private

FILE = "progress.json"
VARIABLE = "REMUDA_PROGRESS_FILE"
RESULT_FILE = "result.json"
RESULT_VARIABLE = "REMUDA_RESULT_FILE"
"""Where a script may leave what it came to, as JSON; nobody but its user reads it."""
MAX_BYTES = 65536
MAX_METRICS = 32
MAX_NAME = 64
COMMAND = "remuda-progress"
MODULE = "remuda_progress.py"
_OWN = ("at", "time", "timestamp")


def parse(text: bytes) -> dict[str, float]:
    """`progress_step`, `progress_total` and the script's own numbers; what cannot be read is passed over. Pure."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    found = {}
    for name in ("step", "total"):
        value = _number(data.pop(name, None))
        if value is not None:
            found[f"progress_{name}"] = value
    inner = data.pop("metrics", None)
    items = [*data.items(), *(inner.items() if isinstance(inner, dict) else ())]
    own = {name: _number(value) for name, value in items if name not in _OWN and 0 < len(name) <= MAX_NAME}
    numbers = [(name, value) for name, value in own.items() if value is not None and _is_clean(name)]
    return {**dict(numbers[:MAX_METRICS]), **found}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _is_clean(name: str) -> bool:
    return name.isprintable() and not name.startswith("progress_")


class ProgressFile:
    """The file, looked at again and again."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / FILE
        self.metrics: dict[str, float] = {}
        self.is_written = False
        """Whether the script has written it since `begin`."""
        self._seen = self._signature()

    def begin(self) -> None:
        """The script starts now; what lies there is from before."""
        self._seen = self._signature()

    def look(self) -> bool:
        """Whether it changed since the last look; then it is read."""
        signature = self._signature()
        if signature is None or signature == self._seen:
            return False
        self._seen = signature
        self.is_written = True
        try:
            with self.path.open("rb") as file:
                metrics = parse(file.read(MAX_BYTES))
        except OSError:
            metrics = {}
        self.metrics = metrics or self.metrics  # one that is written in place may be half there
        return True

    @property
    def numbers(self) -> dict[str, float]:
        """What it said at the last look."""
        return self.metrics

    def last(self) -> dict[str, float]:
        """What it says at the very end."""
        self.look()
        return self.metrics

    @property
    def is_unfinished(self) -> bool:
        """Whether the script said that steps are missing."""
        step, total = self.metrics.get("progress_step"), self.metrics.get("progress_total")
        return self.is_written and step is not None and total is not None and step < total

    def _signature(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_ino, stat.st_size


class Unwatched(ProgressFile):
    """The file of one that nobody looks after for its progress: it is looked at when somebody asks for the numbers."""

    @property
    def numbers(self) -> dict[str, float]:
        """What it says now."""
        self.look()
        return self.metrics


def tools_beside(program: str, run_dir: Path) -> Path:
    """Where the tools of a node program lie: beside its archive, since a purge of run directories must not take them.

    Args:
        program: path of this module, inside the archive or not.
        run_dir: where they lie when the program runs from its sources.
    """
    archive, suffix, _ = program.partition(".pyz" + os.sep)
    return Path(archive + "-tools") if suffix else run_dir


def environment(run_dir: Path, env: dict[str, str], tools: Path | None = None) -> dict[str, str]:
    """What is added to a script's environment so that it finds file and tools."""
    tools = tools or tools_beside(__file__, run_dir)
    bin_dir, module_dir = str(tools / "bin"), str(tools / "python")
    path = env.get("PATH", os.defpath)
    modules = env.get("PYTHONPATH", "")
    return {
        VARIABLE: str(run_dir / FILE),
        RESULT_VARIABLE: str(run_dir / RESULT_FILE),
        "PATH": f"{bin_dir}{os.pathsep}{path}",
        "PYTHONPATH": f"{modules}{os.pathsep}{module_dir}" if modules else module_dir,
    }


def install(run_dir: Path, tools: Path | None = None) -> None:
    """Put the tools where `environment` says that they are.

    Raises:
        OSError: it cannot be written.
    """
    tools = tools or tools_beside(__file__, run_dir)
    tools.mkdir(mode=0o700, exist_ok=True)
    for folder, name, text in (("bin", COMMAND, _SHELL), ("python", MODULE, _PYTHON)):
        place = tools / folder
        place.mkdir(mode=0o700, exist_ok=True)
        if not _has(place / name, text):
            private.write_whole(place / name, text, mode=0o700)


def _has(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text and os.access(path, os.X_OK)
    except (OSError, ValueError):
        return False


_SHELL = r"""#!/bin/sh
# Tells remuda how far a script is. Any change of the file counts as progress.
# It never fails its caller: a script with `set -e` goes on when the disk is full, the folder is gone or a word is
# wrong.
trap "" XFSZ PIPE
usage="usage: remuda-progress STEP[/TOTAL] | [--step N] [--total N] [--metric NAME=NUMBER]... [--message TEXT]"
fail() { echo "remuda-progress: $1; $usage" >&2; exit 0; }
number() {
  case $1 in
    *[!0-9.eE+-]* | *[.eE+-]) fail "'$1' is not a number" ;;
    [0-9]* | -[0-9]*) printf '%s' "$1" ;;
    *) fail "'$1' is not a number" ;;
  esac
}
text() { printf '%s' "$1" | tr '\000-\037\177' ' ' | sed 's/\\/\\\\/g; s/"/\\"/g'; }
fields="" metrics=""
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) echo "$usage"; exit 0 ;;
    --*=*) option=${1%%=*} value=${1#*=}; shift ;;
    --*) option=$1; [ $# -ge 2 ] || fail "$1 needs a value"; value=$2; shift 2 ;;
    */*) both=$1; shift; set -- --step "${both%%/*}" --total "${both#*/}" "$@"; continue ;;
    *) option=--step value=$1; shift ;;
  esac
  case $option in
    --step | --total)
      checked=$(number "$value"); [ -n "$checked" ] || exit 0
      fields="$fields\"${option#--}\": $checked, " ;;
    --message) fields="$fields\"message\": \"$(text "$value")\", " ;;
    --metric)
      case $value in ?*=?*) ;; *) fail "'$value' is not NAME=NUMBER" ;; esac
      checked=$(number "${value#*=}"); [ -n "$checked" ] || exit 0
      metrics="$metrics${metrics:+, }\"$(text "${value%%=*}")\": $checked" ;;
    *) fail "unknown option '$option'" ;;
  esac
done
[ -n "$fields$metrics" ] || fail "nothing to tell"
[ -n "${REMUDA_PROGRESS_FILE:-}" ] || exit 0
umask 077
draft="$REMUDA_PROGRESS_FILE.$$"
at=$(date +%s)
{
  { printf '{%s"metrics": {%s}, "at": %s}\n' "$fields" "$metrics" "$at" > "$draft"; } &&
    mv -f "$draft" "$REMUDA_PROGRESS_FILE"
} 2>/dev/null </dev/null || rm -f "$draft" 2>/dev/null
exit 0
"""

_PYTHON = '''"""Tells remuda how far a script is: `remuda_progress.progress(100, 1000, loss=2.1)`."""

import json
import os
import sys
import time


def progress(step=None, total=None, message="", *others, **metrics):
    """Write the progress file; without remuda, or when it cannot be written, nothing happens."""
    if others or (step is None and not metrics):
        if sys.stderr is not None:
            print("remuda_progress: write progress(STEP, TOTAL, loss=NUMBER); nothing was told", file=sys.stderr)
        return
    path = os.environ.get("REMUDA_PROGRESS_FILE")
    if not path:
        return
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError):
            continue
    data = {"step": step, "total": total, "message": message, "metrics": numbers, "at": time.time()}
    data = {name: value for name, value in data.items() if value is not None and value != ""}
    draft = "{}.{}".format(path, os.getpid())
    try:
        text = json.dumps(data)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        os.replace(draft, path)
    except Exception:  # whatever it is, it is no reason to end a training
        try:
            os.remove(draft)
        except OSError:
            pass
'''
