"""A run's directory is removed, as purges of scratch do: the script goes on, and what is said of its end is true."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.conftest import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Home

SCRIPT = """#!/bin/bash
set -e
for ((i = 1; ; i++)); do
  remuda-progress $i
  echo $i > "$OUT/step"
  [ ! -e "$OUT/go" ] || exit 0
  sleep 0.05
done
"""


def step(folder: Path) -> int:
    try:
        return int((folder / "step").read_text() or 0)
    except FileNotFoundError:
        return 0


def is_purged(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_a_script_goes_on_without_its_directory(home: Home) -> None:
    script = home.root / "train.sh"
    script.write_text(SCRIPT)
    home.run("run", str(script), "--name", "train", "--backend", "local", "--env", f"OUT={home.root}")
    until(lambda: step(home.root) > 0, "it works")
    (folder,) = (home.paths.workload("train") / "script-0").glob("attempt-1-*")
    until(lambda: is_purged(folder), "its directory is gone")  # What runs there writes while it is removed.
    seen = step(home.root)
    until(lambda: step(home.root) > seen + 3, "it goes on")
    (home.root / "go").touch()
    until(lambda: home.view("train")["phase"] == "DONE", "it is done")
    assert f"its directory {folder} is gone; the node program ended with code 0" in home.run("explain", "train").stdout
