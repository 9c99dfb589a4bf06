"""How a child ends, and what the program makes of it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.node.conftest import ONCE, PATIENCE_S, PYTHON, QUICK, SOON, alive, until

from remuda.wire import exit as codes
from remuda.wire.child import HealthProbe, RestartRule

if TYPE_CHECKING:
    from tests.component.node.conftest import Allocation


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


@pytest.mark.parametrize(
    ("script", "code", "child_code", "child_signal"),
    [("exit 0", 0, 0, 0), ("exit 7", 7, 7, 0), ("kill -9 $$", 137, None, 9), ("kill -15 $$", 143, None, 15)],
)
def test_a_command_ends(
    allocation: Allocation, script: str, code: int, child_code: int | None, child_signal: int
) -> None:
    allocation.start(sh(f"echo out; echo err >&2; {script}"))
    assert allocation.code() == code
    record = allocation.record()
    assert (record.child_exit_code, record.child_signal, record.token) == (child_code, child_signal, "w-replica-0-a1")
    assert record.log_tail == "out\nerr\n"
    assert allocation.log() == "out\nerr\n"
    assert allocation.states() == ["ready", "exited"]


WAITS = """
import signal, sys, time
def take(number, frame):
    print(signal.Signals(number).name)
    if number == signal.SIGUSR2 or (number == signal.SIGTERM and sys.argv[1] == "obeys"):
        sys.exit(0)
for name in ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP"):
    signal.signal(getattr(signal, name), take)
print("up")
while True:
    time.sleep(0.1)  # a pause would miss a signal that comes right before it
"""


def wait_for_signals(allocation: Allocation, manner: str, **fields: Any) -> None:
    """Start a child that prints signals as they come and ends at SIGUSR2, and at SIGTERM if it `obeys`."""
    allocation.start([sys.executable, "-S", "-c", WAITS, manner], **fields)
    until(lambda: allocation.report() is not None and "up\n" in allocation.log())


def test_it_is_started_again_and_given_up_in_the_end(allocation: Allocation) -> None:
    allocation.start(sh("echo try; exit 3"), restart=SOON)
    assert allocation.code() == codes.GAVE_UP
    assert allocation.log() == "try\n" * 3
    assert allocation.record().child_exit_code == 3
    # With what it said last, which is where programs tell what was wrong.
    assert allocation.record().reason == "exit code 3: try; its 2 restarts are used up"
    assert allocation.states() == ["ready", "backoff"] * 2 + ["ready", "exited"]
    assert [event.seq for event in allocation.events()] == sorted({event.seq for event in allocation.events()})


def test_it_recovers(allocation: Allocation, tmp_path: Path) -> None:
    script = f"test -e {tmp_path}/second && exit 0; touch {tmp_path}/second; exit 1"
    allocation.start(sh(script), restart=SOON)
    assert allocation.code() == 0
    report = allocation.report()
    assert report is not None
    assert report.restarts == 1


def test_a_server_that_dies_at_start(allocation: Allocation) -> None:
    allocation.start(sh("echo cannot load the model; exit 1"), probe=QUICK, restart=SOON)
    assert allocation.code() == codes.GAVE_UP
    assert allocation.record().log_tail.endswith("cannot load the model\n")
    assert "ready" not in allocation.states()


@pytest.mark.parametrize(
    ("argv", "cwd", "word"),
    [
        (["/does/not/exist"], "", "No such file"),
        (["/etc/passwd"], "", "Permission denied"),
        (["/bin/true"], "/does/not/exist", "/does/not/exist"),
        (["nul\0"], "", "null"),
    ],
)
def test_what_cannot_be_started(allocation: Allocation, argv: list[str], cwd: str, word: str) -> None:
    allocation.start(argv, cwd=cwd, restart=SOON)
    assert allocation.code() == codes.CANNOT_START
    assert word in allocation.record().reason
    assert allocation.states() == ["exited"]


def test_a_missing_secret(allocation: Allocation) -> None:
    allocation.start(["/bin/true"], secret_env={"KEY": {"file": "/does/not/exist"}})
    assert allocation.code() == codes.CANNOT_START
    assert "secret KEY: cannot read /does/not/exist" in allocation.record().reason


def test_stopped_on_request(allocation: Allocation) -> None:
    wait_for_signals(allocation, "obeys")
    assert allocation.stop() == codes.STOPPED
    assert allocation.log() == "up\nSIGTERM\n"
    assert allocation.record().child_exit_code == 0
    assert allocation.states() == ["ready", "stopping", "exited"]


def test_what_ignores_the_request_is_killed_after_its_grace(allocation: Allocation) -> None:
    wait_for_signals(allocation, "ignores", kill_grace_s=0.2)
    assert allocation.stop(signal.SIGINT) == codes.STOPPED
    assert allocation.record().child_signal == 9


def test_asked_twice_it_kills_at_once(allocation: Allocation) -> None:
    wait_for_signals(allocation, "ignores", kill_grace_s=1000)
    allocation.process.send_signal(signal.SIGTERM)
    allocation.state("stopping")
    assert allocation.stop() == codes.STOPPED


def test_other_signals_are_forwarded_and_hangups_are_not(allocation: Allocation) -> None:
    wait_for_signals(allocation, "ignores")
    allocation.process.send_signal(signal.SIGHUP)
    allocation.process.send_signal(signal.SIGUSR1)
    until(lambda: "SIGUSR1" in allocation.log())
    assert allocation.stop(signal.SIGUSR2) == 0
    assert allocation.log() == "up\nSIGUSR1\nSIGUSR2\n"


def test_the_request_while_waiting_for_a_restart(allocation: Allocation) -> None:
    allocation.start(sh("exit 1"), restart=RestartRule(backoff_initial_s=1000, backoff_max_s=1000))
    allocation.state("backoff")
    assert allocation.stop() == codes.STOPPED


def test_killed_without_a_word_it_takes_the_child_along(allocation: Allocation) -> None:
    allocation.start(["/bin/sleep", "1000"])
    pid = allocation.state("ready").pid
    assert alive(pid)
    allocation.process.kill()
    until(lambda: not alive(pid))


GRANDCHILDREN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
told, tell = os.pipe()
for escape in (lambda: None, os.setsid, lambda: (os.setsid(), os.fork() and os._exit(0))):
    if os.fork() == 0:
        escape()
        print("pid", os.getpid(), flush=True)
        os.write(tell, b"x")
        time.sleep(1000)
    os.read(told, 1)
print("up", flush=True)
if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
time.sleep(1000 if len(sys.argv) > 1 else 0.3)
"""


