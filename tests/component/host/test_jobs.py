"""Batch jobs and scripts against a swarm: foreground, detached, killed, cancelled; and the Python API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import PYTHON, Home, until

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 60
MANY = 600
"""Of a job that is to be stopped: minutes where the engine is slow."""


@pytest.fixture(scope="module")
def herd(shared_home: Home) -> Home:
    """A swarm of two replicas, and a file of prompts."""
    still = {"http_timeout": 60, "unhealthy_restart_after": 600}  # only what a test kills begins again
    shared_home.run("up", "-c", str(shared_home.swarm(watchdog=still)))
    prompts(shared_home.root / "in.parquet", ROWS)
    return shared_home


def prompts(path: Path, rows: int) -> None:
    table = pa.table({"id": range(rows), "prompt": [f"row {number}" for number in range(rows)]})
    pq.write_table(table, path)


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def state(home: Home, job: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(home.run("job", "status", job, "--json").stdout)
    return found


def done_rows(home: Home, job: str) -> int:
    """Rows that a job has finished; 0 before it is known."""
    return int(state(home, job)["progress"].get("done", 0)) if (home.paths.jobs / job / "job.json").exists() else 0


def submit(home: Home, output: str, *more: str, check: bool = True) -> Any:
    return home.run(
        "job", "submit", "completion", "--name", "herd", "--input", "in.parquet", "--output", output, *more, check=check
    )  # fmt: skip


def test_a_job_in_the_foreground(herd: Home) -> None:
    done = submit(herd, "a.parquet", "--job-id", "first")
    assert done.stdout.strip() == str(herd.root / "a.parquet")
    assert "60 rows" in done.stderr
    rows = rows_of(herd.root / "a.parquet")
    assert [row["id"] for row in rows] == list(range(ROWS))
    assert all(row["error"] is None and row["completion_tokens"] > 0 for row in rows)
    assert "first" in herd.run("job", "list").stdout
    assert state(herd, "first")["state"] == "DONE"


def test_typed_again_it_asks_nothing(herd: Home) -> None:
    done = submit(herd, "a.parquet")
    assert "nothing left to do" in done.stderr


def test_changed_settings_do_not_return_old_answers(herd: Home) -> None:
    done = submit(herd, "a.parquet", "--job-kwargs", '{"temperature": 0.7}', check=False)
    assert done.returncode == 4
    assert "temperature" in done.stderr
    assert "--no-resume" in done.stderr
    submit(herd, "a.parquet", "--job-kwargs", '{"temperature": 0.7}', "--no-resume")


def test_a_detached_job_is_found_again(herd: Home) -> None:
    name = submit(herd, "b.parquet", "--detach", "--job-id", "later").stdout.strip()
    assert name == "later"
    waited = json.loads(herd.run("job", "wait", "later", "--json").stdout)
    assert (waited["state"], waited["detached"], waited["summary"]["rows"]) == ("DONE", True, ROWS)
    assert len(rows_of(herd.root / "b.parquet")) == ROWS
    assert "60 rows" in herd.run("job", "logs", "later").stdout
    assert "later" in herd.run("job", "list").stdout
    again = submit(herd, "b.parquet", "--detach", "--job-id", "later", check=False)
    assert again.returncode == 4


def test_a_detached_job_survives_its_driver_and_the_host(herd: Home) -> None:
    herd.behave("slow", slow_s=1.0)
    try:
        prompts(herd.root / "in.parquet", 1000)  # many: it must not be over before its driver is killed
        submit(herd, "c.parquet", "--detach", "--job-id", "tough", "--max-concurrency", "10")
        until(lambda: done_rows(herd, "tough") > 10, "some rows")
        driver = until(lambda: herd.task("tough", "driver/0")["pid"], "a driver")
        os.kill(driver, signal.SIGKILL)
        until(lambda: herd.view("tough")["tasks"][0]["pid"] not in (0, driver), "another driver")
        herd.kill_host()
        herd.behave("ok")
        waited = json.loads(herd.run("job", "wait", "tough", "--json", timeout=300).stdout)
    finally:
        herd.behave("ok")
        prompts(herd.root / "in.parquet", ROWS)
    assert waited["state"] == "DONE"
    rows = rows_of(herd.root / "c.parquet")
    assert [row["id"] for row in rows] == list(range(1000))
    assert all(row["error"] is None for row in rows)
    until(lambda: herd.client.is_up() or herd.run("host", "start"), "a host")


def test_a_driver_that_gets_on_is_never_given_up(herd: Home) -> None:
    """It would be after five failures; each of these has done some rows more than the one before."""
    herd.behave("slow", slow_s=0.2)
    try:
        prompts(herd.root / "in.parquet", 2000)
        submit(herd, "k.parquet", "--detach", "--job-id", "hunted", "--max-concurrency", "2")
        driver = 0
        for attempt in range(1, 8):
            before = done_rows(herd, "hunted")
            until(lambda: herd.task("hunted", "driver/0")["attempt"] == attempt, "an attempt")  # noqa: B023
            driver = until(lambda: herd.task("hunted", "driver/0")["pid"], "a driver")
            until(lambda: done_rows(herd, "hunted") > before, "some rows more")  # noqa: B023
            os.kill(driver, signal.SIGKILL)
        until(lambda: herd.task("hunted", "driver/0")["attempt"] == 8, "the next attempt")
        herd.behave("ok")
        assert json.loads(herd.run("job", "wait", "hunted", "--json", timeout=300).stdout)["state"] == "DONE"
    finally:
        herd.behave("ok")
        prompts(herd.root / "in.parquet", ROWS)
    rows = rows_of(herd.root / "k.parquet")
    assert [row["id"] for row in rows] == list(range(2000))
    assert all(row["error"] is None for row in rows)


def test_replicas_and_router_die_under_a_job(herd: Home) -> None:
    herd.behave("slow", slow_s=1.0)
    prompts(herd.root / "in.parquet", 1500)
    job = herd.start("job", "submit", "completion", "--name", "herd", "--input", "in.parquet", "--output", "d.parquet",
                     "--max-concurrency", "16", "--job-id", "stormy")  # fmt: skip
    try:
        for task in ("replica/0", "router/0", "replica/1"):
            before = done_rows(herd, "stormy") if task != "replica/0" else 0
            until(lambda: done_rows(herd, "stormy") > before + 20, "rows")  # noqa: B023
            os.kill(until(lambda: herd.task("herd", task)["pid"], "it runs"), signal.SIGKILL)  # noqa: B023
        herd.behave("ok")
        _, err = job.communicate(timeout=300)
    finally:
        herd.behave("ok")
        prompts(herd.root / "in.parquet", ROWS)
        job.kill()
        job.communicate()
    rows = rows_of(herd.root / "d.parquet")
    assert [row["id"] for row in rows] == list(range(1500))
    assert {row["error"] for row in rows} == {None}
    assert job.returncode == 0, err
    until(lambda: herd.view("herd")["phase"] == "RUNNING", "well again")


def test_cancel_and_resume(herd: Home) -> None:
    herd.behave("slow", slow_s=2.0)
    try:
        prompts(herd.root / "in.parquet", MANY)
        submit(herd, "e.parquet", "--detach", "--job-id", "stopped", "--max-concurrency", "4")
        until(lambda: done_rows(herd, "stopped") > 4, "some rows")
        herd.run("job", "cancel", "stopped")
        assert state(herd, "stopped")["state"] == "STOPPED"
        assert herd.run("job", "cancel", "stopped", check=False).returncode == 4
        until(lambda: herd.view("stopped")["phase"] == "DOWN", "its driver has ended")
    finally:
        herd.behave("ok")
    done = submit(herd, "e.parquet", "--max-concurrency", "4")
    assert "were done before" in done.stderr
    prompts(herd.root / "in.parquet", ROWS)
    assert len(rows_of(herd.root / "e.parquet")) == MANY


def test_ctrl_c_says_how_to_go_on(herd: Home) -> None:
    herd.behave("slow", slow_s=2.0)
    try:
        prompts(herd.root / "in.parquet", MANY)
        job = herd.start("job", "submit", "completion", "--name", "herd", "-i", "in.parquet", "-o", "f.parquet",
                         "--max-concurrency", "4", "--job-id", "brief")  # fmt: skip
        until(lambda: done_rows(herd, "brief") > 4, "rows")
        job.send_signal(signal.SIGINT)
        _, err = job.communicate(timeout=180)
    finally:
        herd.behave("ok")
        prompts(herd.root / "in.parquet", ROWS)
    assert job.returncode == 130
    assert "type the same command again" in err
    assert state(herd, "brief")["state"] == "STOPPED"


def test_rows_with_errors_are_kept(herd: Home) -> None:
    pq.write_table(pa.table({"prompt": ["one", None, "three"]}), herd.root / "gaps.parquet")
    done = herd.run("job", "submit", "completion", "-n", "herd", "-i", "gaps.parquet", "-o", "g.parquet", check=False)
    assert done.returncode == 1
    assert "1 row carries an error" in done.stderr
    rows = rows_of(herd.root / "g.parquet")
    assert [row["error"] is None for row in rows] == [True, False, True]


def test_a_script_finds_the_endpoint(herd: Home) -> None:
    script = herd.root / "ask.py"
    script.write_text(
        "import os, sys, openai\n"
        "client = openai.OpenAI()\n"
        "said = [{'role': 'user', 'content': 'x'}]\n"
        "answer = client.chat.completions.create(model=os.environ['MODEL'], messages=said)\n"
        "print('ANSWER', answer.choices[0].message.content, sys.argv[1:])\n"
        "sys.exit(int(sys.argv[-1]))\n"
    )
    good = herd.run("job", "submit-script", "--name", "herd", "ask.py", "--", "--verbose", "0")
    assert "ANSWER" in good.stdout
    assert "['--verbose', '0']" in good.stdout
    bad = herd.run("job", "submit-script", "--name", "herd", "--job-id", "sad", "ask.py", "--", "7", check=False)
    assert bad.returncode == 1
    assert "sad is FAILED" in bad.stderr
    assert "7" in bad.stderr


def test_any_endpoint_will_do(herd: Home) -> None:
    endpoint = herd.view("herd")["endpoint"]
    herd.run("job", "submit", "--endpoint", endpoint + "/v1", "--model", "herd-1", "-i", "in.parquet", "-o", "h.jsonl",
             "--input-column", "prompt")  # fmt: skip
    assert len((herd.root / "h.jsonl").read_text().splitlines()) == ROWS


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ([], 2, "give one of --name SWARM, --config FILE or --endpoint URL"),
        (["--name", "hird"], 3, "nothing is called 'hird'"),
        (["--endpoint", "localhost:1"], 2, "'localhost:1' is not a URL"),
        (["--name", "herd", "--data-backend", "ray"], 2, "'ray' is not available yet"),
        (["--name", "herd", "--job-kwargs", "{"], 2, "must be JSON"),
        (["--endpoint", "http://127.0.0.1:9", "--model", "m"], 5, "127.0.0.1:9"),
    ],
)
def test_wrong_commands_are_one_clear_sentence(herd: Home, arguments: list[str], code: int, sentence: str) -> None:
    done = herd.run("job", "submit", *arguments, "-i", "in.parquet", "-o", "x.parquet", check=False)
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_swarm_for_one_job(herd: Home) -> None:
    path = herd.swarm("brief", replicas=1)
    herd.run("job", "submit", "completion", "--config", str(path), "-i", "in.parquet", "-o", "i.parquet")
    assert len(rows_of(herd.root / "i.parquet")) == ROWS
    assert herd.view("brief")["phase"] == "DOWN"


def test_the_python_api(herd: Home) -> None:
    script = herd.root / "api.py"
    script.write_text(
        "from remuda import Swarm, SwarmJob\n"
        "class Loud(SwarmJob):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**{'input_column_name': 'prompt', **kwargs})\n"
        "        self.output_cols = ['text', 'size']\n"
        "    async def transform_items(self, items):\n"
        "        out = []\n"
        "        for item in items:\n"
        "            got = await self.client.completions.create(model=self.model, prompt=item, **self.kwargs)\n"
        "            out.append((got.choices[0].text, len(item)))\n"
        "        return out\n"
        "if __name__ == '__main__':\n"
        "    with Swarm('herd.yaml', name='api', replicas=1) as swarm:\n"
        "        job = Loud(endpoint=swarm.endpoint, model=swarm.model, max_concurrency=8, max_tokens=4)\n"
        "        print(swarm.submit_job(job, input_path='in.parquet', output_path='j.parquet').rows)\n"
        "    print(Swarm.from_state('herd').model)\n"
    )
    done = subprocess.run(
        [PYTHON, "api.py"], cwd=herd.root, env=herd.env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(ROWS), "herd-1"]
    rows = rows_of(herd.root / "j.parquet")
    assert [row["size"] for row in rows] == [len(f"row {number}") for number in range(ROWS)]
    assert herd.view("api")["phase"] == "DOWN"
