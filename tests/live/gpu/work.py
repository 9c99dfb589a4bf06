"""The steps of `make gpu` that use the command `remuda`: a run, a swarm, a gang."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from tests.live.gpu import report
from tests.live.gpu.machine import NotPossible, owners, remuda

if TYPE_CHECKING:
    from tests.live.gpu.machine import Card
    from tests.live.gpu.report import Numbers, Outcome
    from tests.live.gpu.steps import Settings

HERE = Path(__file__).parent
STEPS, KILL_AT = 400, 80


def needs(*modules: str) -> None:
    """Raise where a module is not here."""
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        raise NotPossible(f"{sys.executable} has no {' and no '.join(missing)}")


def run(settings: Settings, card: Card, folder: Path) -> Outcome:
    """A script with checkpoints is killed with -9, and goes on from the last one."""
    needs("torch")
    script = folder / "train.py"
    script.write_text(f"#!{sys.executable}\n{(HERE / 'train.py').read_text()}")
    script.chmod(0o755)
    with remuda(folder / "home", "train") as command:
        said = [f"--env={name}" for name in (f"DEVICE={settings.device}", f"OUT={folder}", f"STEPS={STEPS}")]
        command.run("run", str(script), "--backend", "local", "--gpus", "1", "--profile", "--backoff-base", "0.5",
                    "--quick-failure", "0", *said)  # fmt: skip
        while _number(folder / "step") < KILL_AT:
            if command.view("train")["phase"] in ("DONE", "FAILED"):
                raise RuntimeError("the script ended before it could be killed; see its log")
            time.sleep(0.2)
        pid = json.loads((folder / "lives.jsonl").read_text().splitlines()[0])["pid"]
        os.kill(pid, signal.SIGKILL)
        at, begin = _number(folder / "step"), time.monotonic()
        view = command.until_over("train")
        took = time.monotonic() - begin
        log = command.run("logs", "train")
    (folder / "train.log").write_text(log)
    lives = [json.loads(line) for line in (folder / "lives.jsonl").read_text().splitlines()]
    losses = [json.loads(line)[1] for line in (folder / "losses.jsonl").read_text().splitlines()]
    spools = sorted((folder / "home").glob("workloads/train/*/attempt-*/recording"))
    tested = [path for path in (folder / "home").rglob("node.log") if "GPUs that work: 1" in path.read_text()]
    whose = {owner for spool in spools for owner in owners(spool).values()}
    numbers: Numbers = {
        "device": lives[-1]["device"], "killed_at": at, "went_on_at": [one["begin"] for one in lives][-1],
        "lives": len(lives), "steps": STEPS, "first_loss": losses[0], "last_loss": losses[-1], "then_s": took,
        "recordings": len(spools), "GPU_tests_passed": len(tested),
        "task_seen_on_GPU": any("train" in owner for owner in whose),
    }  # fmt: skip
    wrong = [] if view["phase"] == "DONE" else [f"it is {view['phase']}: {view.get('reason')}"]
    wrong += [] if len(lives) == 2 and 0 < lives[1]["begin"] <= STEPS else ["it did not go on from its checkpoint"]
    wrong += [] if losses[-1] < losses[0] else ["the loss did not fall"]
    wrong += [] if len(tested) == 2 else ["the GPU was not tested before both attempts"]
    wrong += [] if len(spools) == 2 else ["not both attempts have a recording"]
    return report.judged("run", numbers, wrong, 0)


def _number(path: Path) -> int:
    return int(path.read_text()) if path.exists() and path.read_text() else 0


def swarm(settings: Settings, _: Card, folder: Path) -> Outcome:
    """Transformers' server with a tiny random model answers a question."""
    needs("torch", "transformers", "fastapi", "uvicorn", "pydantic", "openai")
    model, python = folder / "model", engine(folder)
    subprocess.run([sys.executable, str(HERE.parent / "tiny_hf.py"), str(model)], check=True)
    document = folder / "swarm.yaml"
    document.write_text(json.dumps({
        "name": "tiny", "model": str(model), "engine": "transformers", "engine_path": str(python), "replicas": 1,
        "gpus_per_replica": 1, "backend": {"type": "local"}, "router": {"type": "none"}, "wait_endpoint_s": "80s",
        "args": ["--device", "cpu"] if settings.device == "cpu" else [],
        "env": {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
    }))  # fmt: skip
    with remuda(folder / "home", "tiny") as command:
        begin = time.monotonic()
        up = json.loads(command.run("up", "-c", str(document), "--json"))
        took = time.monotonic() - begin
        body = {"model": str(model), "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}
        begin = time.monotonic()
        told = asked(f"{up['endpoint']}/v1/chat/completions", body)
        answered = time.monotonic() - begin
        pids = {int(task["pid"]) for task in command.view("tiny")["tasks"] if task.get("pid")}
        numbers: Numbers = {
            "up_s": took, "answer_s": answered, "answer": repr(told)[:40], "server_on_GPU": bool(pids & on_gpu()),
        }  # fmt: skip
    return report.judged("swarm", numbers, [] if told else ["the answer is empty"], 0)


def asked(url: str, body: dict[str, object]) -> str:
    """The text of a chat's answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.loads(answer.read())["choices"][0]["message"]["content"])


def engine(folder: Path) -> Path:
    """What to start Transformers' program by: the interpreter it lies beside, else a script made here."""
    if Path(sys.executable).with_name("transformers").exists():
        return Path(sys.executable)
    found = importlib.metadata.entry_points(group="console_scripts", name="transformers")
    if not found:
        raise NotPossible("transformers has no command line here")
    module, _, function = next(iter(found)).value.partition(":")
    script = folder / "transformers"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    script.chmod(0o755)
    return script


def on_gpu() -> set[int]:
    """Processes that `nvidia-smi` sees on GPUs, and their parents."""
    argv = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False).stdout.split()
    found = {int(word) for word in said if word.isdigit()}
    for pid in list(found):
        stat = Path(f"/proc/{pid}/stat")
        found |= {int(stat.read_text().rpartition(") ")[2].split()[1])} if stat.exists() else set()
    return found


def gang(settings: Settings, card: Card, folder: Path) -> Outcome:
    """Two ranks of torch on one card average their models through a folder."""
    needs("torch", "obstore")
    with remuda(folder / "home", "pair") as command:
        # A rank that asks for a GPU gets one of its own; two that share one ask for none and are shown it.
        command.run("gang", "run", "-n", "2", "--name", "pair", f"--env=CUDA_VISIBLE_DEVICES={card.uuid}",
                    "-s", "backoff_base=0.5", "--", sys.executable, "-m", "tests.live.gpu.rank", settings.device,
                    str(folder))  # fmt: skip
        view = command.until_over("pair")
        for rank in "01":
            command.run("logs", "pair", "--rank", rank, check=False)
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("rank-?.json"))]
    if view["phase"] != "DONE" or len(found) != 2:
        raise RuntimeError(f"the gang is {view['phase']}: {view.get('reason')}")
    numbers: Numbers = {
        "device": found[0]["device"], "ranks": len(found), "steps": found[0]["steps"], "bytes": found[0]["bytes"],
        "first_loss": found[0]["first"], "last_loss": found[0]["last"],
    }  # fmt: skip
    wrong = [] if len({one["sha"] for one in found}) == 1 else ["the two ranks hold different models"]
    wrong += [] if all(one["last"] < one["first"] for one in found) else ["the loss did not fall"]
    return report.judged("gang", numbers, wrong, 0)
