"""A sweep on a real Slurm: a deployment a config, whose workers, frontend and benchmark are jobs, two at once."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from tests.component.slurm.test_deployed_bench import STANDINS
from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

RECIPE = """\
schema: 2
name: grid
model: {{path: {model}, name: tiny}}
engine: mocker
environment: {{PYTHONPATH: "{path}", SEQS: '{{seqs}}'}}
resources: {{gpus_per_node: 0}}
slurm: {{partition: cpu, account: inference, time_limit: "01:00:00"}}
roles:
  prefill: {{workers: 1}}
  decode: {{workers: 1}}
frontend: {{cpus: 1, mem: 200MB}}
benchmark: {{type: sa-bench, isl: 40, osl: 8, concurrencies: [2], num_prompts_mult: 6}}
sweep: {{seqs: [8, 16], max_running: 2}}
"""


def test_each_config_is_measured_once_and_no_job_is_left(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    (home.root / "model").mkdir()
    (home.root / "model/config.json").write_text("{}")
    path = os.pathsep.join([str(STANDINS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    (home.root / "grid.yaml").write_text(RECIPE.format(model=home.root / "model", path=path))
    words = ("apply", "grid.yaml", "--sweep", "--json")
    home.run(*words, "--no-wait")
    for _ in range(6):  # on a machine that is busy some are invalid, and measured again
        home.run("sweep", "wait", "grid", check=False)
        done = home.run(*words, check=False)
        if done.returncode == 0:
            break
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{home.log()}"
    points = json.loads(done.stdout)["points"]
    assert [(one["params"], one["state"], len(one["points"])) for one in points] == [
        ({"seqs": 8}, "known", 1), ({"seqs": 16}, "known", 1),
    ]  # fmt: skip
    told = json.loads(home.run("sweep", "status", "grid", "--json").stdout)
    assert [row["outcome"] for row in told["deployments"]] == ["done", "done"]
    until(lambda: slurm.run("squeue", "-h", "-o", "%j").stdout == "", "nothing of it is left")
