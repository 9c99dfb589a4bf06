"""Whether the scheduler still says that this job runs here: work that hears nothing of it for its lease is killed.

Only on clusters whose own slurm.conf has a lease, as that of a fleet: their controller gives a node up later than the
work there ends by itself, so no two attempts write. Time is that since the boot, in which a machine that slept or stood
still has lived, too. Python 3.9, standard library only.
"""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

from remuda.node.child import machine
from remuda.wire import exit as codes

if TYPE_CHECKING:
    from collections.abc import Mapping

LINE = re.compile(r"^#RemudaLease=(?P<lease_s>[\d.]+) (?P<scontrol>/\S+)$", re.MULTILINE)
_CONTROLLER = re.compile(r"^SlurmctldHost=[^(\s]+\(([^)]+)\)$", re.MULTILINE)
_PORT = re.compile(r"^SlurmctldPort=(\d+)$", re.MULTILINE)
_RUNS = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING"})
_CONNECT_S = 3.0


class LeaseTerms(NamedTuple):
    """What a lease is about."""

    lease_s: float
    controller: tuple[str, int]
    scontrol: str
    job: str
    nodes: str
    """Of the job, as Slurm writes them."""


def terms(env: Mapping[str, str]) -> LeaseTerms | None:
    """The lease of this job; None where its cluster has none."""
    job = env.get("SLURM_JOB_ID", "")
    try:
        text = Path(env.get("SLURM_CONF") or "/nowhere").read_text(encoding="utf-8")
    except OSError:
        return None
    line, host, port = LINE.search(text), _CONTROLLER.search(text), _PORT.search(text)
    if not (job and line and host and port):
        return None
    nodes = env.get("SLURM_JOB_NODELIST", "")
    return LeaseTerms(float(line["lease_s"]), (host[1], int(port[1])), line["scontrol"], job, nodes)


def told(answer: str, job: str, nodes: str) -> str | None:
    """Why the job runs here no more, by `scontrol show job -o`; empty: it does, None: that says nothing. Pure."""
    if "Invalid job id" in answer:
        return f"the scheduler does not know job {job} any more"
    said = dict(re.findall(r"\b(JobState|NodeList)=(\S*)", answer))
    state = said.get("JobState")
    if state is None:
        return None
    if state not in _RUNS:
        return f"the scheduler says that job {job} is {state}"
    where = said.get("NodeList", nodes)
    return f"the scheduler says that job {job} runs on {where}" if nodes and where != nodes else ""


class JobLease:
    """Asked again and again beside the work; a question that waits for its answer holds nobody up.

    Args:
        terms: of the job.
        ask: gives what the scheduler says: the answer, or None where nothing was heard. It may wait.
        clock: seconds since the boot.
    """

    def __init__(
        self,
        terms: LeaseTerms,
        ask: Callable[[LeaseTerms], str | None] | None = None,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._terms, self._ask, self._clock = terms, ask or hear, clock
        self._heard_at = self._asked_at = clock()
        self._over = ""
        self._question: threading.Thread | None = None

    def look(self) -> machine.FencedOff | None:
        """The end of the work, where it must not go on."""
        now = self._clock()
        if self._over:
            return machine.FencedOff(self._over)
        silent_s, lease_s = now - self._heard_at, self._terms.lease_s
        if silent_s > lease_s:
            why = f"nothing was heard of the scheduler for {silent_s:.0f} s, and the lease is {lease_s:g} s"
            return machine.FencedOff(why, codes.UNLEASED)
        if now >= self._asked_at + self._terms.lease_s / 4 and not (self._question and self._question.is_alive()):
            self._asked_at = now
            self._question = threading.Thread(target=self._hear, args=(now,), daemon=True)
            self._question.start()
        return None

    def _hear(self, began: float) -> None:
        answer = self._ask(self._terms)
        why = told(answer, self._terms.job, self._terms.nodes) if answer else answer
        if why is not None:
            self._over = why
            self._heard_at = began


def hear(terms: LeaseTerms) -> str | None:
    """What the controller says of the job; empty where its machine refuses the connection: then nobody gives it up."""
    try:
        with socket.create_connection(terms.controller, _CONNECT_S):
            pass
        words = [terms.scontrol, "show", "job", terms.job, "-o"]
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            timeout=max(1.0, terms.lease_s / 4),
        )  # fmt: skip
    except ConnectionRefusedError:
        return ""
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout or None
