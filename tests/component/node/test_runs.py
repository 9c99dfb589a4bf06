"""Scripts that are watched: how they are started, what they say of themselves, and what ends them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.node.conftest import PATIENCE_S, PYTHON, alive, until
from tests.component.node.test_program import oldest_python

from remuda.wire import exit as codes
from remuda.wire.child import RunWatch
from remuda.wire.exit import ExitRecord
from remuda.wire.process import ProcessId, identify

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from tests.component.node.conftest import Allocation


def run(allocation: Allocation, text: str, *words: str, **fields: Any) -> subprocess.Popen[str]:
    """Start a watched script of that text; `watch` is a mapping of its fields."""
    path = allocation.home / 'my script\'s "$(name)".sh'
    path.write_text(text)
    path.chmod(0o755 if fields.pop("executable", True) else 0o644)
    watch = {"heartbeat_interval_s": 0.1, **fields.pop("watch", {})}
    return allocation.start([str(path), *words], **{"watch": RunWatch(**watch), "task": "script/0", **fields})


def errors(allocation: Allocation) -> str:
    return (allocation.run_dir / "child.err").read_text()


def node_log(allocation: Allocation) -> str:
    return (allocation.run_dir / "node.log").read_text()


# --- how it is started -----------------------------------------------------------------------------------------------


def test_it_runs_as_a_file_with_its_arguments_and_an_empty_input(allocation: Allocation) -> None:
    text = '#!/bin/sh\ncat\necho "[$1] [$2] $#"\necho wrong >&2\nread line || echo nothing to read\nexit 7\n'
    run(allocation, text, "two words", "$(touch x)")
    assert allocation.code() == 7
    assert allocation.log() == "[two words] [$(touch x)] 2\nnothing to read\n"
    assert errors(allocation) == "wrong\n"
    record = allocation.record()
    assert record.log_tail == "wrong\n"
    assert record.ran_s > 0
    assert allocation.states() == ["starting", "ready", "exited"]


@pytest.mark.parametrize(
    "text", ["#!/usr/bin/env python3\nprint('py')\n", "#! /usr/bin/env -S python3 -u\nprint('py')\n"]
)
@pytest.mark.parametrize("executable", [True, False])
def test_its_own_interpreter_line_counts(allocation: Allocation, text: str, executable: bool) -> None:
    run(allocation, text, executable=executable)
    assert allocation.code() == 0
    assert allocation.log() == "py\n"
    assert ("is not executable: started by" in node_log(allocation)) is not executable


@pytest.mark.parametrize("executable", [True, False])
def test_without_an_interpreter_line_it_is_for_the_shell(allocation: Allocation, executable: bool) -> None:
    run(allocation, "echo $0 | grep -c name", executable=executable)
    assert allocation.code() == 0
    assert allocation.log() == "1\n"
    assert "/bin/sh, which is taken where the script names none" in node_log(allocation)


def test_a_line_that_ends_as_windows_ends_lines(allocation: Allocation) -> None:
    run(allocation, "#!/bin/sh\r\necho fine #\r\n")
    assert allocation.code() == 0
    assert allocation.log() == "fine\n"


def test_an_interpreter_that_is_not_there(allocation: Allocation) -> None:
    run(allocation, "#!/no/such/shell\n")
    assert allocation.code() == codes.CANNOT_START
    assert allocation.record().reason.endswith("its interpreter /no/such/shell does not exist on this node")
    assert allocation.record().ran_s == 0


def test_it_runs_under_the_oldest_python(allocation: Allocation) -> None:
    run(
        allocation,
        "#!/bin/sh\nremuda-progress 1/2\nsleep 0.2\necho CUDA error: unspecified launch failure\n",
        python=oldest_python(),
    )
    assert allocation.code() == 0
    assert [fault["name"] for fault in allocation.record().faults] == ["cuda-719"]


# --- signs of life ---------------------------------------------------------------------------------------------------


def test_the_heartbeat_is_written_again_and_again(allocation: Allocation) -> None:
    run(allocation, "#!/bin/sh\nexec sleep 1000\n", report_every_s=1000.0)
    allocation.state("ready")
    path = allocation.run_dir / "heartbeat"
    first = float(path.read_text())
    assert abs(time.time() - first) < 60
    until(lambda: float(path.read_text()) > first)
    seq = allocation.state("ready").seq
    until(lambda: allocation.state("ready").seq > seq)
    assert allocation.stop() == codes.STOPPED


TELLS = """#!/bin/sh
remuda-progress --step 100 --total 1000 --metric loss=2.5 --metric lr=1e-4 --message 'it "goes" \\ on'
until [ -e "$1" ]; do sleep 0.02; done
python3 -c 'from remuda_progress import progress; progress(200, 1000, loss=1.5, note="x")'
exec sleep 1000
"""


def test_progress_is_told_from_shell_and_python(allocation: Allocation) -> None:
    go = allocation.home / "go"
    run(allocation, TELLS, str(go), env={"PYTHONPATH": "/somewhere"})
    until(lambda: (allocation.report() or allocation.state("ready")).metrics.get("progress_step") == 100)
    report = allocation.state("ready")
    assert report.metrics == {"progress_step": 100, "progress_total": 1000, "loss": 2.5, "lr": 0.0001}
    told = json.loads((allocation.run_dir / "progress.json").read_text())
    assert told["message"] == 'it "goes" \\ on'
    go.touch()
    until(lambda: allocation.state("ready").metrics.get("progress_step") == 200)
    assert allocation.state("ready").metrics["loss"] == 1.5
    assert allocation.stop() == codes.STOPPED


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "nothing to tell"),
        ("--step", "--step needs a value"),
        ("--step ten", "'ten' is not a number"),
        ("--step 1e", "'1e' is not a number"),
        ("--metric loss", "'loss' is not NAME=NUMBER"),
        ("--what 3", "unknown option '--what'"),
    ],
)
def test_the_tool_says_what_is_wrong(allocation: Allocation, words: str, message: str) -> None:
    run(allocation, f"#!/bin/sh\nremuda-progress {words}\n")
    assert allocation.code() == 0, "a wrong word does not end the script"
    assert errors(allocation).startswith(f"remuda-progress: {message}; usage: ")
    assert not (allocation.run_dir / "progress.json").exists()


@pytest.mark.parametrize("words", ["7/9", "--step=7 --total=9", "--step 7 --total 9", "7 --total 9"])
def test_ways_to_say_the_same(allocation: Allocation, words: str) -> None:
    run(allocation, f"#!/bin/sh\nremuda-progress {words}\nREMUDA_PROGRESS_FILE= remuda-progress 8/9\n")
    assert allocation.code() == 0
    told = json.loads((allocation.run_dir / "progress.json").read_text())
    assert (told["step"], told["total"], told["metrics"]) == (7, 9, {})


# --- what ends it ----------------------------------------------------------------------------------------------------


def test_a_script_without_progress_is_ended(allocation: Allocation) -> None:
    text = "#!/bin/sh\ntrap 'echo saved; exit 3' TERM\nremuda-progress 1/2\nwhile :; do echo still; sleep 0.05; done\n"
    run(allocation, text, watch={"progress_stall_s": 8.0})
    assert allocation.code() == codes.STALLED
    record = allocation.record()
    assert record.reason.startswith("the progress file did not change for ")
    assert record.reason.endswith(" s; 8 s are allowed; exit code 3")
    assert allocation.log().endswith("saved\n")


def test_a_silent_script_is_ended(allocation: Allocation) -> None:
    run(allocation, "#!/bin/sh\necho begin\nexec sleep 1000\n", watch={"progress_stall_s": 1.0})
    assert allocation.code() == codes.STALLED
    assert allocation.record().reason.startswith("nothing was printed, and no progress file was written, for ")


BAD = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."


def test_broken_hardware_ends_a_script_that_does_not_end(allocation: Allocation) -> None:
    run(allocation, f"#!/bin/sh\necho '{BAD}'\nexec sleep 1000\n", watch={"fault_grace_s": 0.3})
    assert allocation.code() == codes.NODE_FAULT
    record = allocation.record()
    assert record.reason.startswith(f"broken hardware, and the script did not end by itself within 0.3 s: {BAD}")
    (fault,) = record.faults
    assert (fault["kind"], fault["name"], fault["device"], fault["line"]) == ("node", "xid-79", "0000:3b:00", BAD)


def test_a_script_that_ends_by_itself_keeps_its_code(allocation: Allocation) -> None:
    run(allocation, f"#!/bin/sh\necho '{BAD}' >&2\necho 'KeyError: x'\nprintf 'no space left on device'\nexit 5\n")
    assert allocation.code() == 5
    assert {fault["name"] for fault in allocation.record().faults} == {"xid-79", "python-error", "disk-full"}


def test_faults_are_told_while_it_runs(allocation: Allocation) -> None:
    run(allocation, "#!/bin/sh\necho '[rank0]: CUDA out of memory'\nexec sleep 1000\n")
    allocation.state("ready", reason="cuda-out-of-memory: [rank0]: CUDA out of memory")
    assert allocation.stop() == codes.STOPPED


def test_the_log_scan_can_be_switched_off(allocation: Allocation) -> None:
    run(allocation, f"#!/bin/sh\necho '{BAD}'\n", watch={"scan_log": False})
    assert allocation.code() == 0
    assert allocation.record().faults == []


SAVES = """#!/bin/sh
trap : TERM USR2
{python} -S -c '
import signal, sys, time
def save(number, frame):
    print(signal.Signals(number).name, flush=True)
    time.sleep(0.4)
    print("saved", flush=True)
    sys.exit({code})
