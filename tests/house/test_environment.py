"""The suite works in places of its own, whatever the environment of whoever runs it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.testing.slurm.client import Client

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
ASK = """
import json, os
import tests.conftest as kit
from remuda.base.disk.paths import state_paths
from remuda.testing.slurm.client import Client
home = kit.Home(kit.Path(os.environ["PLACE"]))
home.env |= Client(home.root).env()
print(json.dumps([str(state_paths().root), home.env.get("REMUDA_HOME"), sorted(set(home.env) & set(%r))]))
"""


def test_what_the_caller_exports_reaches_nothing(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / ".remuda").mkdir(parents=True)
    (mine / ".remuda/.env").write_text(f"REMUDA_HOME={mine}/elsewhere\n")
    exported = {
        "HOME": str(mine), "REMUDA_HOME": f"{mine}/state", "DOMYN_SWARM_HOME": f"{mine}/domyn",
        "REMUDA_DEFAULTS": f"{mine}/defaults.yaml", "OPENAI_API_KEY": "sk-caller", "API_TOKEN": "caller",
        "SLURM_CONF": f"{mine}/slurm.conf", "SBATCH_PARTITION": "theirs",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", ASK % (list(exported),)], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, **exported, "PYTHONPATH": str(ROOT), "PLACE": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    state, used, left = json.loads(done.stdout)
    assert not Path(state).is_relative_to(mine)
    assert used == str(tmp_path / "home")
    assert left == ["HOME", "REMUDA_HOME", "SLURM_CONF"]
    assert sorted(path.name for path in mine.iterdir()) == [".remuda"]


def test_a_cluster_of_the_tests_does_not_lead_to_the_callers_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_HOME", "/mine")
    monkeypatch.setenv("SBATCH_PARTITION", "mine")
    env = Client(Path("/bed")).env()
    assert "REMUDA_HOME" not in env
    assert "SBATCH_PARTITION" not in env
    assert env["SLURM_CONF"] == "/bed/slurm.conf"
