"""Asks the engine, where at hand, which arguments it knows, so that a typo is told before replicas die of it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.disk.files import write_atomic
from remuda.plan.engines import engine_of
from remuda.plan.engines.flags import unknown_flags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.base.disk.paths import StatePaths
    from remuda.specs.swarm import SwarmSpec

_TIMEOUT_S = 60.0
_KEPT_S = 7 * 86400.0


def unknown_arguments(spec: SwarmSpec, python: str, paths: StatePaths) -> tuple[str, ...]:
    """One sentence for each of the user's arguments that the engine does not list in its help.

    Empty when the user gave none, or when the engine cannot be asked here (it is elsewhere, in an image, or says
    nothing). The help is kept for a week: some engines take half a minute to print it.
    """
    if not spec.args or spec.image:
        return ()
    argv = engine_of(spec).render(spec, python).help_argv
    program = shutil.which(argv[0]) if argv else None
    if program is None:
        return ()
    text = help_text([program, *argv[1:]], spec.env, paths)
    return tuple(f"{spec.engine} does not know {flag}" for flag in unknown_flags(spec.args, text))


def help_text(argv: Sequence[str], env: Mapping[str, str], paths: StatePaths, kept_s: float = _KEPT_S) -> str:
    """What an engine prints when it is asked for its flags; empty where it does not answer.

    Args:
        argv: the question; its program is a path to a file.
        env: what its environment has besides this process's.
        paths: of the state directory, where the answer is kept.
        kept_s: oldest answer that will do.
    """
    changed = Path(argv[0]).stat().st_mtime_ns
    words = [*argv, str(changed), env.get("PYTHONPATH", "")]
    key = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    kept = paths.root / "cache" / f"help-{key}.txt"
    if kept.is_file() and 0 <= time.time() - kept.stat().st_mtime < kept_s:
        return kept.read_text()
    try:
        answer = subprocess.run(
            argv, env={**os.environ, **env, "COLUMNS": "200"}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if answer.returncode != 0:
        return ""
    write_atomic(paths.folder(kept.parent) / kept.name, answer.stdout, sync=False)
    return answer.stdout
