"""A deployment with an `api_key` and a `lifetime` on a real Slurm: strangers on its nodes, and a worker's successor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.component.host.test_deployment_keys import KEY, content, status
from tests.conftest import until

from remuda.serving.tiny import make_tiny_model

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

RECIPE = """\
schema: 2
name: kept
model: {{path: {model}, name: tiny}}
engine: llamacpp
resources: {{gpus_per_node: 0}}
slurm: {{partition: cpu, account: inference, time_limit: "02:00:00"}}
sbatch_directives: {{cpus-per-task: 1, mem: 400MB}}
roles: {{agg: {{gpus: 0, args: {{ctx-size: 512, parallel: 4, threads: 1}}}}}}
frontend: {{type: smg, cpus: 1, mem: 200MB}}
api_key: {{env: OUR_KEY}}
lifetime: 1d
handover: 20m
drain: 20
log_level: debug
watchdog: {{probe_interval: 1}}
"""


def test_a_strangers_request_is_refused_everywhere_and_a_successor_knows_the_key(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    (home.root / "recipe.yaml").write_text(RECIPE.format(model=make_tiny_model(home.root / "tiny.gguf")))
    done = home.run("apply", "recipe.yaml", env={"OUR_KEY": KEY})
    assert "kept is up" in done.stderr
    assert "take none" not in done.stderr

    def guarded(url: str) -> None:
        assert [status(url), status(url, "wrong"), status(url, KEY)] == [401, 401, 200]

    endpoint = home.view("kept")["endpoint"]
    assert urlsplit(endpoint).hostname != "127.0.0.1", "with a key it is for other machines, too"
    worker, frontend = home.task("kept", "agg/0"), home.task("kept", "frontend/0")
    for url in (endpoint, worker["url"], frontend["url"]):
        guarded(url)

    # Its time limit comes near: another worker is begun, which knows the key, and takes over.
    slurm.run("scontrol", "update", f"JobId={worker['native']}", "TimeLimit=15")
    until(lambda: "agg/500" in {task["task"] for task in home.view("kept")["tasks"]}, "its successor is begun")
    until(lambda: "agg/0" not in {task["task"] for task in home.view("kept")["tasks"]}, "it has taken over")
    assert home.view("kept")["phase"] == "RUNNING"
    guarded(endpoint)
    guarded(home.task("kept", "agg/500")["url"])
    jobs = slurm.run("scontrol", "show", "job", "-o").stdout
    assert all(KEY not in text for text in (done.stdout, done.stderr, jobs, home.run("logs", "kept").stdout))
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        assert KEY.encode() not in content(process)
    holding = [path for path in home.paths.root.rglob("*") if path.is_file() and KEY.encode() in content(path)]
    assert holding
    assert all("secrets" in path.parts and path.stat().st_mode & 0o077 == 0 for path in holding), holding
    home.run("down", "kept")
    assert slurm.run("squeue", "-h", "-o", "%j").stdout == ""
