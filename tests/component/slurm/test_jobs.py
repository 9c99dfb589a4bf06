"""`remuda job submit` and `submit-script` for a swarm on a real Slurm: the driver is a job beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import PYTHON, until
from tests.faults.slurm_jobs import Jobs

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

ROWS = 60
KEY = "sk-a-key-that-nobody-sees"


@pytest.fixture(scope="module")
def jobs(shared_home: Home, slurm_session: SlurmBed) -> Jobs:
    """A swarm with a key, and an input."""
    slurm_session.restore(240)
    made = Jobs(shared_home, slurm_session)
    shared_home.env["HERD_KEY"] = KEY
    made.up(api_key={"env": "HERD_KEY"})
    del shared_home.env["HERD_KEY"]
    made.write(ROWS)
    return made


def test_a_job_in_the_foreground_runs_beside_the_swarm(jobs: Jobs) -> None:
    job = jobs.new("first")
    done = jobs.home.run(*jobs.words(job, "--cpus", "1", "--mem", "400MB", "--time", "30"))
    assert done.stdout.strip() == str(jobs.home.root / f"{job}.jsonl")
    assert "Ctrl-C leaves it running" in done.stderr
    assert f"{ROWS} rows" in done.stderr
    jobs.check(job, ROWS)
    state = jobs.state(job)
    assert (state["state"], state["backend"], state["summary"]["rows"]) == ("DONE", "slurm", ROWS)
    assert state["node"] in jobs.bed.node_names
    assert f"{ROWS} rows" in jobs.home.run("job", "logs", job).stdout
    text = jobs.home.run("job", "status", job).stdout
    assert f"{job} (batch, on slurm)" in text
    assert state["native"] in text
    assert job in jobs.home.run("job", "list").stdout
    fields = "Partition,Account,QOS,Timelimit"
    asked = ("sacct", "-X", "-n", "-P", "-j", state["native"], "-o", fields)
    # The accounting daemon writes a row later than it has begun it.
    until(
        lambda: jobs.bed.run(*asked).stdout.strip() == "gpu-a100|inference|normal|00:30:00",
        "what was asked for is in the accounting",
    )
    again = jobs.home.run(*jobs.words(jobs.new("second"), "-o", f"{job}.jsonl"))
    assert "nothing left to do" in again.stderr


def test_python_sends_it_to_where_the_command_would(jobs: Jobs) -> None:
    """A job by name runs beside the swarm; what exists only in this process, and what is asked for here, here."""
    name = jobs.new("api")
    script = jobs.home.root / f"{name}.py"
    script.write_text(
        "from remuda import Swarm\n"
        f"swarm = Swarm.from_state({jobs.name!r})\n"
        f"print(swarm.submit_job('completion', 'in.jsonl', '{name}-there.jsonl').rows)\n"
        f"print(swarm.submit_job('completion', 'in.jsonl', '{name}-here.jsonl', local=True).rows)\n"
    )
    done = subprocess.run([PYTHON, str(script)], cwd=jobs.home.root, env=jobs.home.env, capture_output=True, text=True,
                          timeout=480, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(ROWS), str(ROWS)]
    found = {Path(item["output"]).stem: item for item in json.loads(jobs.home.run("job", "list", "--json").stdout)}
    there, here = found[f"{name}-there"], found[f"{name}-here"]
    assert (there["state"], there["backend"], there["node"] in jobs.bed.node_names) == ("DONE", "slurm", True)
    assert (here["state"], here["backend"], here["node"]) == ("DONE", "", "")


def test_no_key_is_anywhere_but_in_its_file(jobs: Jobs) -> None:
    """The key reaches the driver by a file that only its owner reads."""
    jobs.home.run(*jobs.words(jobs.new("secret")))
    found = []
    for folder, _, names in os.walk(jobs.home.root):
        for path in (Path(folder, name) for name in names):
            # What is written anew, or has done its duty, may go while it is looked at.
            with suppress(FileNotFoundError):
                if path.is_file() and KEY in path.read_text(errors="replace"):
                    found.append((path, path.stat().st_mode & 0o777))
    assert found, "it has to be somewhere"
    assert all(mode == 0o600 for _, mode in found), found
    assert all("secrets" in path.parts for path, _ in found), found


def test_ctrl_c_leaves_it_running_and_it_is_found_again(jobs: Jobs) -> None:
    job = jobs.new("left")
    jobs.slow(5.0)
    try:
        terminal = jobs.home.start(*jobs.words(job, "--max-concurrency", "4"))
        jobs.wait_rows(job, 4)
        terminal.send_signal(signal.SIGINT)
        _, err = terminal.communicate(timeout=180)
    finally:
        jobs.fast()
    assert terminal.returncode == 130, err
    assert f"remuda job wait {job}" in err
    assert f"remuda job cancel {job}" in err
    followed = jobs.home.run("job", "logs", job, "-f").stdout
    assert f"{ROWS} rows" in followed
    jobs.wait_end(job)
    jobs.check(job, ROWS)


def test_cancelled_while_it_runs_and_resumed(jobs: Jobs) -> None:
    job = jobs.new("stopped")
    jobs.slow(5.0)
    try:
        assert jobs.home.run(*jobs.words(job, "--detach", "--max-concurrency", "4")).stdout.strip() == job
        jobs.wait_rows(job, 4)
        jobs.home.run("job", "cancel", job)
        assert jobs.state(job)["state"] == "STOPPED"
        jobs.wait_gone(job)
    finally:
        jobs.fast()
    done = jobs.home.run(*jobs.words(jobs.new("resumed"), "-o", f"{job}.jsonl"))
    assert "were done before" in done.stderr
    jobs.check(job, ROWS)


def test_cancelled_while_it_is_pending(jobs: Jobs) -> None:
    """Nothing else fits on its partition: it waits, says why, and leaves the queue when it is told to."""
    job = jobs.new("queued")
    words = ["--parsable", "-p", "gpu-a100", "-N2", "-n2", "-c13", "-o", "/dev/null", "--wrap", "sleep 3600"]
    wall = jobs.bed.run("sbatch", *words)
    try:
        # What the test before has left may still be ending on the nodes.
        jobs.bed.wait_job(int(wall.stdout), "RUNNING", limit_s=180)
        jobs.home.run(*jobs.words(job, "--detach", "--cpus", "12"))
        jobs.wait(
            lambda: jobs.state(job)["state"] == "WAITING" and bool(jobs.state(job)["reason"]), "why it does not start"
        )
        jobs.home.run("job", "cancel", job)
        assert jobs.state(job)["state"] == "STOPPED"
        jobs.wait_gone(job)
    finally:
        jobs.bed.run("scancel", wall.stdout.strip())


def test_odd_names_and_relative_paths(jobs: Jobs) -> None:
    folder = jobs.home.root / f"my $(data) 'set' {jobs.new('odd')}"
    folder.mkdir()
    (folder / "rows in.jsonl").write_text((jobs.home.root / "in.jsonl").read_text())
    relative = f"{folder.name}/out put.jsonl"
    jobs.home.run("job", "submit", "completion", "-n", "herd", "-i", f"{folder.name}/rows in.jsonl", "-o", relative)
    assert len((folder / "out put.jsonl").read_text().splitlines()) == ROWS


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-i", "nowhere.jsonl"], "nowhere.jsonl"),
        (["-i", "in.jsonl", "--time", "soon"], "--time: 'soon' is not a time"),
        (["-i", "in.jsonl", "--mem", "much"], "--mem: 'much' is not a size"),
        (["-i", "in.jsonl", "--input-column", "none"], "none"),
    ],
)
def test_what_cannot_be_is_one_sentence(jobs: Jobs, words: list[str], sentence: str) -> None:
    """The last one is found by the driver, and told here as what it is there."""
    done = jobs.home.run("job", "submit", "completion", "-n", "herd", *words, "-o", "x.jsonl", check=False)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_here_if_asked_for(jobs: Jobs) -> None:
    job = jobs.new("here")
    done = jobs.home.run(*jobs.words(job, "--local", "--cpus", "1"))
    assert "--cpus has no effect here" in done.stderr
    jobs.check(job, ROWS)
    assert jobs.state(job)["backend"] == ""


SCRIPT = """
import json, os, sys, openai
said = [{'role': 'user', 'content': 'x'}]
answer = openai.OpenAI().chat.completions.create(model=os.environ['MODEL'], messages=said)
file = json.load(open(os.environ['REMUDA_ENDPOINT_FILE']))
print('ANSWER', answer.choices[0].message.content, sys.argv[1:], os.environ['SLURM_JOB_ID'])
print('SAME', os.environ['ENDPOINT'] == file['router'], os.environ['OPENAI_BASE_URL'])
sys.exit(int(sys.argv[-1]))
"""


def test_a_script_finds_the_endpoint_on_the_cluster(jobs: Jobs) -> None:
    (jobs.home.root / "ask it.py").write_text(SCRIPT)
    good = jobs.home.run("job", "submit-script", "--name", "herd", "ask it.py", "--", "--verbose", "0")
    assert "ANSWER" in good.stdout
    assert "['--verbose', '0']" in good.stdout
    assert "SAME True http://" in good.stdout
    job = jobs.new("sad")
    bad = jobs.home.run("job", "submit-script", "--name", "herd", "--job-id", job, "ask it.py", "--", "7", check=False)
    assert bad.returncode == 1
    assert f"{job} is FAILED" in bad.stderr
    outcome = jobs.home.paths.jobs / job / "outcome.json"
    jobs.wait(outcome.exists, "its end is in its folder")
    assert json.loads(outcome.read_text())["state"] == "FAILED"
