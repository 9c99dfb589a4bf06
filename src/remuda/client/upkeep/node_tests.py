"""The smoke test of many nodes: which ones, so many at once, and everything ended whatever happens.

It runs in the user's process: what it starts ends with it. Only what it found goes to the host.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from remuda.backends.registry import install_node_program
from remuda.backends.slurm.smoke import (
    Outcome,
    SlurmSmoke,
    SmokeJob,
    Verdict,
    clean_environment,
    read_answer,
    run_command,
    smoke_command,
)
from remuda.base.disk.paths import state_paths
from remuda.base.errors import InputError, Interrupted
from remuda.base.hostlist import expand
from remuda.client.http import HostClient, connect
from remuda.specs.places import is_here
from remuda.views.nodes import NodeView, SmokeRecorded, unknown_node
from remuda.views.workloads import View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

MOST_POOLS = 3
"""In so many partitions a node is tried when the first refuse."""


@dataclass(frozen=True)
class SmokeOptions:
    """What a user can choose."""

    nodes: str = ""
    """Host list; empty: all of the partition."""
    partition: str = ""
    everything: bool = False
    """Nodes without GPUs, too."""
    gpus: int = 1
    """On each node, or all that it has."""
    timeout_s: float = 60.0
    wait_s: int = 10
    at_once: int = 16
    account: str = ""
    qos: str = ""
    python: str = ""
    env: tuple[tuple[str, str], ...] = ()


class SmokeView(View):
    """One node's test."""

    node: str
    pool: str
    """The partition that was asked last; empty when none was."""
    outcome: str
    """`ok`, `failed`, `no-cuda`, `busy`, `refused` or `timeout`."""
    meaning: str
    detail: str
    gpus: list[str]
    """Names of the GPUs that were tested."""
    device: str
    """Address of the GPU that failed, where the test told."""
    seconds: float
    proved: bool
    """The test ran and said so itself. Only that counts as evidence."""


class Tester(Protocol):
    """Runs one test."""

    async def run(self, job: SmokeJob) -> Verdict:
        """Run it to its end."""
        ...

    async def close(self) -> None:
        """End what may be left of all tests."""
        ...


