"""Words of other tools: what they are here, or the row of `docs/features.md` that says that they are not built yet."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

DRILLS: Final = {
    "slurm": ("crash", "freeze", "thaw", "cut", "heal", "stop", "start", "drain", "resume"),
    "kubernetes": ("crash", "start", "advance"),
}
"""What `remuda try` can do to the nodes of a practice cluster."""
TRY_LETTERS: Final = 70
"""Longest path of one of Slurm: sockets lie below it."""
ELSEWHERE: Final = {
    # commands
    "analyze": "remuda profiler analyze", "ban": "remuda nodes ban", "benchmark": "remuda bench",
    "blacklist": "remuda nodes ban", "cancel": "remuda stop", "check": "remuda config check",
    "control": "remuda stop, restart, pause", "daemon": "remuda host", "defaults": "remuda init defaults",
    "delete": "remuda down --remove", "describe": "remuda status", "join": "remuda client connect",
    "kill": "remuda stop", "node": "remuda nodes status NODE",
    "launch": "remuda up", "ls": "remuda list", "monitor": "remuda status --watch", "ps": "remuda status",
    "resume": "remuda unpause", "rm": "remuda down --remove", "sbatch": "remuda run", "scancel": "remuda stop",
    "sessions": "remuda profiler sessions", "setup": "remuda init cluster", "sinfo": "remuda nodes",
    "squeue": "remuda status", "srtctl": "remuda apply", "start": "remuda up", "submit": "remuda run",
    "submit-script": "remuda job submit-script", "top": "remuda status --watch", "train": "remuda run",
    "unban": "remuda nodes unban", "validate": "remuda config check",
    "dashboard": "G10", "data": "G5", "model": "G3", "queue": "G6", "remote": "S13",
    "sync": "S13", "task": "G6", "tui": "S9", "web": "G10", "workflow": "G7",
    # options
    "--install-completion": "remuda completion bash",
    "--run-id": "the name alone, as in remuda status NAME", "--show-completion": "remuda completion bash",
    "--http-port": "remuda host start --http-port", "--model-port": "remuda host start --model-port",
    "--no-daemon": "S13", "--no-sync": "S13", "--remote": "S13",
    "--remote-dir": "S13", "--remote-python": "S13", "--resilient": "remuda client connect --resilient",
    "--sweep": "remuda apply --sweep",
    # names in Python
    "LocalProcessExecutor": "remuda.Executor", "ModalSpawnExecutor": "K3",
    "ServerlessExecutor": "remuda.Executor",
}  # fmt: skip
"""Word -> what to type here, or a row of the list of features."""
SECTIONS: Final = {"S": "supervised-runs", "R": "inference-deployments-and-sweeps", "K": "gangs", "G": "fleets"}
"""First letter of a row -> its place on the page."""


def answer(word: str) -> str:
    """A sentence for whoever types a word of another tool; empty where it is nobody's."""
    here = ELSEWHERE.get(word, "")
    if here[1:].isdigit():
        return f"It is not built yet: row {here} of docs/features.md#{SECTIONS[here[0]]}"
    return f"It is: {here}" if here else ""


def near(word: str, known: Iterable[str]) -> str:
    """A question for whoever mistyped a name; empty where none is near."""
    names = {name.lstrip("-"): name for name in known}
    found = difflib.get_close_matches(word.lstrip("-"), names, 1, 0.76)
    return f"Did you mean {names[found[0]]!r}?" if found else ""
