"""Who waits is told: each `time.sleep` outside of programs on nodes has a reason, and there are ever fewer.

Lower a number with the change that makes it lower.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

SRC = Path(__file__).parents[2] / "src/remuda"
REASONS = {
    "base/waiting.py": (1, "hosts that start or end, endpoints and recorders that are seen by files, workers of nginx"),
    "cli/look/profiler.py": (1, "a recording is files; no host is asked"),
    "client/reconnect.py": (1, "a host that is no more tells nobody of the next one"),
    "client/bench/energy.py": (1, "samples of the recorder, which lie in files"),
    "client/ending.py": (1, "the host waits; backends are asked about what is left"),
    "client/jobs/batches.py": (1, "a job in the foreground is files"),
    "client/mirror.py": (1, "a host of an earlier version has no stream, or too many look"),
    "serving/smg_launcher.py": (1, "a launcher and its child"),
}
"""How many a file has, and why."""


def sleeps(path: Path) -> int:
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return sum(ast.unparse(call.func) == "time.sleep" for call in calls)


def test_no_sleep_without_a_reason() -> None:
    found = Counter[str]()
    for path in sorted(SRC.rglob("*.py")):
        name = str(path.relative_to(SRC))
        if name.split("/", maxsplit=1)[0] not in ("node", "testing") and (count := sleeps(path)):
            found[name] = count
    assert dict(found) == {name: count for name, (count, _) in REASONS.items()}
    assert sum(found.values()) <= 8
