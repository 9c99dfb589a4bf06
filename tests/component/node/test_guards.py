"""Jobs over several nodes: each node fences itself. The second one is this machine too, behind an `srun` of ours."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.component.node.conftest import PATIENCE_S, PYTHON, alive, until
from tests.component.node.test_runs import node_log, run

from remuda.node.guard.guard_server import REPLACEMENTS
from remuda.wire import exit as codes
from remuda.wire.child import ChildSpec
from remuda.wire.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.component.node.conftest import Allocation

    from remuda.wire.report import Report

JOB = "4711"
SLEEPS = [sys.executable, "-I", "-S", "-c", "import time\nwhile True: time.sleep(1)"]
#: Leaves its options out, and starts what it is told on the other node, where it does not end with this program.
SRUN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
echo "$SLURM_MEM_PER_NODE" > "$HOME/memory"
SLURMD_NODENAME=n2 "$@" & wait
"""


class Nodes:
    """A job on two nodes, n1 with the node program and n2, and processes of it that nobody here has started."""

    def __init__(self, allocation: Allocation, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allocation = allocation
        self._patch = monkeypatch
        self._ranks: list[subprocess.Popen[bytes]] = []
        programs = allocation.home / "bin"
        programs.mkdir()
        (programs / "srun").write_text(SRUN)
        (programs / "srun").chmod(0o755)
        for name, value in {
            "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(allocation.home), "SLURM_JOB_ID": JOB,
            "SLURM_JOB_NUM_NODES": "2", "SLURMD_NODENAME": "n1", "SLURM_MEM_PER_NODE": "4096",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        self.fence = allocation.home / "current.json"
        self.fence.write_text('{"token": "w-replica-0-a1"}')

    def begin(
        self, text: str = "#!/bin/sh\nsleep 600\n", silence_s: float = 60.0, meet_s: float = PATIENCE_S
    ) -> Report:
        """Start a script of that text, and wait until it runs."""
        self.start(text, silence_s, meet_s)
        return self.allocation.state("ready")

    def start(self, text: str, silence_s: float = 60.0, meet_s: float = PATIENCE_S) -> None:
        """Start a script of that text."""
        allocation = self.allocation
        guard = Guard([*PYTHON, str(allocation.program)], silence_s=silence_s, meet_s=meet_s)
        fields = {"guard": guard, "fence_file": str(self.fence)}
        plain = ChildSpec("w-replica-0-a1", "w", "script/0", 1, ["x"], str(allocation.run_dir), guard=guard)
        allocation.run_dir.mkdir(parents=True)
        document = replace(plain, fence_file=str(self.fence)).to_json()
        (allocation.run_dir / "child.json").write_text(document)
        run(allocation, text, **fields)

    def rank(
        self, node: str = "n2", job: str = JOB, argv: list[str] | None = None, env: dict[str, str] | None = None
    ) -> int:
        """A process as the scheduler starts it there."""
        env = {"SLURM_JOB_ID": job, "SLURMD_NODENAME": node} if env is None else env
        self._ranks.append(subprocess.Popen(argv or SLEEPS, env=env, start_new_session=True))
        return self._ranks[-1].pid

    def lives(self, pid: int) -> bool:
        for rank in self._ranks:
            rank.poll()
        return alive(pid)

    def helper(self, name: str) -> int:
        """Pid of the guard or the guardroom."""
        found = self.find(name)
        assert found, f"no {name}"
        return found

    def find(self, name: str) -> int:
        """The same, 0 where there is none."""
        words = [name, str(self.allocation.run_dir)]
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if found[4:6] == words:
                return int(path.parent.name)
        return 0

    def kill_guard(self) -> int:
        """kill -9 to one that has called; its pid."""
        until(self.ended.with_suffix(".here").exists)
        guard = self.helper("guard")
        os.kill(guard, signal.SIGKILL)
        return guard

    def refuse(self, why: str) -> None:
        """From now on `srun` starts nothing."""
        self.put_srun(f"echo 'srun: error: {why}' >&2\nexit 1\n")

    def put_srun(self, text: str) -> None:
        srun = self.allocation.home / "bin" / "srun"
        srun.with_suffix(".new").write_text(f"#!/bin/sh\n{text}")
        srun.with_suffix(".new").chmod(0o755)
        srun.with_suffix(".new").replace(srun)  # a shell may still read the old one

    @property
    def ended(self) -> Path:
        return self.allocation.run_dir / "guards" / "n2.ended"

    def close(self) -> None:
        for rank in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
        until(lambda: not (self._kill_all() or self._kill_all()), "nothing of it is left")

    def _kill_all(self) -> list[int]:
        """Kill what the node program and `srun` started, also when its parent was killed: it has the test's home.

        One that is in the middle of an exec has no environment, and is seen the next time only.
        """
        home, found = f"HOME={self.allocation.home}".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if home in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
                    os.kill(found[-1], signal.SIGKILL)
        return found


@pytest.fixture
def nodes(allocation: Allocation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    made = Nodes(allocation, monkeypatch)
    yield made
    made.close()


def test_the_script_starts_when_every_node_is_guarded_and_ends_with_all_of_them(nodes: Nodes) -> None:
    go = nodes.allocation.home / "go"
    nodes.begin(f"#!/bin/sh\nls {nodes.allocation.run_dir}/guards\nwhile [ ! -e {go} ]; do sleep 0.05; done\n")
    rank = nodes.rank()
    go.touch()
    assert nodes.allocation.code() == 0
    assert nodes.allocation.log() == "n2.here\n"
    until(lambda: nodes.ended.exists() and nodes.ended.read_text() == "the first node says so\n")
    until(lambda: not nodes.lives(rank), "what the script left behind on the other node is ended")
    assert (nodes.allocation.home / "memory").read_text() == "\n", "the user's wishes are for the user's steps"


def test_a_first_node_that_dies_takes_all_of_the_job_with_it_and_nothing_else(nodes: Nodes) -> None:
    nodes.begin()
    step = [sys.executable, "-I", "-S", "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"]
    own = [nodes.rank(), nodes.rank(argv=["/bin/sh", "-c", "sleep 600 & wait"])]
    # One that forgot its environment, below the scheduler's own program, which is left alone.
    title = "import os, sys; os.execv(sys.executable, ['slurmstepd: [4711.0]', *sys.argv[1:]])"
    above = nodes.rank(argv=[sys.executable, "-I", "-S", "-c", title, *step[1:], "env", "-i", *SLEEPS], env={})
    bare = until(lambda: _child_of(above), "the step has a child")
    until(lambda: _words(bare)[0] == SLEEPS[0].encode(), "and that is no copy of the step any more")
    other = [nodes.rank("n1"), nodes.rank(job="4712"), nodes.rank(env={})]
    nodes.allocation.process.kill()
    until(lambda: not any(nodes.lives(pid) for pid in own), "nothing of the job is left on the node")
    until(lambda: not nodes.lives(bare), "nothing bare is left on the node")
    assert until(nodes.ended.exists)
    assert all(nodes.lives(pid) for pid in other)


def _child_of(pid: int) -> int:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(text[0]) if text else 0


def _words(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_a_first_node_of_which_nothing_is_heard(nodes: Nodes) -> None:
    """A cut cable says nothing: no end of the line, and no word."""
    nodes.begin(silence_s=10.0)  # longer than a busy machine lets one of them wait
    rank = nodes.rank()
    os.kill(nodes.helper("guardroom"), signal.SIGSTOP)
    until(lambda: not nodes.lives(rank), "it is ended")
    until(lambda: nodes.ended.exists() and "nothing was heard of the first node for" in nodes.ended.read_text())


def test_a_script_that_may_save_its_work_has_its_grace_on_all_nodes(nodes: Nodes) -> None:
    """Neither the guardroom nor the guards take for themselves what the script is asked."""
    saved = nodes.allocation.home / "saved"
    waits = f"while [ ! -e {saved} ]; do sleep 0.1; done; exit 0"
    nodes.begin(f"#!/bin/sh\ntrap '{waits}' TERM\necho up\nsleep 600 & wait\n")
    until(lambda: "up\n" in nodes.allocation.log(), "it has set its trap")
    rank = nodes.rank()
    guard = nodes.helper("guard")
    os.kill(guard, signal.SIGTERM)  # as a scheduler that ends all steps
    nodes.allocation.process.send_signal(signal.SIGTERM)
    nodes.allocation.state("stopping")
    assert nodes.lives(rank)
    assert alive(guard)
    assert not nodes.ended.exists()
    saved.touch()
    assert nodes.allocation.code() == codes.STOPPED
    until(lambda: not nodes.lives(rank), "then it is ended")


def test_another_attempt_ends_what_steps_have_started_on_the_first_node_too(nodes: Nodes) -> None:
    nodes.begin()
    here, there = nodes.rank("n1"), nodes.rank("n2")
    nodes.fence.write_text('{"token": "w-replica-0-a2"}')
    assert nodes.allocation.process.wait(90) == codes.FENCED
    until(lambda: not nodes.lives(here) and not nodes.lives(there), "nothing of it is left anywhere")


def test_without_guards_it_starts_all_the_same_and_says_so(nodes: Nodes) -> None:
    """In its log, and to the host, whose `status`, `explain` and `events` show it."""
    nodes.refuse("no such option")
    seen = nodes.allocation.home / "seen"
    report = nodes.begin(f"#!/bin/sh\nwhile [ ! -e {seen} ]; do sleep 0.05; done\n")
    seen.touch()
    assert nodes.allocation.code() == 0
    told = "not all of its nodes are guarded (the step of the guards ended: srun: error: no such option)"
    assert told in node_log(nodes.allocation)
    assert report.reason.startswith(f"{told}: behind a cut cable")


def test_guards_that_do_not_come_in_time_are_told_too(nodes: Nodes) -> None:
    nodes.put_srun("exec sleep 600\n")
    assert "guarded (those of 1 of them have not come within 0.5 s)" in nodes.begin(meet_s=0.5).reason
    assert nodes.allocation.stop() == codes.STOPPED


def test_a_guard_that_is_killed_is_started_again(nodes: Nodes) -> None:
    nodes.begin()
    rank = nodes.rank()
    first = nodes.kill_guard()
    until(lambda: "n2 is guarded again" in node_log(nodes.allocation))
    assert nodes.helper("guard") != first
    assert nodes.lives(rank)
    nodes.allocation.process.kill()
    until(lambda: not nodes.lives(rank), "the second one ends what runs there, as the first would have")
    assert until(nodes.ended.exists)


@pytest.mark.parametrize("how", ["refused", "never there", "killed again and again"])
def test_a_node_that_cannot_be_guarded_any_more_ends_the_job_while_it_can_be_reached(nodes: Nodes, how: str) -> None:
    saved = nodes.allocation.home / "saved"
    text = f"#!/bin/sh\ntrap 'echo well > {saved}; exit 0' TERM\necho up\nsleep 600 & wait\n"
    nodes.begin(text, meet_s=2.0 if how == "never there" else PATIENCE_S)
    until(lambda: "up\n" in nodes.allocation.log(), "it has set its trap")
    if how == "refused":
        nodes.refuse("the node is away")
        nodes.kill_guard()
        why = "another could not be started: srun: error: the node is away"
    elif how == "never there":
        nodes.put_srun("exec sleep 600\n")
        nodes.kill_guard()
        why = "another did not call within 2 s"
    else:
        killed: set[int] = set()
        for _ in range(REPLACEMENTS + 1):
            until(lambda: nodes.find("guard") not in {0, *killed}, "the next is there")
            until(lambda: node_log(nodes.allocation).count("is guarded again") >= len(killed), "and has called")
            killed.add(nodes.kill_guard())
        why = f"{REPLACEMENTS + 1} of them died"
    assert nodes.allocation.code() == codes.UNGUARDED
    assert saved.read_text() == "well\n", "it was told, and could save its work"
    assert nodes.allocation.record().reason.startswith(
        f"node n2 is not guarded any more, because its guard died: {why}"
    )


def test_what_keeps_the_lines_to_the_guards_takes_the_job_with_it(nodes: Nodes) -> None:
    nodes.begin()
    rank = nodes.rank()
    os.kill(nodes.helper("guardroom"), signal.SIGKILL)
    assert nodes.allocation.code() == codes.UNGUARDED
    until(lambda: not nodes.lives(rank), "its guard has heard the end of its line")
    assert "what kept the lines to the guards has ended" in nodes.allocation.record().reason


def test_a_new_attempt_begins_nothing_before_the_guards_of_the_one_before_have_ended(nodes: Nodes) -> None:
    attempts = nodes.allocation.home / "script-0"
    ended = attempts / "attempt-1-abcd1234" / "guards" / "n2.ended"
    ended.parent.mkdir(parents=True)
    ended.with_suffix(".here").write_text("6000.0\n")
    nodes.allocation.run_dir = attempts / "attempt-2-abcd1234"
    begun = nodes.allocation.home / "begun"
    nodes.start(f"#!/bin/sh\n[ -e {ended} ] && echo after > {begun} || echo before > {begun}\n")
    waits = "waits until nothing of an earlier attempt is left on n2"
    until(lambda: begun.exists() or ((report := nodes.allocation.report()) and report.reason == waits))
    assert not begun.exists()
    ended.write_text("")
    assert nodes.allocation.code() == 0
    assert begun.read_text() == "after\n"


def test_strangers_at_its_door_keep_no_guard_out(nodes: Nodes) -> None:
    """A hundred idle ones, one that talks without an end, and one that does not know the key."""
    srun = nodes.allocation.home / "bin" / "srun"
    go = nodes.allocation.home / "go"
    srun.write_text(SRUN.replace("echo", f"while [ ! -e {go} ]; do sleep 0.05; done; echo", 1))
    kept: list[socket.socket] = []

    def crowd() -> bool:
        meeting = nodes.allocation.run_dir / "guards.json"
        if not meeting.exists():
            return False
        port = json.loads(meeting.read_text())["port"]
        kept.extend(socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(100))
        for one, words in zip(kept, (b"x" * 100_000, b'{"key": "wrong", "node": "n2"}\n', b"[1]\n"), strict=False):
            with suppress(OSError):  # it may be hung up on in the middle of its speech
                one.sendall(words)
        return True

    def press() -> None:
        until(crowd)
        go.touch()

    thread = threading.Thread(target=press)
    thread.start()
    nodes.begin()
    thread.join()
    assert (nodes.allocation.run_dir / "guards" / "n2.here").exists()
    for one in kept:
        one.close()


def test_a_guard_that_the_scheduler_ends_with_all_else_says_so_before(nodes: Nodes) -> None:
    """Its steps are told with SIGTERM and killed a while later: whoever waits need not wait for the bound."""
    nodes.begin()
    rank = nodes.rank()
    guard = nodes.helper("guard")
    os.kill(guard, signal.SIGTERM)
    os.kill(rank, signal.SIGTERM)
    until(lambda: not nodes.lives(rank))
    assert until(nodes.ended.exists)
    second = nodes.rank()
    until(lambda: not nodes.ended.exists(), "what is not true any more is taken back")
    os.kill(second, signal.SIGKILL)
    until(lambda: not nodes.lives(second))
    assert until(nodes.ended.exists)
    os.kill(guard, signal.SIGKILL)
    until(lambda: "n2 is guarded again" in node_log(nodes.allocation))
    assert not nodes.ended.exists(), "what the killed one has said counts no more"
    assert nodes.allocation.state("ready")
