"""The benchmark of a recipe on a real Slurm: a job of its own, beside the frontend's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

STANDINS = Path(__file__).parents[2] / "standins"
RECIPE = """\
schema: 2
name: wide
model: {{path: {model}, name: tiny}}
engine: mocker
environment: {{PYTHONPATH: "{path}"}}
resources: {{gpus_per_node: 0}}
slurm: {{partition: cpu, account: inference, time_limit: "01:00:00"}}
roles:
  prefill: {{workers: 1}}
  decode: {{workers: 1}}
frontend: {{cpus: 1, mem: 200MB}}
api_key: {{env: OUR_KEY}}
benchmark: {{type: sa-bench, isl: 40, osl: 8, concurrencies: [2], num_prompts_mult: 6}}
"""


def test_it_is_a_job_that_finds_the_frontend_on_its_node(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    (home.root / "model").mkdir()
    (home.root / "model/config.json").write_text("{}")
    recipe = home.root / "recipe.yaml"
    path = os.pathsep.join([str(STANDINS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    recipe.write_text(RECIPE.format(model=home.root / "model", path=path))
    done = home.run("apply", str(recipe), check=False, env={"OUR_KEY": "k-4b1f9d"})
    assert done.returncode in (10, 11), f"{done.stdout}\n{done.stderr}\n{home.log()}"
    view = home.view("wide")
    verdict = json.loads(Path(view["run_dir"], "bench/verdict.json").read_text())
    assert (verdict["exit_code"], home.task("wide", "bench/0")["exit_code"]) == (done.returncode, done.returncode)
    (name,) = verdict["points"]
    point = json.loads(Path(view["run_dir"], "bench", name, "point.json").read_text())
    assert point["load"]["requests"] == 12
    assert point["metrics"]["failed"] == 0, "it has the key"
    again = ("--name", "again", "--set", "slurm.time_limit=00:30:00", "--unset", "api_key")
    words = ("apply", str(recipe), *again, "--sweep", "--dry-run", "--json")
    (foreseen,) = json.loads(home.run(*words).stdout)["points"]
    assert (foreseen["address"], point["config"]) == (point["id"], view["labels"]["config"])
    assert home.task("wide", "bench/0")["native"].isdecimal(), "it was a job"
    until(lambda: slurm.run("squeue", "-h", "-o", "%j").stdout == "", "nothing of it is left")