class LocalSmoke:
    """Tests this machine."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self.env = clean_environment(os.environ if env is None else env)

    async def run(self, job: SmokeJob) -> Verdict:
        """Run the program here."""
        code, out, err = await run_command(job.program, job.timeout_s + 5.0, {**self.env, **dict(job.env)})
        if code is None:
            return Verdict(Outcome.TIMEOUT, f"no answer within {job.timeout_s:g} s")
        last = (err.strip().splitlines() or [f"it ended with {code}"])[-1]
        return read_answer(code, out) or Verdict(Outcome.FAILED, last[:300])

    async def close(self) -> None:
        """Nothing is left: what ran was ended with its run."""


def choose(views: Sequence[NodeView], options: SmokeOptions, cluster: str) -> list[NodeView]:
    """The nodes to test.

    Raises:
        InputError: there is none; says why.
        NotFound: the cluster does not have a node that was named.
    """
    known = {view.name: view for view in views if view.is_known}
    if options.nodes:
        names = expand(options.nodes)
        for name in names:
            if name not in known:
                raise unknown_node(name, known, cluster)
        return [known[name] for name in names]
    chosen = [view for view in known.values() if view.gpus or options.everything]
    if not chosen:
        where = f"partition {options.partition!r}" if options.partition else cluster
        raise InputError(f"no node of {where} has a GPU", hint="--all tests nodes without GPUs, too")
    return chosen


def pools_to_ask(view: NodeView, options: SmokeOptions) -> list[str]:
    """Partitions to ask for a node, in their order: the one that was named, else its own, some of them."""
    return [options.partition] if options.partition else list(view.pools[:MOST_POOLS])


def without_asking(view: NodeView, gpus: int) -> Verdict | None:
    """What is known before the scheduler is asked; None where it has to be."""
    if not view.usable:
        return Verdict(Outcome.REFUSED, f"the node is {view.state}" + (f": {view.reason}" if view.reason else ""))
    if not view.pools:
        return Verdict(Outcome.REFUSED, "the node is in no partition")
    if gpus and view.gpus_free < gpus <= view.gpus:
        return Verdict(Outcome.BUSY, f"{view.gpus - view.gpus_free} of {view.gpus} GPUs are taken")
    return None


async def run_round(
    targets: Sequence[NodeView],
    options: SmokeOptions,
    tester: Tester,
    program: Path,
    tell: Callable[[SmokeView], None],
) -> list[SmokeView]:
    """Test nodes, `options.at_once` at a time; results in the order of `targets`.

    Whatever ends it, an exception and Ctrl-C included, everything that it started is ended before it returns.

    Args:
        targets: what `choose` chose.
        options: the user's.
        tester: closed at the end.
        program: the node program, where nodes see it.
        tell: called with each result as it comes.
    """
    limit = asyncio.Semaphore(max(1, options.at_once))
    run_id = secrets.token_hex(3)

    async def one(view: NodeView) -> SmokeView:
        async with limit:
            result = await _test_node(view, options, tester, program, run_id)
        tell(result)
        return result

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(view)) for view in targets]
    finally:
        await _close(tester)
    return [task.result() for task in tasks]


async def _close(tester: Tester) -> None:
    """A second Ctrl-C does not keep what runs from being ended."""
    closing = asyncio.ensure_future(tester.close())
    while not closing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([closing])
    closing.result()


async def _test_node(view: NodeView, options: SmokeOptions, tester: Tester, program: Path, run_id: str) -> SmokeView:
    began = time.monotonic()
    gpus = min(options.gpus, view.gpus)
    verdict, pool = without_asking(view, gpus), ""
    if verdict is None:
        command = smoke_command(program, gpus, options.timeout_s, options.python)
        for pool in pools_to_ask(view, options):
            job = SmokeJob(
                name=f"remuda-smoke.{run_id}.{view.name}", node=view.name, pool=pool, program=command, gpus=gpus,
                timeout_s=options.timeout_s, wait_s=options.wait_s, account=options.account, qos=options.qos,
                env=options.env,
            )  # fmt: skip
            verdict = await tester.run(job)
            if verdict.outcome is not Outcome.REFUSED:
                break
    assert verdict is not None
    return SmokeView(
        node=view.name, pool=pool, outcome=verdict.outcome.value, meaning=verdict.meaning,
        detail=verdict.detail, gpus=list(verdict.devices), device=verdict.device,
        seconds=round(time.monotonic() - began, 1), proved=verdict.proved,
    )  # fmt: skip


# As the command line calls it -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TestRound:
    """Tests to run."""

    backend: str
    targets: list[NodeView]


def prepare(options: SmokeOptions, backend: str = "", client: HostClient | None = None) -> TestRound:
    """Ask the host which nodes there are, and choose.

    Raises:
        InputError: there is nothing to test.
        NotFound: no such partition or node.
        BackendUnreachable: the scheduler does not answer.
    """
    host = client or connect()
    data = host.get("/nodes", backend=backend, pool=options.partition)
    views = [NodeView.model_validate(item) for item in data]
    cluster = views[0].cluster if views else backend
    return TestRound(cluster, choose(views, options, cluster or "the cluster"))


def perform(
    this: TestRound, options: SmokeOptions, tell: Callable[[SmokeView], None], tester: Tester | None = None
) -> list[SmokeView]:
    """Run the tests of a round with the node program of this state directory.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; everything that was started has ended.
    """
    told: list[SmokeView] = []

    def note(result: SmokeView) -> None:
        told.append(result)
        tell(result)

    async def main() -> list[SmokeView]:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await run_round(this.targets, set_up, used, program, note)

    program = install_node_program(state_paths())
    is_local = is_here(this.backend)
    used = tester or (LocalSmoke() if is_local else SlurmSmoke())
    set_up = replace(options, python=sys.executable) if is_local and not options.python else options
    try:
        return asyncio.run(main())
    except (KeyboardInterrupt, asyncio.CancelledError):
        done = f"{len(told)} of {len(this.targets)} nodes were tested"
        raise Interrupted(f"stopped: {done}, and the tests that still ran were ended") from None


def record(this: TestRound, results: Sequence[SmokeView], client: HostClient | None = None) -> SmokeRecorded:
    """Tell the ledger what tests proved: a failure is held against the node, a success ends what earlier ones left."""
    proved = [
        {"node": item.node, "outcome": item.outcome, "detail": item.detail, "device": item.device}
        for item in results
        if item.proved and item.outcome in (Outcome.OK, Outcome.FAILED)
    ]
    if not proved:
        return SmokeRecorded(failed=[], cleared=[])
    told = (client or connect()).post("/nodes/tests", {"results": proved}, backend=this.backend)
    return SmokeRecorded.model_validate(told)
