"""Tries remuda on a real GPU: `python tests/live/run_gpu.py [--out FOLDER] [--kit FOLDER]`, which is `make gpu`.

For a machine with an NVIDIA GPU, Python 3.12, torch and transformers, and no package registries. What else remuda needs
is in the kit, a folder that `make gpu-kit` makes elsewhere; where it is installed already, no kit is needed. Six steps,
each within a time of its own: the test of the GPUs, a recording, what it costs, a run, a swarm, a gang. It prints one
table, and leaves `gpu.json` and the log of each step in the folder `--out`.

Exit codes: 0 · 1 a step failed · 2 the kit is missing or is for another Python · 3 there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [path for path in (str(ROOT), str(ROOT / "src")) if path not in sys.path]

from tests.live.gpu import report  # noqa: E402 - a bare interpreter finds it only now
from tests.live.gpu.machine import Card, cards, sweep  # noqa: E402

LIMITS = {"cuda": 20, "recording": 90, "cost": 120, "run": 65, "swarm": 95, "gang": 50}
"""Seconds of each step."""
TOTAL_S, GRACE_S, LEAST_S = 470, 15, 5
NO_KIT = 2
PROBE = """
import importlib.metadata, json
import aiohttp, alembic, click, dotenv, fastapi, httptools, jsonschema_rs, orjson, pydantic
import remuda, rich, sqlalchemy, uvicorn, uvloop, yaml
names = ("torch", "transformers", "numpy", "obstore", "pyarrow")
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
print(json.dumps({"remuda": remuda.__version__, **{name: version(name) for name in names}}))
"""


def unpacked(kit: Path, folder: Path) -> list[Path]:
    """Folder of the kit's packages; none where there is no kit.

    Raises:
        ValueError: it is for another Python; the message is a sentence.
    """
    if not (kit / "kit.json").exists():
        return []
    version, here = json.loads((kit / "kit.json").read_text())["python"], ".".join(platform.python_version_tuple()[:2])
    if version != here:
        raise ValueError(f"{kit} is for Python {version}, and this is {here}: make PYTHON=python{version} gpu")
    with zipfile.ZipFile(kit / "site.zip") as file:
        file.extractall(folder / "site")
    return [folder / "site"]


def run_step(name: str, folder: Path, limit: float, settings: dict[str, Any], env: dict[str, str]) -> report.Outcome:
    """One step in a process of its own; whatever becomes of that, an outcome."""
    folder.mkdir()
    begin = time.monotonic()
    argv = [sys.executable, "-m", "tests.live.gpu.steps", name, str(folder), f"{limit:g}", json.dumps(settings)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env, cwd=ROOT)
        try:
            code = process.wait(limit + GRACE_S)
            words = f"it ended with code {code}"
        except subprocess.TimeoutExpired:
            words = f"it was killed after {limit + GRACE_S:.0f} s"
            process.kill()
            process.wait()
    sweep(str(folder))
    seconds = round(time.monotonic() - begin, 1)
    try:
        told = json.loads((folder / "outcome.json").read_text())
    except (OSError, ValueError):
        last = (folder / "log").read_text(errors="replace").strip().rpartition("\n")[2]
        return report.Outcome(name, report.FAILED, words=f"{words}: {last}"[:300], seconds=seconds)
    return report.Outcome(**{**told, "seconds": seconds})


def run_steps(
    names: list[str], folder: Path, settings: dict[str, Any], env: dict[str, str], patience: float = 1.0
) -> list[report.Outcome]:
    """All of them, one after the other, within `TOTAL_S`; times are multiplied by `patience`."""
    end, outcomes = time.monotonic() + TOTAL_S * patience, []
    for name in names:
        limit = min(LIMITS[name] * patience, end - time.monotonic() - GRACE_S)
        if limit < LEAST_S:
            outcome = report.Outcome(name, report.FAILED, words="there was no time left for it")
        else:
            outcome = run_step(name, folder / name, limit, settings, env)
        print(f"{name}: {outcome.result}, {outcome.seconds:.1f} s", flush=True)
        outcomes.append(outcome)
    return outcomes


def environment(site: list[Path], card: Card, several: bool) -> dict[str, str]:
    """For the steps: the kit's packages before what is installed, and one card."""
    paths = [*map(str, site), str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    if several:
        env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(card.index)}
    return env


def keep(out: Path, folder: Path, outcomes: list[report.Outcome], machine: dict[str, Any]) -> None:
    """Leave `gpu.json` and the logs in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for outcome in outcomes:
        if (log := folder / outcome.step / "log").exists():
            shutil.copy(log, out / f"{outcome.step}.log")
    told = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **machine,
            "steps": [one.to_json() for one in outcomes]}  # fmt: skip
    (out / "gpu.json").write_text(json.dumps(told, indent=1) + "\n")


def main() -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build/gpu", help="folder of gpu.json and the logs")
    parser.add_argument("--kit", type=Path, default=ROOT / "gpu-kit")
    parser.add_argument("--only", default=",".join(LIMITS), help="steps, with commas")
    parser.add_argument("--settings", default="{}", help=argparse.SUPPRESS)  # tests do less, and without a card
    parser.add_argument("--patience", type=float, default=1.0, help=argparse.SUPPRESS)  # for a busy machine
    said = parser.parse_args()
    found, why = cards()
    if not found:
        print(why)
        return report.NO_GPU
    with tempfile.TemporaryDirectory(prefix="rmgpu", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        try:
            env = environment(unpacked(said.kit, folder), found[0], len(found) > 1)
        except ValueError as error:
            print(error)
            return NO_KIT
        probe = subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, check=False)
        if probe.returncode:
            last = probe.stderr.strip().rpartition("\n")[2]
            print(f"remuda cannot be imported ({last}): bring {said.kit.name}/, made by `make gpu-kit` with registries")
            return NO_KIT
        machine = {"card": asdict(found[0]), "python": platform.python_version(), "kernel": platform.release(),
                   "packages": json.loads(probe.stdout)}  # fmt: skip
        print(f"{found[0].name}, driver {found[0].driver}, {machine['packages']}", flush=True)
        outcomes = run_steps(said.only.split(","), folder, json.loads(said.settings), env, said.patience)
        keep(said.out, folder, outcomes, machine)
    print(f"\n{report.table(outcomes)}\n\n{said.out / 'gpu.json'}")
    return report.exit_code(outcomes)


if __name__ == "__main__":
    sys.exit(main())
