"""`make gang`: four ranks train one small model through an S3 server on this machine; one is killed and comes back.

The server is moto's, which keeps objects in memory: it stands for a bucket, and is none. What is left is in
`build/gang`: the losses of each rank, and `loss.png`, where the four stand beside one process that trains alone.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path("build/gang")
RANKS, STEPS, EVERY = 4, 600, 20
ENDS = ("DONE", "FAILED", "STOPPED")
TRAIN = """\
import json, os, sys, time
from pathlib import Path

import numpy as np

alone = sys.argv[1:] == ["alone"]
rank = 0 if alone else int(os.environ["REPLICA_RANK"])
rng = np.random.default_rng(rank if not alone else 99)
teacher = np.random.default_rng(7)
hidden, answer = teacher.standard_normal((16, 32)), teacher.standard_normal((32, 1)) / 6
model = {"a": (teacher.standard_normal((16, 64)) / 4).astype(np.float32),
         "b": (teacher.standard_normal((64, 1)) / 8).astype(np.float32)}


def batch(rng):
    x = rng.standard_normal((32, 16)).astype(np.float32)
    return x, (np.tanh(x @ hidden) @ answer).astype(np.float32)


def step(model):
    x, y = batch(rng)
    h = np.tanh(x @ model["a"])
    error = (h @ model["b"] - y) / len(x)
    back = error @ model["b"].T * (1 - h * h)
    model["b"] -= 0.1 * h.T @ error
    model["a"] -= 0.1 * x.T @ back


def loss(model):
    x, y = batch(np.random.default_rng(5))
    return float(np.mean((np.tanh(x @ model["a"]) @ model["b"] - y) ** 2))


out = Path(os.environ["OUT"], f"{'alone' if alone else rank}.jsonl")


def tell(number):
    with out.open("a") as file:
        file.write(json.dumps([number, loss(model)]) + "\\n")


if alone:
    for number in range(int(os.environ["STEPS"])):
        step(model)
        if number % 20 == 19:
            tell(number + 1)
    sys.exit()

from remuda.gang import DiLoCo, ObjectStoreAllReduce

with DiLoCo(model, None, ObjectStoreAllReduce(codec="int8"), sync_every=20) as diloco:
    print("begins at step", diloco.steps, flush=True)
    while diloco.steps < int(os.environ["STEPS"]):
        step(model)
        diloco.step()
        time.sleep(0.02)  # As if a step took its time: there has to be one in which a rank can die.
        if diloco.steps % 20 == 0:
            tell(diloco.steps)
"""


def main() -> int:
    """Run it; 0 when all ranks ended with what they should."""
    import logging

    import boto3
    from moto.server import ThreadedMotoServer

    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    os.chdir(FOLDER)
    Path("train.py").write_text(TRAIN)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    os.environ |= {
        "REMUDA_HOME": str(Path("home").resolve()), "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
        "OUT": str(Path.cwd()), "STEPS": str(STEPS),
    }  # fmt: skip
    boto3.client("s3", endpoint_url=url).create_bucket(Bucket="demo")
    kept = [flag for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "OUT", "STEPS") for flag in ("--env", name)]
    secret = [f"{name}.env={name}" for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
    flags = [*kept, *(flag for text in secret for flag in ("-s", f"secret_env.{text}")), "-s", "backoff_base=0.5"]
    try:
        begin = time.monotonic()
        words = ["gang", "run", "-n", str(RANKS), "--name", "demo", "--rendezvous", "s3://demo/train"]
        remuda(*words, *flags, "--", sys.executable, "train.py", shown=[*words, "--", "python", "train.py"])
        while lines("2") < STEPS // EVERY // 3:
            time.sleep(0.1)
            if (now := view())["phase"] in ENDS:
                sys.stdout.write(f"\nthe gang ended before rank 2 could be killed: {now['phase']}, {now['reason']}\n")
                remuda("explain", "demo")
                return 1
        pid = next(task["pid"] for task in view()["tasks"] if task["task"] == "rank/2")
        sys.stdout.write(f"\nrank 2 is killed (kill -9 {pid}) at step {lines('2') * EVERY}\n")
        os.kill(pid, signal.SIGKILL)
        while view()["phase"] not in ENDS:
            time.sleep(0.2)
        took = time.monotonic() - begin
        remuda("status", "demo")
        remuda("gang", "rounds", "demo")
        remuda("explain", "demo")
        if view()["phase"] != "DONE":
            return 1
    finally:
        for words in (["down", "demo"], ["host", "stop"]):
            subprocess.run([sys.executable, "-m", "remuda", *words], check=False)
        server.stop()
    subprocess.run([sys.executable, "train.py", "alone"], check=True)
    draw()
    last = {name: read(name)[-1][1] for name in ("0", "1", "2", "3", "alone")}
    sys.stdout.write(f"\nlast losses {last}; {took:.0f} s; the picture: {Path('loss.png').resolve()}\n")
    return 0 if len({last[str(rank)] for rank in range(RANKS)}) == 1 else 1


def remuda(*words: str, shown: list[str] | None = None) -> None:
    """Type one command and show it."""
    sys.stdout.write(f"\n$ remuda {shlex.join(shown or list(words))}\n")
    sys.stdout.flush()
    subprocess.run([sys.executable, "-m", "remuda", *words], check=True)


def view() -> dict[str, Any]:
    """The gang as `status --json` shows it."""
    argv = [sys.executable, "-m", "remuda", "status", "demo", "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    return found


def read(name: str) -> list[tuple[int, float]]:
    """(step, loss) of a rank, or of the one that trains alone."""
    path = Path(f"{name}.jsonl")
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def lines(name: str) -> int:
    """How many losses a rank has told."""
    return len(read(name))


def draw() -> None:
    """The losses over steps."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), dpi=150)
    for rank in range(RANKS):
        told = sorted(read(str(rank)))
        label = f"rank {rank}, killed and back" if rank == 2 else f"rank {rank}"
        axes.plot(*zip(*told, strict=True), linewidth=1.2, label=label)
    axes.plot(*zip(*read("alone"), strict=True), color="black", linestyle="--", label="one process alone")
    axes.set(xlabel="inner steps", ylabel="loss", yscale="log")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig("loss.png")


if __name__ == "__main__":
    sys.exit(main())
