"""The gate over small suites that fail in each way: real runs of pytest, in the open and in namespaces."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import until
from tests.gate import closed

ROOT = Path(__file__).parents[2]
FLAKY = """
    import pathlib
    seen = pathlib.Path("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError("not within 3 s: it serves")
"""
SLEEP = "import subprocess\n    subprocess.Popen(['sleep', '4321'], start_new_session=True)"


class Suite:
    """A folder with tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider -p no:randomly\n")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        self.env |= {"PYTHONPATH": str(ROOT), closed.OPEN: "1"}

    def write(self, name: str = "test_it.py", head: str = "", **bodies: str) -> None:
        tests = [f"def test_{test}():\n    {body.strip()}\n" for test, body in bodies.items()]
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("\n".join([head, *tests]))

    def start(self, *flags: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.gate", *flags], cwd=self.folder, env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def run(self, *flags: str) -> tuple[int, list[str]]:
        """Exit code and lines."""
        with self.start(*flags) as process:
            out, _ = process.communicate(timeout=120)
        return process.returncode, out.splitlines()


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def closing(lines: list[str]) -> str:
    return re.sub(r" in [0-9.]+s$", "", lines[-1])


def test_all_pass(suite: Suite) -> None:
    suite.write(a="pass", b="pass")
    code, lines = suite.run()
    assert (code, closing(lines)) == (0, "2 passed"), lines


def test_what_fails_once_is_green_and_named(suite: Suite) -> None:
    suite.write(a="pass", b=FLAKY)
    code, lines = suite.run("-n", "2")
    assert (code, closing(lines)) == (0, "2 passed, 1 rerun"), lines
    assert lines[-2] == (
        "second look: test_it.py::test_b passed alone; at first: AssertionError: not within 3 s: it serves"
    )


def test_what_always_fails_is_red(suite: Suite) -> None:
    suite.write(a="pass", b="assert 1 == 2")
    code, lines = suite.run()
    assert (code, closing(lines)) == (1, "1 failed, 1 passed"), lines
    assert lines[-2] == "second look: test_it.py::test_b failed again; at first: assert 1 == 2"


def test_six_that_fail_once_are_red(suite: Suite) -> None:
    suite.write(a="pass", **{f"b{n}": FLAKY.replace("seen", f"seen{n}") for n in range(6)})
    code, lines = suite.run()
    assert (code, closing(lines)) == (1, "6 failed, 1 passed"), lines
    assert lines[-2] == "red at once: 6 tests failed; at most 5 get a second look"


def test_five_that_fail_once_are_green(suite: Suite) -> None:
    suite.write(a="pass", **{f"b{n}": FLAKY.replace("seen", f"seen{n}") for n in range(5)})
    code, lines = suite.run()
    assert (code, closing(lines)) == (0, "6 passed, 5 rerun"), lines


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fixture_that_fails_once_is_green(suite: Suite, when: str) -> None:
    body = {"before": f"{FLAKY}\n    yield", "after": f"yield\n    {FLAKY.strip()}"}[when]
    suite.write(head=f"import pytest\n@pytest.fixture(autouse=True)\ndef thing():\n    {body.strip()}\n", a="pass")
    code, lines = suite.run()
    assert (code, closing(lines)) == (0, "1 passed, 1 rerun"), lines


def test_a_timeout_has_a_second_look(suite: Suite) -> None:
    suite.write(a=FLAKY.replace('raise AssertionError("not within 3 s: it serves")', "import time; time.sleep(60)"))
    code, lines = suite.run("--timeout", "1")
    assert (code, closing(lines)) == (0, "1 passed, 1 rerun"), lines
    assert "at first: Failed: Timeout" in lines[-2]


def test_a_worker_that_dies_is_red(suite: Suite) -> None:
    suite.write(a="pass", b="import os, pathlib\n    seen = pathlib.Path('seen')\n    if not seen.exists():\n"
                "        seen.touch()\n        os._exit(3)")  # fmt: skip
    code, lines = suite.run("-n", "2")
    assert code == 1, lines
    assert any(line.startswith("red at once: ") and "test_b" in line and "crashed" in line for line in lines), lines


def test_pytest_that_dies_is_red(suite: Suite) -> None:
    suite.write(a="import os; os._exit(0)")
    code, lines = suite.run()
    assert (code, lines[-2]) == (1, "red at once: pytest ended before its report was written"), lines


def test_a_file_that_cannot_be_collected_is_red(suite: Suite) -> None:
    suite.write(a="pass")
    suite.write("test_other.py", head="import nothing_of_this_name")
    code, lines = suite.run("-n", "2")
    assert code == 1, lines
    assert any(line.startswith("red at once: test_other.py could not be collected: ") for line in lines), lines


@pytest.mark.parametrize("error", ["no job was sent twice", "a row was lost"])
def test_what_says_that_something_was_lost_is_red(suite: Suite, error: str) -> None:
    suite.write(a="pass", b=FLAKY.replace("not within 3 s: it serves", error))
    code, lines = suite.run()
    assert code == 1, lines
    assert lines[-2] == f"red at once: test_it.py::test_b: something was lost or doubled: AssertionError: {error}"


def test_a_rule_of_the_house_is_red(suite: Suite) -> None:
    suite.write("tests/house/test_it.py", a=FLAKY)
    code, lines = suite.run()
    assert code == 1, lines
    assert "it depends on nothing but the files of the project" in lines[-2]


def test_no_test_at_all_is_red(suite: Suite) -> None:
    code, lines = suite.run()
    assert (code, closing(lines)) == (1, "no tests ran"), lines


# What is left


@pytest.fixture
def quick_end(monkeypatch: pytest.MonkeyPatch, suite: Suite) -> None:
    suite.env["PYTEST_GATE_WAIT"] = "0.5"


@pytest.fixture
def inside(suite: Suite) -> Suite:
    """The suite in namespaces."""
    del suite.env[closed.OPEN]
    return suite


def sleepers() -> list[int]:
    """Living processes of `SLEEP`, also those in namespaces below."""
    return [pid for pid in closed._pids() if closed._words(pid) == "sleep 4321" and closed.identity(pid)]


def left_behind(folder: Path, *more: str, note: str = "") -> str:
    """The pattern of the line about a sleeper of `test_a`."""
    told = [f"in {folder}{note}", "for AGE s", "PYTEST_CURRENT_TEST=test_it.py::test_a (call)", *more]
    return "left behind: process [0-9]+: sleep 4321, " + re.escape(", ".join(told)).replace("AGE", "[0-9]{1,2}")


@pytest.mark.usefixtures("quick_end")
def test_a_process_that_is_left_is_named_and_red(suite: Suite) -> None:
    suite.write(a=SLEEP)
    code, lines = suite.run()
    try:
        assert (code, closing(lines)) == (1, "1 passed"), lines
        assert re.fullmatch(left_behind(suite.folder), lines[-2]), lines
    finally:
        for pid in sleepers():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("quick_end")
def test_of_what_is_left_its_task_and_a_folder_that_is_gone_are_told(inside: Suite) -> None:
    task = {"REMUDA_TASK": "replica-0", "REMUDA_TOKEN": "w.replica.0.1.u"}
    inside.write(
        a="import os, subprocess; os.mkdir('its')\n"
        f"    given = dict(os.environ, **{task})\n"
        "    subprocess.Popen(['sleep', '4321'], cwd='its', env=given, start_new_session=True)\n"
        "    os.rmdir('its')"
    )
    code, lines = inside.run()
    told = left_behind(inside.folder / "its", *map("=".join, task.items()), note=" (deleted)")
    assert code == 1, lines
    assert re.fullmatch(told, lines[-2]), lines


def test_files_in_the_own_temporary_folder_are_named_and_green(inside: Suite) -> None:
    inside.write(a="open('/tmp/left', 'w')")
    code, lines = inside.run()
    assert (code, closing(lines)) == (0, "1 passed"), lines
    assert lines[-2] == "left in the run's own temporary folder: /tmp/left"


@pytest.mark.parametrize("where", ["suite", "inside"])
def test_what_a_killed_worker_keeps_is_removed(where: str, request: pytest.FixtureRequest) -> None:
    one: Suite = request.getfixturevalue(where)
    one.write(
        head="import atexit, os, pathlib, signal, tests.conftest\n"
        "from tests.warm.forked import PARENT\n"
        "# What pytest-xdist does to a worker that has not ended ten seconds after the last test.\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGKILL))",
        a="made = [PARENT.socket, pathlib.Path(os.environ['HOME'])]\n"
        "    pathlib.Path('made').write_text('\\n'.join(map(str, made)))",
    )
    code, lines = one.run("-n", "1")
    assert (code, closing(lines)) == (0, "1 passed"), lines
    made = [Path(line) for line in (one.folder / "made").read_text().splitlines()]
    assert len(made) == 2
    assert not [path for path in made if path.exists()]
    assert {path.relative_to("/tmp").parts[0][:2] for path in made} == {"rg"}


@pytest.mark.usefixtures("quick_end")
def test_inside_nothing_is_left_at_all(inside: Suite) -> None:
    inside.write(a=f"{SLEEP}\n    open('/tmp/left', 'w'); open('/dev/shm/left', 'w')")
    before = {*Path("/tmp").iterdir()}
    code, lines = inside.run()
    assert code == 1, lines
    assert lines[-4:-2] == [
        "left in the run's own temporary folder: /tmp/left", "left in the run's own temporary folder: /dev/shm/left",
    ]  # fmt: skip
    assert re.fullmatch(left_behind(inside.folder), lines[-2]), lines
    assert sleepers() == []
    assert not Path("/tmp/left").exists()
    assert not Path("/dev/shm/left").exists()
    assert [path for path in {*Path("/tmp").iterdir()} - before if path.name.startswith("remuda-tests-")] == []


def test_inside_nobody_else_is_seen(inside: Suite) -> None:
    inside.write(
        a="import os\n    assert os.getpid() < 40\n    assert len([n for n in os.listdir('/proc') if n.isdigit()]) < 5",
        b="import os\n    assert os.listdir('/sys/class/net') == ['lo']",
        c="import socket\n    one = socket.create_server(('127.0.0.1', 0))\n"
        "    socket.create_connection(one.getsockname(), 5)",
        d="import pathlib\n    assert pathlib.Path('test_it.py').exists()\n"
        "    assert not list(pathlib.Path('/dev/shm').iterdir())",
    )
    code, lines = inside.run()
    assert (code, closing(lines)) == (0, "4 passed"), lines


def test_inside_all_ends_with_the_gate(inside: Suite) -> None:
    inside.write(a=f"{SLEEP}\n    open('begun', 'w'); import time; time.sleep(99)")
    process = inside.start()
    try:
        until((inside.folder / "begun").exists, "the test has begun")
        assert sleepers()
        process.kill()
        process.wait()
        until(lambda: not sleepers(), "all have ended", 20)
    finally:
        process.kill()
        process.communicate()
    inside.write(a="pass")
    assert inside.run()[0] == 0


def test_what_an_interrupted_run_left_in_the_open_is_ended(suite: Suite) -> None:
    suite.write(a=f"{SLEEP}\n    open('begun', 'w'); import time; time.sleep(99)")
    process = suite.start()
    until((suite.folder / "begun").exists, "the test has begun")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert sleepers(), "it has a session of its own"
    suite.write(a="pass")
    code, lines = suite.run()
    assert code == 0, lines
    assert any(re.fullmatch(r"ended, of an interrupted run: [0-9]+ sleep 4321", line) for line in lines), lines
    until(lambda: not sleepers(), "it has ended", 20)


def test_ctrl_c_is_red_and_says_how_far_it_came(suite: Suite) -> None:
    suite.write(a="pass", b="open('begun', 'w'); import time; time.sleep(99)")
    process = suite.start()
    until((suite.folder / "begun").exists, "the second test has begun")
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "red at once: pytest ended with exit code 2" in out
    assert closing(out.splitlines()) == "1 passed"


# Where the time went

BUSY = """
import os, signal, subprocess, sys, time
from tests.gate.record import counted
SPIN = "import time\\nwhile time.process_time() < 0.5: pass\\nprint(flush=True)\\ntime.sleep(int(input()))"

def spinning(*words):
    words = [*words, sys.executable, "-c", SPIN]
    one = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    one.told = one.stdout.readline()
    return one
"""


@pytest.mark.parametrize("flags", [(), ("-n", "1")], ids=["one process", "a worker"])
def test_the_cpu_of_each_file_is_recorded(suite: Suite, flags: tuple[str, ...]) -> None:
    """Half a second each: of a test itself, of a child that ended, of one that lives on, and of a process of nobody."""
    suite.write(
        "test_busy.py",
        head=BUSY,
        itself="begin = time.process_time()\n    while time.process_time() < begin + 0.5: pass",
        ended="spinning().communicate('0')",
        living="global living; living = spinning()",
        nobody="one = spinning('sh', '-c', 'exec 3<&0; \"$@\" <&3 & echo $!', 'sh')\n"
        "    one.stdout.readline(); os.kill(counted(int(one.told)), signal.SIGKILL)",
        last="living.communicate('0')",
    )
    suite.write("test_idle.py", a="pass")
    record = suite.folder / "record.json"
    suite.env["PYTEST_GATE_RECORD"] = str(record)
    words = ["-m", "pytest", "-q", "-p", "tests.gate.record", *flags]
    subprocess.run([sys.executable, *words], cwd=suite.folder, env=suite.env, check=True, capture_output=True)
    used = json.loads(record.read_text())["cpu"]
    assert 2.0 <= used["test_busy.py"] < 3.0, used
    assert used["test_idle.py"] < 0.3, used
