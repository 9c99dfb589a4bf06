"""What is installed is compiled: the first command on a slow disk does not compile hundreds of files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_make_compiles_every_module(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    subprocess.run(["make", "--silent", "compile"], cwd=ROOT, env=env, check=True, timeout=300)
    sources = list((ROOT / "src" / "remuda").rglob("*.py"))
    assert len(sources) > 100
    ours = tmp_path / ROOT.relative_to("/") / "src"  # the compiler's own modules may be there, too
    compiled = {path.name.partition(".")[0] + path.parent.name for path in ours.rglob("*.pyc")}
    assert {path.stem + path.parent.name for path in sources} == compiled


def test_an_install_compiles_what_it_installs() -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "--always-make", "install"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "--compile-bytecode" in shown
    assert "-m compileall" in shown
