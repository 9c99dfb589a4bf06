"""What a command costs before it does anything: CPU time and peak memory, beside the interpreter alone."""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from pathlib import Path

from harness import BenchHome, Figure, Used, finish, measure

LIGHT_MS, LIST_MS, SENT_MS, LIGHT_MB = 150.0, 300.0, 250.0, 45.0


def median(argv: list[str], env: dict[str, str], rounds: int) -> Used:
    """Median CPU time and memory, after one run that warms the caches."""
    used = [measure(argv, env) for _ in range(rounds + 1)][1:]
    if any(one.code for one in used):
        raise SystemExit(f"{' '.join(argv)} failed: {[one.code for one in used]}")
    return Used(statistics.median(one.cpu_s for one in used), int(statistics.median(one.rss_bytes for one in used)), 0)


def program() -> list[str]:
    """`remuda` as installed beside this interpreter, as a user types it."""
    beside = Path(sys.executable).with_name("remuda")
    found = str(beside) if beside.exists() else shutil.which("remuda")
    return [found] if found else [sys.executable, "-m", "remuda"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: list[Figure] = []
    with BenchHome() as home:
        names = {"python -c pass": "pass", "python -c 'import click'": "import click"}
        bases = {name: median([sys.executable, "-c", code], home.env, options.rounds) for name, code in names.items()}
        home.run("host", "start")
        home.run("up", "-c", str(home.swarm("herd", 1, router="none")))
        commands = {
            "remuda --help": (["--help"], LIGHT_MS, LIGHT_MB),
            "remuda --version": (["--version"], LIGHT_MS, LIGHT_MB),
            "remuda swarm list": (["swarm", "list"], LIST_MS, None),
            "remuda status": (["status"], LIST_MS, None),
            "remuda up --dry-run": (["up", str(home.swarm("other", 1)), "--dry-run"], SENT_MS, None),
        }
        bare, click = bases["python -c pass"], bases["python -c 'import click'"]
        for name, (arguments, bound_ms, bound_mb) in commands.items():
            used = median([*program(), *arguments], home.env, options.rounds)
            figures.append(
                Figure(f"{name}: CPU", used.cpu_s * 1e3, "ms", bound_ms, click.cpu_s * 1e3, "python -c 'import click'")
            )
            figures.append(
                Figure(f"{name}: memory", used.rss_bytes / 1e6, "MB", bound_mb, bare.rss_bytes / 1e6, "python -c pass")
            )
        for name, used in bases.items():
            figures.append(Figure(f"{name}: CPU", used.cpu_s * 1e3, "ms"))
            figures.append(Figure(f"{name}: memory", used.rss_bytes / 1e6, "MB"))
    return finish(figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