def test_nothing_of_the_child_stays_behind(allocation: Allocation) -> None:
    allocation.start([*PYTHON, "-c", GRANDCHILDREN])
    until(lambda: allocation.report() is not None and "up\n" in allocation.log())
    pids = [int(line.split()[1]) for line in allocation.log().splitlines() if line.startswith("pid")]
    assert allocation.code() == 0
    assert not any(alive(pid) for pid in pids)


def test_what_a_shell_started_gets_its_grace_too(allocation: Allocation) -> None:
    """The shell ends at once, the work under it saves first; one that left the group is told as well."""
    work = "import signal, sys, time; signal.signal(15, lambda *_: (time.sleep(0.2), print('saved'), sys.exit()));"
    work += "print('up'); [time.sleep(0.1) for _ in iter(int, 1)]"
    quoted = f'{sys.executable} -S -c "{work}"'
    allocation.start(sh(f"{quoted} & setsid {quoted} & wait"))
    until(lambda: allocation.report() is not None and allocation.log().count("up") == 2)
    assert allocation.stop() == codes.STOPPED
    assert allocation.log().count("saved") == 2
    assert allocation.record().child_signal == 15


def test_what_a_shell_left_does_not_hold_up_the_end(allocation: Allocation) -> None:
    allocation.start([*PYTHON, "-c", GRANDCHILDREN, "stays"], kill_grace_s=0.3)
    until(lambda: allocation.report() is not None and "up\n" in allocation.log())
    pids = [int(line.split()[1]) for line in allocation.log().splitlines() if line.startswith("pid")]
    assert allocation.stop() == codes.STOPPED
    assert not any(alive(pid) for pid in pids)


