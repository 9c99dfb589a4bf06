"""A swarm on a real Slurm: nothing in its document is executed on the way to a node, and its key is in files only."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import PYTHON, until

import remuda

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

SOURCES = str(Path(remuda.__file__).parents[1])
TRACE = Path("/tmp/remuda-was-on-a-node")
EVIL = f"$(touch {TRACE}) `touch {TRACE}`; 'q' \"d\" \\ é %x %j"
KEY = "k-77d0c1be42-secret"
#: Tells what arrived, then serves; it takes its key from where vLLM takes it.
PROGRAM = f"""\
import json, os, sys
print(json.dumps([sys.argv[3:], os.environ["EVIL"]]), flush=True)
sys.path[:0] = [{SOURCES!r}]
from tests.fakes.engine import main
main(["--host", sys.argv[1], "--port", sys.argv[2], "--model", sys.argv[3], "--api-key-env", "HERD_KEY"])
"""


def status_of(url: str, key: str) -> int:
    """What a chat request with this key is answered; 0 for no answer."""
    body = {"model": EVIL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    try:
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


@pytest.fixture
def site(home: Home, slurm: SlurmBed) -> Home:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    return home


def test_nothing_is_executed_and_the_key_is_in_its_files_only(site: Home, slurm: SlurmBed) -> None:
    TRACE.unlink(missing_ok=True)
    program = site.root / "engine.py"
    program.write_text(PROGRAM)
    backend = {
        "type": "slurm", "partition": "gpu-a100", "account": "inference", "qos": "normal",
        "endpoint": {"cpus_per_task": 1, "mem": "200MB"},
    }  # fmt: skip
    path = site.swarm(
        backend=backend, gpus_per_replica=1, cpus_per_task=1, replicas=1, model=EVIL, env={"EVIL": EVIL}, args=[EVIL],
        command=[PYTHON, str(program), "{host}", "{port}", "{model}", EVIL], api_key={"env": "HERD_KEY"},
        secret_env={"HERD_KEY": {"env": "HERD_KEY"}},
    )  # fmt: skip
    env = {"HERD_KEY": KEY}
    shown = [site.run("up", "-c", str(path), "--dry-run", env=env).stdout]
    site.run("up", "-c", str(path), env=env)
    url = site.view("herd")["endpoint"]
    until(lambda: status_of(url, KEY) == 200, "the router sends to the replica")
    assert status_of(url, "wrong") in (401, 403)

    line = until(lambda: next(iter(site.run("logs", "herd", "--replica", "0").stdout.splitlines()), ""), "its line")
    assert json.loads(line) == [[EVIL, EVIL, EVIL], EVIL]
    assert not TRACE.exists()

    jobs = slurm.run("squeue", "-h", "-r", "-o", "%A").stdout.split()
    shown += [slurm.run("scontrol", "show", "job", "-o").stdout, *(batch_script(slurm, job) for job in jobs)]
    shown += [site.run(*words).stdout for words in (
        ("status", "herd", "--json"), ("swarm", "describe", "herd", "-o", "json"), ("explain", "herd", "--json"),
        ("logs", "herd", "--task", "router/0"), ("events", "herd", "--json"), ("host", "logs"),
    )]  # fmt: skip
    assert len(jobs) >= 2
    assert all(KEY not in text for text in shown)
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes()
        except OSError:
            continue
        assert KEY.encode() not in words, words
    holding = [file for file in site.root.rglob("*") if file.is_file() and KEY.encode() in content(file)]
    assert holding
    assert all("secrets" in file.parts and file.stat().st_mode & 0o077 == 0 for file in holding), holding
    site.run("down", "herd")
    assert not TRACE.exists()


def content(file: Path) -> bytes:
    """What is in it; nothing when it was replaced meanwhile, as reports of living tasks are."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def batch_script(slurm: SlurmBed, job: str) -> str:
    """What Slurm keeps of a job's script."""
    return slurm.run("scontrol", "write", "batch_script", job, "-", check=False).stdout
