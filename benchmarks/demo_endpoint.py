"""`make bench-demo`: a small real model behind the router, measured, searched and reported with the commands of a user.

Everything runs on this machine, so the client and the engine share its cores: the rules about that are loosened, and
each line says so. What is left is in `build/bench-demo`: the report, and the points.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from remuda.serving.smollm import installed
from remuda.serving.tiny import make_tiny_model

FOLDER = Path("build/bench-demo")
LOOSE = (
    "V6.lag=1s", "V7.cpu=2", "V7.waiting=1", "V7.throttled=1h", "V9.share=0.8", "V11.slope=1", "V11.first=1",
    "V12.window=5s", "V12.e2e=2", "V12.requests=30",
)  # fmt: skip
#: Of one command; the search has six points or so, of which each may take five minutes at the most.
LONGEST_S = 2400
ALLOWED = ("--allow-changed-rules", "--allow-suspect")


def main() -> int:
    """Run it; 0 when every command did what it should."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    os.chdir(FOLDER)
    os.environ["REMUDA_HOME"] = str(Path("home").resolve())
    model = installed()
    if model is None:
        model = Path("tiny.gguf").resolve()
        make_tiny_model(model)
    load = [
        "--name",
        "bench",
        "--isl",
        "128",
        "--osl",
        "32",
        *(flag for rule in LOOSE for flag in ("--validity", rule)),
    ]
    try:
        remuda("serve", str(model), "--name", "bench", "-r", "2")
        remuda("bench", *load, "--concurrency", "1,4,16", *ALLOWED, shown=["bench", "--concurrency", "1,4,16"])
        search = ["bench", "search", "--maximise", "concurrency", "--slo", "ttft_p50=2s", "--max", "32"]
        remuda(*search, *load, *ALLOWED, shown=search)
        remuda("bench", "report", "-o", "report.html")
        remuda("bench", "list")
    finally:
        remuda("down", "bench")
        remuda("host", "stop")
    sys.stdout.write(f"\nthe report: {Path('report.html').resolve()}\n")
    return 0


def remuda(*words: str, shown: list[str] | None = None) -> None:
    """Type one command and show it."""
    sys.stdout.write(f"\n$ remuda {shlex.join(shown or list(words))}\n")
    sys.stdout.flush()
    subprocess.run([sys.executable, "-m", "remuda", *words], check=True, timeout=LONGEST_S)


if __name__ == "__main__":
    sys.exit(main())
