"""Ctrl-C while a command still loads its modules, or has ended: the command ends, and shows nobody a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["remuda"]
INSTALLED = "import sys; from {} import {} as main; sys.exit(main())".format(*SCRIPT.split(":"))
PRESSED = """
import atexit, os, signal, sys
class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["PRESSED_AT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Pressed())
if os.environ["PRESSED_AT"] == "its end":
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
"""


def pressed_at(moment: str, folder: Path, *start: str, ignored: bool = False) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(PRESSED)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *start, "version"], capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PRESSED_AT": moment, "REMUDA_HOME": str(folder / "h")},
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else None,
    )  # fmt: skip


@pytest.mark.parametrize("moment", ["remuda.cli", "click", "remuda.cli.completion", "its end"])
@pytest.mark.parametrize("start", [("-m", "remuda"), ("-c", INSTALLED)], ids=["module", "installed"])
def test_no_traceback(start: tuple[str, ...], moment: str, tmp_path: Path) -> None:
    done = pressed_at(moment, tmp_path, *start)
    assert done.returncode in (130, -signal.SIGINT), "a shell shows both as 130"
    assert done.stderr.strip() in ("", "stopped")


def test_who_ignores_it_is_not_ended_by_it(tmp_path: Path) -> None:
    """As of a command that a shell script has put into the background."""
    done = pressed_at("click", tmp_path, "-m", "remuda", ignored=True)
    assert (done.returncode, done.stderr) == (0, "")
