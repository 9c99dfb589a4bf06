"""`allocation: one-job` on a real Slurm: workers over nodes, and the frontend, begin and begin again together."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.component.host.test_deployments import STANDINS, ask, tasks
from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

NAME = "packed"
#: Two workers on the first of three nodes, one over the other two, and services that are jobs of their own.
RECIPE = """\
schema: 2
name: packed
model: {{path: {root}/model, name: tiny}}
engine: sglang
environment: {{PYTHONPATH: "{standins}", CACHE_AT: "{{address:cache}}"}}
resources: {{gpus_per_node: 2}}
slurm: {{partition: spot, account: inference, time_limit: "01:00:00"}}
roles:
  prefill: {{nodes: 1, workers: 2}}
  decode: {{nodes: 2, workers: 1}}
frontend: {{type: sglang-router}}
services:
  - {{name: cache, command: [{python}, -m, http.server, "{{port}}"]}}
  - {{name: later, command: [{python}, -m, http.server, "{{port}}"], start: after_frontend}}
watchdog: {{probe_interval: 1, restart_backoff_initial: 0.1, max_restarts: 1}}
"""
PACK = ("prefill/0", "prefill/1", "decode/0", "frontend/0")
UP = "packed is up: prefill 2/2, decode 1/1, service "


class Packed:
    """The deployment, and what is seen of it from outside."""

    def __init__(self, site: Home, slurm: SlurmBed) -> None:
        self.site, self.slurm = site, slurm
        self.file = site.root / "recipe.yaml"
        (site.root / "model").mkdir()
        (site.root / "model/config.json").write_text("{}")
        self.file.write_text(RECIPE.format(root=site.root, standins=STANDINS, python=sys.executable))

    def up(self, *more: str) -> str:
        try:
            return self.site.run("apply", str(self.file), "--set", "allocation=one-job", *more).stderr
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.site.run('explain', NAME, check=False).stdout}") from None

    def jobs(self) -> dict[str, str]:
        """Nodes of each job that has not ended, by its group."""
        lines = self.slurm.run("squeue", "-h", "-o", "%j %D").stdout.splitlines()
        return {line.split(".")[1]: line.split()[1] for line in lines}

    def of_pack(self, what: str) -> list[object]:
        known = tasks(self.site, NAME)
        return [known[name][what] for name in PACK]

    def kill_decode(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the server that decodes, on its first node."""
        for pid, token in self.site.tokens().items():
            words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
            if token.startswith("packed.decode.0.") and "sglang.launch_server" in words[:4] and _rank(words) == "0":
                os.kill(pid, number)
                return
        raise AssertionError("nobody decodes")

    def until_answered(self, attempt: int) -> None:
        until(lambda: self.of_pack("attempt") == [attempt] * 4, f"attempt {attempt} is begun", 120)
        until(lambda: self.site.view(NAME)["phase"] == "RUNNING", "all is well", 60)
        until(lambda: ask(self.site, NAME) == 5, "it answers", 30)

    def down(self) -> None:
        self.site.run("down", NAME)
        assert self.slurm.run("squeue", "-h", "-o", "%j").stdout == ""
        assert not self.site.tokens()


def _rank(words: list[str]) -> str:
    return words[words.index("--node-rank") + 1] if "--node-rank" in words else "0"


@pytest.fixture
def packed(site: Home, slurm: SlurmBed) -> Packed:
    return Packed(site, slurm)


def test_one_job_answers_and_a_worker_that_gives_up_restarts_all_of_it(packed: Packed) -> None:
    site = packed.site
    dry = site.run("apply", str(packed.file), "--set", "allocation=one-job", "--dry-run").stdout
    assert [line.split("--job-name=")[1].split(".")[1] for line in dry.splitlines() if line.startswith("sbatch ")] == [
        "pack", "cache", "later"
    ]  # fmt: skip
    assert UP in packed.up(), "one of its services begins after it"
    assert packed.jobs() == {"pack": "3", "cache": "1", "later": "1"}
    assert len(set(packed.of_pack("native"))) == 1
    assert Counter(packed.of_pack("node")).most_common(1)[0][1] == 3, "prefill and the frontend are on the first node"
    assert ask(site, NAME) == 5
    assert "2 ranks are here" in site.run("logs", NAME, "--role", "decode").stdout
    refused = site.run("scale", NAME, "decode=2", check=False)
    assert (refused.returncode, "'packed' is one job, which cannot be scaled" in refused.stderr) == (2, True)

    # The next host finds all of them again, and leaves them alone.
    site.kill_host()
    assert "prefill 2/2, decode 1/1" in site.run("status", NAME).stdout
    assert ask(site, NAME) == 5

    # Killed once it is restarted in place; killed again it gives up, and all begin again: one failure.
    packed.kill_decode()
    until(lambda: tasks(site, NAME)["decode/0"]["restarts"] == 1, "it was begun again in place", 30)
    until(lambda: site.view(NAME)["phase"] == "RUNNING", "it is back", 60)
    assert packed.of_pack("attempt") == [1] * 4
    packed.kill_decode()
    packed.until_answered(2)
    assert packed.of_pack("failures") == [1] * 4
    told = site.run("explain", NAME).stdout
    assert "ended with decode/0: " in told
    assert "cause: group" in told
    assert {name: tasks(site, NAME)[f"{name}/0"]["attempt"] for name in ("cache", "later")} == {"cache": 1, "later": 1}
    packed.down()


def test_what_a_person_cancels_or_restarts_comes_back_whole(packed: Packed) -> None:
    site = packed.site
    packed.up("--set", "model.container=docker://nvcr.io/nvidia/engine:1")
    steps = packed.slurm.run("squeue", "-h", "-s", "-o", "%j").stdout.splitlines()
    assert {"packed.prefill.0.1", "packed.prefill.1.1"} <= {name.rpartition(".")[0] for name in steps}, "as Pyxis does"
    packed.slurm.run("scancel", str(tasks(site, NAME)["decode/0"]["native"]))
    packed.until_answered(2)
    assert packed.of_pack("failures") == [0] * 4
    said = site.run("restart", NAME, "prefill").stderr
    assert "prefill, decode, frontend of packed, which are one job, are being restarted" in said
    packed.until_answered(3)
    assert packed.of_pack("failures") == [0] * 4
    assert packed.jobs() == {"pack": "3", "cache": "1", "later": "1"}
    assert "is wanted" in site.run("doctor", check=False).stdout
    packed.down()


def test_a_worker_that_never_comes_up_is_the_end_of_all(packed: Packed) -> None:
    never = ("roles.decode.args={no-such: 1}", "watchdog.max_restarts=0", "watchdog.max_replacements=2")
    words = [word for setting in ("allocation=one-job", *never) for word in ("--set", setting)]
    done = packed.site.run("apply", str(packed.file), *words, check=False)
    assert (done.returncode, "packed is FAILED: decode/0: given up after 2 failures" in done.stderr) == (1, True)
    assert packed.of_pack("attempt") == [2] * 4
    packed.down()