def test_a_bug_in_the_program_ends_it_with_its_story(allocation: Allocation) -> None:
    allocation.start(["/bin/true"], env={"NUMBER": 3})
    assert allocation.code() == codes.BROKEN
    assert "Traceback" in allocation.record().reason


def test_many_short_lines_all_arrive(allocation: Allocation) -> None:
    code = "import time\nfor n in range(2000): print('line', n, flush=True); time.sleep(0.0002)"
    allocation.start([*PYTHON, "-c", code])
    assert allocation.code() == 0
    assert allocation.log().count("\n") == 2000


def test_a_flood_of_output_is_bounded_and_the_newest_is_kept(allocation: Allocation) -> None:
    script = "i=0; while [ $i -lt 40000 ]; do echo line $i of a flood; i=$((i+1)); done"
    allocation.start(sh(script), log_max_bytes=100_000)
    assert allocation.code() == 0
    sizes = [path.stat().st_size for path in allocation.run_dir.glob("child.log*")]
    assert len(sizes) == 2
    assert sum(sizes) <= 200_000
    assert allocation.log().endswith("line 39999 of a flood\n")
    assert allocation.record().log_tail.endswith("line 39999 of a flood\n")
    assert len(allocation.record().log_tail) <= 4000


def test_the_child_reads_what_it_is_given_and_else_nothing(allocation: Allocation, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("words\n")
    allocation.start(["/bin/cat"], stdin_file=str(tmp_path / "input"))
    assert allocation.code() == 0
    assert allocation.log() == "words\n"


def test_slow_start_and_no_start(allocation: Allocation) -> None:
    probe = replace(QUICK, startup_timeout_s=0.4, path="/x")
    allocation.start(
        sh("while :; do echo loading; sleep 0.05; done"), probe=probe, restart=replace(SOON, max_restarts=1)
    )
    assert allocation.code() == codes.HUNG
    assert "not ready for" in allocation.record().reason
    assert allocation.states().count("backoff") >= 1


def test_a_start_that_hangs_is_noticed_long_before_its_time_is_over(allocation: Allocation) -> None:
    probe = HealthProbe(startup_timeout_s=1000, stall_s=0.4)
    allocation.start(sh("echo loading; exec sleep 1000"), probe=probe, restart=ONCE)
    assert allocation.code() == codes.HUNG
    assert "hangs while starting: no log line and no CPU time" in allocation.record().reason


def test_a_full_disk_is_told_where_nothing_can_be_written(allocation: Allocation) -> None:
    """Not even why: its standard error lies on that disk, too."""
    allocation.start(sh("exit 0"))
    allocation.code()
    words = shlex.join(allocation.process.args)  # type: ignore[arg-type]
    full = allocation.run_dir
    script = (
        f"mount -t tmpfs -o size=64k none {full}; cat /dev/zero > {full}/all 2>/dev/null; {words} 2> {full}/node.log"
    )
    own = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    assert subprocess.run([*own, "sh", "-c", script], timeout=PATIENCE_S, check=False).returncode == codes.NO_ROOM


def test_what_a_script_told_last_is_in_the_last_word(allocation: Allocation) -> None:
    told = json.dumps({"step": 3, "total": 3, "loss": 0.5})
    allocation.start(sh(f"echo '{told}' > {allocation.run_dir}/progress.json"), report_every_s=60.0)
    assert allocation.code() == 0
    assert allocation.record().metrics == {"progress_step": 3.0, "progress_total": 3.0, "loss": 0.5}


@pytest.mark.parametrize("around", [(), ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc")])
def test_who_is_asked_to_end_before_it_listens_ends(allocation: Allocation, around: tuple[str, ...]) -> None:
    """As the first process of a namespace it would never be told."""
    document = allocation.document(["/bin/sleep", "60"])
    text = document.read_bytes()
    document.unlink()
    os.mkfifo(document)
    process = allocation.run(document, *around, sys.executable)

    def reads() -> int:
        with contextlib.suppress(OSError):
            return os.open(document, os.O_WRONLY | os.O_NONBLOCK)
        return 0

    told = until(reads, "it reads its document")
    inner = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(inner[0]) if around else process.pid, signal.SIGTERM)
    os.write(told, text)
    os.close(told)
    assert process.wait(PATIENCE_S) == codes.STOPPED
