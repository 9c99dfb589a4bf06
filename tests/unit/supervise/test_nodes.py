"""Nodes that are avoided, with the whole loop; and what `explain` says of where a run is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.bed import Killed, only
from tests.unit.supervise.build import pools, script

from remuda.backends.base import Cluster, Feature, Node
from remuda.plan.model import Failover
from remuda.supervise.explain import explain
from remuda.supervise.ledger import BAN, Evidence
from remuda.supervise.model import Phase
from remuda.wire.fault import Fault

if TYPE_CHECKING:
    from tests.unit.supervise.bed import Bed


async def test_a_bad_node_is_avoided_by_the_next_attempt_of_every_workload(bed: Bed) -> None:
    bed.backend.features |= {Feature.EXCLUDE_NODES}
    bed.backend.has = Cluster(tuple(Node(f"n{number}", "idle", usable=True) for number in range(4)), ())
    bed.up(script())
    await bed.all_ready()
    bed.backend.end(only(bed).token, 90, node="n2", faults=(Fault("node", "xid-79", "gone", "0000:07:00"),))
    await bed.go(30)
    assert bed.backend.requests[only(bed).token].exclude_nodes == ("n2",)
    bed.up(script(), name="other")
    await bed.go(5)
    assert bed.backend.requests["other.script.0.1.u2"].exclude_nodes == ("n2",)
    assert [line.reason for line in bed.story() if line.kind == "nodes"] == ["script: avoids n2 (xid-79 on 0000:07:00)"]
    assert bed.backend.count("cluster") == 1, "one question serves for a while"
    bed.clock.advance(50_000)
    bed.change("other", restart=True)
    await bed.go(5)
    assert bed.backend.requests["other.script.0.2.u2"].exclude_nodes == (), "evidence expires"
    assert [item.kind for item in bed.journal.history("n2")] == ["xid-79"]
    assert bed.story("other")[-1].kind == "move"


async def test_a_cluster_that_does_not_answer_leaves_the_evidence_alone(bed: Bed) -> None:
    bed.backend.features |= {Feature.EXCLUDE_NODES}
    bed.backend.silent = {"cluster"}
    bed.journal.record(evidence=[Evidence("n7", 0.0, BAN, cluster="fake", detail="noisy", expires_at=4e9)])
    bed.up(script())
    await bed.go(5)
    assert bed.backend.requests[only(bed).token].exclude_nodes == ("n7",)
    assert [line.reason for line in bed.story() if line.kind == "nodes"] == ["script: avoids n7 (banned: noisy)"]
    assert bed.journal.unban("n7", cluster="fake", now=bed.clock.now()) == 1
    bed.change(restart=True)
    await bed.go(5)
    assert bed.backend.requests[only(bed).token].exclude_nodes == ()
    assert [line.reason for line in bed.story() if line.kind == "nodes"][1:] == ["script: no node is avoided any more"]


async def test_nobody_is_asked_about_nodes_without_evidence_or_without_the_means(bed: Bed) -> None:
    bed.journal.record(evidence=[Evidence("n7", 0.0, BAN, cluster="fake", expires_at=4e9)])
    bed.up(script())
    await bed.all_ready()
    assert bed.backend.requests[only(bed).token].exclude_nodes == ()
    bed.backend.end(only(bed).token, 90)
    await bed.go(30)
    assert (bed.backend.count("cluster"), len(bed.journal.evidence(bed.clock.now()))) == (0, 1)


async def test_the_evidence_of_an_end_is_written_with_it_or_not_at_all(bed: Bed) -> None:
    bed.backend.features |= {Feature.EXCLUDE_NODES}
    bed.up(script())
    await bed.all_ready()
    bed.backend.end(only(bed).token, 88)

    def kill(_: str) -> None:
        raise Killed

    bed.journal.hook = kill
    with pytest.raises(Killed):
        await bed.go(3)
    bed.new_host()
    assert (bed.phases(), bed.journal.evidence(0.0)) == ([Phase.READY], [])
    await bed.go(3)
    assert bed.phases() == [Phase.WAITING]
    assert [(item.kind, item.token) for item in bed.journal.evidence(0.0)] == [("no-gpu", "w.script.0.1.u1")]


async def test_explain_tells_why_it_runs_where_it_runs(bed: Bed) -> None:
    bed.backend.features |= {Feature.EXCLUDE_NODES}
    bed.up(script(pools=pools("a", "b"), failover=Failover(retry_per_pool=1)))
    await bed.all_ready()
    bed.backend.end(only(bed).token, 89, node="n2")
    await bed.go(30)
    made = bed.backend.made[only(bed).token]
    made.seen = replace(made.seen, limit_at=bed.clock.now() + 7200, requeues=1)
    await bed.go(2)
    want, now = bed.host.wants["w"], bed.clock.now()
    text = explain(
        want, bed.host.tasks("w"), bed.story(), bed.journal.allocations("w"), "", now, bed.journal.evidence(now)
    )
    joined = "\n".join(text)
    assert "  runs in b; the preferred pool a was left at " in joined
    assert "  the scheduler put it back into its queue once" in text
    assert "  its time limit ends it in 1h 59m" in text or "  its time limit ends it in 2h" in text
    assert "nodes, when it was last submitted: script: avoids n2 (gpu-broken)" in text
    assert "n2: gpu-broken, counts 1, for 11h 59m more" in joined
    assert "script/0 attempt 1: a GPU is visible and does not work (cause: node, exit code 89)" in joined


async def test_explain_tells_why_it_is_pending_and_that_it_is_paused(bed: Bed) -> None:
    bed.backend.starts_at_once = False
    bed.up(script())
    await bed.go(3)
    made = bed.backend.made[only(bed).token]
    made.seen = replace(made.seen, never="the partition has no GPUs")
    bed.change(paused=True)
    await bed.go(3)
    text = explain(bed.host.wants["w"], bed.host.tasks("w"), [], [], "", bed.clock.now())
    assert "  never: the partition has no GPUs" in text
    assert "  paused: what runs is left alone, nothing new is begun until `remuda unpause`" in text