for name in ("SIGTERM", "SIGUSR2"):
    signal.signal(getattr(signal, name), save)
print("up", flush=True)
while True:
    time.sleep(0.1)  # a pause would miss a signal that comes right before it
'
"""


def saving(allocation: Allocation, *, code: int, trap: bool, **watch: Any) -> None:
    """A shell with a program that saves its work when it is told; without the trap the shell dies at once."""
    text = SAVES.format(python=sys.executable, code=code)
    run(allocation, text if trap else text.replace("trap : TERM USR2\n", ""), watch=watch, kill_grace_s=30.0)
    until(lambda: allocation.report() is not None and "up\n" in allocation.log())


@pytest.mark.parametrize("trap", [True, False])
def test_stopped_on_request_it_saves_first(allocation: Allocation, trap: bool) -> None:
    saving(allocation, code=0, trap=trap)
    allocation.process.send_signal(signal.SIGTERM)
    allocation.process.send_signal(signal.SIGTERM)  # as a scheduler may do, in two ways at once
    assert allocation.code() == codes.STOPPED
    assert allocation.log() == "up\nSIGTERM\nsaved\n"


def test_a_suspended_script_can_end_too(allocation: Allocation) -> None:
    saving(allocation, code=0, trap=True)
    os.killpg(allocation.state("ready").pid, signal.SIGSTOP)
    assert allocation.stop() == codes.STOPPED
    assert allocation.log().endswith("saved\n")


def has_gone(pid: int) -> bool:
    """Whether its parent has taken note of its end, too."""
    return not Path(f"/proc/{pid}").exists()


def test_a_scheduler_that_tells_the_script_before_us(make_allocation: Callable[[str], Allocation]) -> None:
    """The shell is dead before the program hears of it; the work under it is not swept away.

    The program waits a second for its own signal: where this test stood still between the two, it is tried again.
    """
    for number in range(10):
        allocation = make_allocation(f"try{number}")
        saving(allocation, code=0, trap=False)
        script = allocation.state("ready").pid
        begun = time.monotonic()
        os.killpg(script, signal.SIGTERM)
        until(partial(has_gone, script), "the program has taken in that the shell has ended")
        allocation.process.send_signal(signal.SIGTERM)
        is_late = time.monotonic() - begun > 0.5
        code = allocation.code()
        if not is_late:
            assert code == codes.STOPPED
            assert allocation.log().endswith("saved\n")
            return
    raise AssertionError("ten times the second signal came too late")


OBEYED = """#!/bin/sh
program=$PPID
(while kill -0 $$; do :; done 2>/dev/null; kill -TERM $program) &
exit 0
"""


def test_a_script_that_ends_well_as_soon_as_it_is_told_is_not_done(
    make_allocation: Callable[[str], Allocation],
) -> None:
    """It was told a moment before the program. The signal here comes once the program has taken the end in; where the
    machine stood still in between, for longer than is waited, it is tried again."""
    for number in range(10):
        allocation = make_allocation(f"try{number}")
        run(allocation, OBEYED)
        if allocation.code() == codes.STOPPED:
            assert allocation.record().reason == "asked to end by SIGTERM; exit code 0"
            return
    raise AssertionError("ten times its end was taken for the end of its work")


@pytest.mark.parametrize("trap", [True, False])
@pytest.mark.parametrize(("word", "seen"), [("TERM", "SIGTERM"), ("SIGUSR2", "SIGUSR2")])
def test_the_warning_reaches_the_script_once_and_it_saves(
    allocation: Allocation, trap: bool, word: str, seen: str
) -> None:
    saving(allocation, code=1, trap=trap, warn_signal=word)
    allocation.process.send_signal(signal.SIGUSR1)
    allocation.process.send_signal(signal.SIGUSR1)
    assert allocation.code() == codes.TIME_UP
    assert allocation.log() == f"up\n{seen}\nsaved\n"
    assert allocation.record().reason.startswith("ended after the warning that its time limit is near (")


WARNED = "#!/bin/sh\ntrap '{then}' USR2\n{before}\necho up\nwhile :; do sleep 0.02; done\n"


@pytest.mark.parametrize(
    ("before", "then", "code"),
    [
        (":", "exit 0", 0),
        ("remuda-progress 9/9", "exit 0", 0),
        ("remuda-progress 5/9", "exit 0", codes.TIME_UP),
        ("remuda-progress 5/9", "remuda-progress 9/9; exit 0", 0),
        ("remuda-progress 9/9", "exit 4", codes.TIME_UP),
    ],
)
def test_what_an_end_after_the_warning_means(allocation: Allocation, before: str, then: str, code: int) -> None:
    run(allocation, WARNED.format(before=before, then=then), watch={"warn_signal": "USR2"})
    until(lambda: allocation.report() is not None and "up\n" in allocation.log())
    allocation.process.send_signal(signal.SIGUSR1)
    assert allocation.code() == code


def test_a_request_to_end_after_the_warning_is_the_time_limit(allocation: Allocation) -> None:
    run(allocation, "#!/bin/sh\necho up\nexec sleep 1000\n", watch={"warn_signal": ""})
    until(lambda: allocation.report() is not None and "up\n" in allocation.log())
    allocation.process.send_signal(signal.SIGUSR1)
    until(lambda: "its time limit is near" in node_log(allocation))
    assert allocation.stop() == codes.TIME_UP


# --- fences ----------------------------------------------------------------------------------------------------------

FAMILY = "#!/bin/sh\ntrap : TERM\nsetsid sleep 1000 &\necho $!\nsleep 1000\n"


def point_to(allocation: Allocation, token: str) -> str:
    path = allocation.home / "current.json"
    draft = allocation.home / "draft"
    draft.write_text(json.dumps({"token": token}))
    draft.replace(path)
    return str(path)


def test_a_newer_attempt_kills_at_once_and_for_good(allocation: Allocation) -> None:
    fence = point_to(allocation, "w-replica-0-a1")
    process = run(allocation, FAMILY, fence_file=fence, kill_grace_s=1000.0)
    until(lambda: allocation.report() is not None and allocation.log().count("\n") == 1)
    pids = [allocation.state("ready").pid, int(allocation.log())]
    point_to(allocation, "w-replica-0-a2")
    assert process.wait(90) == codes.FENCED
    assert not any(alive(pid) for pid in pids)
    record = allocation.record()
    assert (record.code, record.child_signal) == (codes.FENCED, 9)
    assert record.reason.startswith("w-replica-0-a2 counts now, not w-replica-0-a1")
    assert allocation.states() == ["starting", "ready"]


def test_a_stale_attempt_does_not_even_start(allocation: Allocation) -> None:
    process = run(allocation, "#!/bin/sh\necho ran\n", fence_file=point_to(allocation, "w-replica-0-a2"))
    assert process.wait(90) == codes.FENCED
    assert allocation.record().code == codes.FENCED
    assert allocation.log() == ""


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"token": 3}', '{"token": ""}'])
def test_an_unreadable_fence_is_silence(allocation: Allocation, text: str | None) -> None:
    path = allocation.home / "current.json"
    if text is not None:
        path.write_text(text)
    run(allocation, "#!/bin/sh\nsleep 1.5\n", fence_file=str(path))
    assert allocation.code() == 0


def test_the_start_waits_for_the_last_word_of_the_attempt_before(allocation: Allocation) -> None:
    before = allocation.home / "before"
    before.mkdir()
    (before / "claim.json").write_text(ProcessId(1, "1", "another boot", "elsewhere").to_json())
    run(allocation, "#!/bin/sh\necho ran\n", previous_dir=str(before), watch={"previous_wait_s": 1000})
    allocation.state("starting", reason="waits for the attempt before to end")
    assert allocation.log() == ""
    (before / "exit.json").write_text("{}")
    assert allocation.code() == 0
    assert allocation.log() == "ran\n"


@pytest.mark.parametrize(
    ("claim", "wait_s", "said"),
    [
        ("elsewhere", 0.2, "the attempt before has not ended within 0.2 s; this one starts all the same"),
        ("gone", 1000, "the attempt before ended without a word"),
        ("none", 1000, ""),
        ("garbage", 0.2, "the attempt before has not ended within 0.2 s; this one starts all the same"),
    ],
)
def test_the_wait_for_the_attempt_before_ends(allocation: Allocation, claim: str, wait_s: float, said: str) -> None:
    own = identify(os.getpid())
    texts = {
        "elsewhere": ProcessId(own.pid, "1", own.boot, "elsewhere").to_json(),
        "gone": ProcessId(own.pid, "1", own.boot, own.node).to_json(),
        "garbage": "{",
    }
    before = allocation.home / "before"
    before.mkdir()
    if claim in texts:
        (before / "claim.json").write_text(texts[claim])
    run(allocation, "#!/bin/sh\necho ran\n", previous_dir=str(before), watch={"previous_wait_s": wait_s})
    assert allocation.code() == 0
    assert ("the attempt before" in node_log(allocation)) is bool(said)
    assert said in node_log(allocation)


# --- started again by the scheduler ----------------------------------------------------------------------------------


def restarted(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(count))


def test_a_requeued_allocation_goes_on_in_its_directory(
    allocation: Allocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(allocation, "#!/bin/sh\necho run $SLURM_RESTART_COUNT\nexit 3\n")
    assert allocation.code() == 3
    for count in (1, 2):
        restarted(monkeypatch, count)
        run(allocation, "#!/bin/sh\necho run $SLURM_RESTART_COUNT\nexit 4\n")
        assert allocation.code() == 4
    assert allocation.log() == "run\nrun 1\nrun 2\n"
    seqs = [event.seq for event in allocation.events()]
    assert seqs == sorted(set(seqs))
    ends = {path.name: ExitRecord.from_json(path.read_text()).code for path in allocation.run_dir.glob("exit*.json")}
    assert ends == {"exit-r0.json": 3, "exit-r1.json": 4, "exit.json": 4}
    claims = {path.name: ProcessId.from_json(path.read_text()).pid for path in allocation.run_dir.glob("claim*.json")}
    first, second, third = (process.pid for process in allocation.processes)
    assert claims == {"claim-r0.json": first, "claim-r1.json": second, "claim-r2.json": third, "claim.json": third}


def test_a_copy_of_an_earlier_start_is_fenced(allocation: Allocation, monkeypatch: pytest.MonkeyPatch) -> None:
    old = run(allocation, FAMILY, kill_grace_s=1000.0)
    until(lambda: allocation.report() is not None and allocation.log().count("\n") == 1)
    restarted(monkeypatch, 1)
    new = run(allocation, "#!/bin/sh\necho up\nexec sleep 1000\n")
    assert old.wait(PATIENCE_S) == codes.FENCED
    until(lambda: "up\n" in allocation.log(), "it has read its script, which is written anew below")
    assert ExitRecord.from_json((allocation.run_dir / "exit-r0.json").read_text()).code == codes.FENCED
    assert not (allocation.run_dir / "exit.json").exists()
    assert run(allocation, "#!/bin/sh\n").wait(PATIENCE_S) == codes.FENCED
    restarted(monkeypatch, 0)
    assert run(allocation, "#!/bin/sh\n").wait(PATIENCE_S) == codes.FENCED
    new.send_signal(signal.SIGTERM)
    assert new.wait(PATIENCE_S) == codes.STOPPED
    assert allocation.record().code == codes.STOPPED


# --- output ----------------------------------------------------------------------------------------------------------


def test_output_is_copied_and_the_programs_own_lines_are_not(allocation: Allocation, tmp_path: Path) -> None:
    with (tmp_path / "slurm.out").open("wb") as out:
        allocation.stdout = out.fileno()
        run(allocation, "#!/bin/sh\necho out\necho err >&2\n", watch={"tee": True})
        assert allocation.code() == 0
    assert (tmp_path / "slurm.out").read_text() == "out\n"
    assert allocation.process.stderr is not None
    assert allocation.process.stderr.read().startswith("err\nremuda-node: w-replica-0-a1: exit code 0 (exit 0")
    assert "ready, pid" in node_log(allocation)


def test_a_reader_that_does_not_read_holds_nothing_up(allocation: Allocation) -> None:
    read, write = os.pipe()
    allocation.stdout = write
    text = f'#!/bin/sh\nexec {" ".join(PYTHON)} -c \'print(("x" * 99 + "\\n") * 20000, end="")\'\n'
    run(allocation, text, watch={"tee": True})
    assert allocation.code() == 0
    assert len(allocation.log()) == 2_000_000
    os.close(read)
    os.close(write)


def test_a_closed_reader_holds_nothing_up(allocation: Allocation) -> None:
    read, write = os.pipe()
    os.close(read)
    allocation.stdout = write
    run(allocation, "#!/bin/sh\necho out\n", watch={"tee": True})
    assert allocation.code() == 0
    assert allocation.log() == "out\n"
    os.close(write)


def test_secrets_reach_no_copy(allocation: Allocation, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-3f9c1b7e-do-not-tell")
    with (tmp_path / "slurm.out").open("wb") as out:
        allocation.stdout = out.fileno()
        text = '#!/bin/sh\necho "CUDA error: unspecified launch failure $KEY"\necho "$KEY" >&2\n'
        run(allocation, text, watch={"tee": True}, secret_env={"KEY": {"file": str(tmp_path / "key")}})
        assert allocation.code() == 0
    assert (tmp_path / "slurm.out").read_text() == "CUDA error: unspecified launch failure [secret]\n"
    for path in allocation.run_dir.rglob("*"):
        assert not path.is_file() or "do-not-tell" not in path.read_text()
