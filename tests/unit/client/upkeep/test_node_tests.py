"""Which nodes are tested, how many at once, and what is left when it is stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from remuda.backends.base import Cluster, Node, PoolInfo
from remuda.backends.slurm.smoke import Outcome, SmokeJob, Verdict
from remuda.base.errors import InputError, NotFound
from remuda.client.upkeep.node_tests import SmokeOptions, SmokeView, choose, run_round, without_asking
from remuda.views.nodes import NodeView, node_views

PROGRAM = Path("/shared/node.pyz")


def view(name: str, gpus: int = 4, free: int = 4, pools: tuple[str, ...] = ("gpu",), **more: object) -> NodeView:
    values = {"state": "idle", "usable": True, **more}
    node = Node(name=name, gpus=gpus, gpus_free=free, pools=pools, **values)  # type: ignore[arg-type]
    return node_views(Cluster((node,), (PoolInfo("gpu"),)), [], 0.0, name="slurm")[0]


class FakeTester:
    """Answers as a test wants, and remembers what it was asked."""

    def __init__(self, answers: dict[tuple[str, str], Verdict] | None = None) -> None:
        self.answers = answers or {}
        self.jobs: list[SmokeJob] = []
        self.running = 0
        self.most = 0
        self.closed = 0
        self.gate: asyncio.Event | None = None

    async def run(self, job: SmokeJob) -> Verdict:
        self.jobs.append(job)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.running -= 1
        return self.answers.get((job.node, job.pool), Verdict(Outcome.OK, proved=True))

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


async def run(targets: list[NodeView], tester: FakeTester, **options: object) -> list[SmokeView]:
    told: list[SmokeView] = []
    results = await run_round(targets, SmokeOptions(**options), tester, PROGRAM, told.append)  # type: ignore[arg-type]
    assert sorted(item.node for item in told) == sorted(item.node for item in results)
    return results


NODES = [view("a1"), view("c1", gpus=0, free=0), view("a2")]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (SmokeOptions(), ["a1", "a2"]),
        (SmokeOptions(everything=True), ["a1", "c1", "a2"]),
        (SmokeOptions(nodes="c1,a[1-2]"), ["c1", "a1", "a2"]),
    ],
)
def test_which_nodes(options: SmokeOptions, names: list[str]) -> None:
    assert [one.name for one in choose(NODES, options, "slurm")] == names


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(NotFound) as caught:
        choose(NODES, SmokeOptions(nodes="a1,a11"), "slurm")
    assert (str(caught.value), caught.value.hint) == ("slurm has no node 'a11'", "did you mean 'a1'?")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (SmokeOptions(), "no node of slurm has a GPU"),
        (SmokeOptions(partition="cpu"), "no node of partition 'cpu' has a GPU"),
    ],
)
def test_no_node_to_test(options: SmokeOptions, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        choose([NODES[1]], options, "slurm")
    assert (str(caught.value), caught.value.hint) == (sentence, "--all tests nodes without GPUs, too")


@pytest.mark.parametrize(
    ("one", "gpus", "verdict"),
    [
        (view("n"), 1, None),
        (view("n", free=0), 1, Verdict(Outcome.BUSY, "4 of 4 GPUs are taken")),
        (view("n", free=1), 2, Verdict(Outcome.BUSY, "3 of 4 GPUs are taken")),
        (view("n", gpus=0, free=0), 0, None),
        (view("n", usable=False, state="idle+drain", reason="bad fan"), 1,
         Verdict(Outcome.REFUSED, "the node is idle+drain: bad fan")),
        (view("n", usable=False, state="down"), 1, Verdict(Outcome.REFUSED, "the node is down")),
        (view("n", pools=()), 1, Verdict(Outcome.REFUSED, "the node is in no partition")),
    ],
)  # fmt: skip
def test_what_needs_no_job(one: NodeView, gpus: int, verdict: Verdict | None) -> None:
    assert without_asking(one, gpus) == verdict


async def test_results_come_in_the_order_of_the_nodes() -> None:
    tester = FakeTester(
        {("b", "gpu"): Verdict(Outcome.FAILED, "cuInit returned 802", device="0000:3b:00", proved=True)}
    )
    results = await run([view("a"), view("b"), view("busy", free=0)], tester)
    assert [(item.node, item.outcome, item.meaning, item.pool) for item in results] == [
        ("a", "ok", "CUDA working", "gpu"),
        ("b", "failed", "CUDA failed", "gpu"),
        ("busy", "busy", "node busy (no free GPUs)", ""),
    ]
    assert (results[1].detail, results[1].device, results[1].proved) == ("cuInit returned 802", "0000:3b:00", True)
    assert len(tester.jobs) == 2
    assert tester.closed == 1


async def test_so_many_at_once_and_no_more() -> None:
    tester = FakeTester()
    await run([view(f"n{number}") for number in range(20)], tester, at_once=3)
    assert tester.most == 3
    assert len({job.name for job in tester.jobs}) == 20


async def test_the_next_partition_is_asked_where_one_refuses() -> None:
    no = Verdict(Outcome.REFUSED, "Invalid qos specification")
    pools = ("p1", "p2", "p3", "p4")
    tester = FakeTester({("n", "p1"): no, ("m", "p1"): no, ("m", "p2"): no, ("m", "p3"): no})
    results = await run([view("n", pools=pools), view("m", pools=pools)], tester)
    assert [(item.outcome, item.pool) for item in results] == [("ok", "p2"), ("refused", "p3")]
    assert [job.pool for job in tester.jobs if job.node == "m"] == ["p1", "p2", "p3"]


async def test_only_the_partition_that_was_named_is_asked() -> None:
    tester = FakeTester({("n", "p2"): Verdict(Outcome.REFUSED, "no")})
    results = await run([view("n", pools=("p1", "p2"))], tester, partition="p2")
    assert [(item.outcome, item.pool) for item in results] == [("refused", "p2")]


async def test_what_a_job_is_told() -> None:
    tester = FakeTester()
    await run([view("n", gpus=2, free=2)], tester, gpus=8, timeout_s=7.5, account="a", qos="q", env=(("X", "1"),))
    (job,) = tester.jobs
    assert (job.gpus, job.account, job.qos, job.env, job.timeout_s) == (2, "a", "q", (("X", "1"),), 7.5)
    assert job.program == (
        "python3", "-I", "-S", "/shared/node.pyz", "smoke", "--json", "--gpus", "2", "--timeout", "7.5"
    )  # fmt: skip


async def test_what_is_stopped_ends_everything_first() -> None:
    tester = FakeTester()
    tester.gate = asyncio.Event()
    task = asyncio.create_task(run([view(f"n{number}") for number in range(5)], tester, at_once=2))
    while tester.running < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tester.running, tester.closed, len(tester.jobs)) == (0, 1, 2)


async def test_a_bug_in_one_test_ends_the_others() -> None:
    class Broken(FakeTester):
        async def run(self, job: SmokeJob) -> Verdict:
            if job.node == "bad":
                raise ValueError("a bug")
            return await super().run(job)

    tester = Broken()
    tester.gate = asyncio.Event()
    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await run([view("good"), view("bad")], tester)
    assert (tester.running, tester.closed) == (0, 1)
