# ruff: noqa: INP001 - a program, not a package
"""Draws `night.svg`, «A node dies at night», from what the commands print on a practice cluster.

    python docs/images/night.py

Needs Slurm's packages, as `remuda try slurm` does. The cluster, the state directory and the run are its own, and it
takes them down at the end.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

PICTURE = Path(__file__).with_name("night.svg")
SCRIPT = """\
#!/bin/bash
#REMUDA --gpus 1 --partitions gpu-a100,gpu-l40s --time-limit 8h
step=$(cat checkpoint 2> /dev/null || echo 0)
while true; do
  step=$((step + 1)); echo "$step" > checkpoint; remuda-progress "$step/10000"; sleep 1
done
"""
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono,"
LIMIT_S = 120.0
WIDTH = 104


class Terminal:
    """Types commands, and keeps what a person would have seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "REMUDA_HOME": str(folder / "home"), "NO_COLOR": "1"}
        self.env["PATH"] = f"{Path(sys.executable).parent}:{self.env['PATH']}"
        self.console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), highlight=False)  # noqa: PTH123, SIM115

    def remuda(self, *words: str) -> str:
        """What a command prints, its notes included."""
        done = subprocess.run(
            [sys.executable, "-m", "remuda", *words], cwd=self.folder, env=self.env, text=True, check=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.stdout

    def show(self, *words: str, but: str = "") -> None:
        """Type a command, and show what it prints, but for lines with some text."""
        typed = f"$ remuda {' '.join(words)}" + (f" | grep -v '{but}'" if but else "")
        self.console.print(Text(typed, style="bold cyan"))
        for line in self.remuda(*words).splitlines():
            if not but or but not in line:
                self.console.print(Text(line))
        self.console.print()

    def until(self, words: tuple[str, ...], seen: str) -> None:
        """Wait until a command prints it."""
        deadline = time.monotonic() + LIMIT_S
        while not re.search(seen, self.remuda(*words)):
            if time.monotonic() > deadline:
                raise SystemExit(f"{' '.join(words)} has not shown {seen!r}: {self.remuda(*words)}")
            time.sleep(0.5)


def main() -> None:
    """Crash the node of a run, wait for its next attempt, and draw what was typed and answered."""
    with tempfile.TemporaryDirectory(prefix="night", dir="/tmp") as folder:
        terminal = Terminal(Path(folder))
        (terminal.folder / "night.sh").write_text(SCRIPT)
        started = terminal.remuda("try", "slurm")
        terminal.env["SLURM_CONF"] = re.findall(r"SLURM_CONF=(\S+)", started)[0].strip("'\";")
        try:
            terminal.remuda("host", "start")
            terminal.show("run", "night.sh")
            terminal.until(("list",), r"RUNNING.* [1-9]\d*/10000")
            terminal.show("list")
            node = re.findall(r"a100-\d", terminal.remuda("list"))[0]
            terminal.show("try", "slurm", "--drill", "crash", node)
            terminal.until(("events", "night"), "attempt 2")
            terminal.until(("list",), r"RUNNING.* [2-9]\d/10000")
            terminal.show("list")
            terminal.show("explain", "night", but="  | ")
        finally:
            terminal.remuda("stop", "night")
            terminal.remuda("host", "stop")
            terminal.remuda("try", "slurm", "--down")
    drawn = terminal.console.export_svg(title="A node dies at night", theme=MONOKAI, unique_id="night")
    # Fonts of the reader's machine: a picture asks nothing of other servers.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL).replace("Fira Code,", FONTS)
    PICTURE.write_text(drawn)


if __name__ == "__main__":
    main()
