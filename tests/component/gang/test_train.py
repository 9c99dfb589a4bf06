"""The whole of it: one command, four ranks that train one model through a folder, one of them killed on the way."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tests.conftest import PYTHON

if TYPE_CHECKING:
    from tests.conftest import Home

TRAIN = """\
import hashlib, os, signal
from pathlib import Path

import numpy as np
from remuda.gang import DiLoCo, ObjectStoreAllReduce

store = ObjectStoreAllReduce()
rng = np.random.default_rng(store.rank)
truth = np.linspace(-1, 1, 50, dtype=np.float32)
model = {"weight": np.zeros(50, np.float32)}
died = Path("died")
with DiLoCo(model, None, store, sync_every=20) as diloco:
    print("begins at", diloco.steps, flush=True)
    while diloco.steps < 100:
        x = rng.standard_normal((32, 50), np.float32)
        error = x @ (model["weight"] - truth)
        model["weight"] -= 0.05 * x.T @ error / len(x)
        diloco.step()
        if store.rank == 2 and diloco.steps == 50 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
print("ends with", hashlib.sha256(model["weight"].tobytes()).hexdigest()[:16], flush=True)
"""


def test_four_ranks_train_one_model_though_one_is_killed(home: Home) -> None:
    (home.root / "train.py").write_text(TRAIN)
    quick = ("-s", "backoff_base=0.1", "-s", "backoff_max=0.1")
    home.run("gang", "run", "-n", "4", "--name", "train", *quick, "--wait", "--", PYTHON, "train.py", timeout=300)
    said = [home.run("logs", "train", "--rank", str(rank)).stdout for rank in range(4)]
    ends = [re.findall("ends with (.*)", text) for text in said]
    assert [len(one) for one in ends] == [1, 1, 1, 1], said
    assert len({one[0] for one in ends}) == 1, "all ranks hold the same bytes"
    begins = [re.findall("begins at (.*)", text) for text in said]
    assert begins == [["0"], ["0"], ["40"], ["0"]], "who comes back goes on at the last round; the others stay"
    first = home.run("logs", "train", "--rank", "2", "--attempt", "1").stdout
    assert re.findall("begins at (.*)", first) == ["0"]
    assert "ends with" not in first
    rounds = json.loads(home.run("gang", "rounds", "train", "--json").stdout)
    assert rounds["committed"] == 5
    assert [one["ranks"] for one in rounds["rounds"] if one["number"] == 4] == [[0, 1, 2, 3]]
    assert "COMMITTED_AT" in home.run("gang", "rounds", "train").stdout
