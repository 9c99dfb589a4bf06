"""Settings of a run that is kept: read, refused, changed, and recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.supervise.bed import Bed, Killed, only
from tests.unit.supervise.build import group

from remuda.backends.base import Cluster, Feature, Node, PoolInfo
from remuda.base.asker import asking
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import BackendUnreachable, InputError, NotFound
from remuda.host.service import NewWorkload, Service
from remuda.host.settings import NOW, SETTABLE, SHEPHERDS, change_settings, settings_of
from remuda.plan.compile import accept
from remuda.plan.context import Context
from remuda.plan.model import Kind, Pool, Workload
from remuda.plan.run import plan_run
from remuda.specs.run import RunSpec
from remuda.supervise.model import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from remuda.host.settings import SettingView

NODES = tuple(
    Node(f"{pool}-{i}", "idle", usable=True, pools=(pool,), cpus=8, mem_bytes=2**36) for pool in "abc" for i in range(3)
)


class Site:
    """A run that is kept by a host with a real database, on a backend that the test commands."""

    def __init__(self, root: Path) -> None:
        self.bed = Bed(root / "remuda.db")
        self.bed.backend.features |= {Feature.POOLS}
        self.bed.backend.has = Cluster(NODES, (PoolInfo("a"), PoolInfo("b", max_time_s=3600), PoolInfo("c")))
        self.root = root
        self.new_host()

    def new_host(self) -> None:
        self.service = Service(self.bed.journal, self.bed.host, StatePaths(self.root), self.bed.clock)

    def begin(self, **fields: Any) -> None:
        spec = RunSpec.model_validate({"script": "train.sh", "partitions": "a,b", "backoff_base": 1, **fields})
        planned = plan_run(
            spec, Context(cwd="/", state=str(self.root)), name="w", backend="fake", script="/train.sh",
            pools=tuple(Pool(name=name, place={"partition": name}) for name in spec.partitions),
        )  # fmt: skip
        workload = accept(planned, "u1", self.bed.clock.now())
        self.service.create_many([NewWorkload(workload, json.dumps(spec.model_dump(mode="json", exclude_none=True)))])

    async def set(self, by: str = "", **changes: str) -> list[SettingView]:
        mark = asking.set(by)
        try:
            return await change_settings(self.service, "w", changes)
        finally:
            asking.reset(mark)

    def value(self, key: str) -> Any:
        (view,) = [view for view in settings_of(self.service, "w") if view.key == key]
        return view.value

    def story(self) -> list[str]:
        return [line.reason for line in self.bed.story() if line.kind == "intent"]

    @property
    def workload(self) -> Workload:
        """As a host that starts anew has it."""
        return self.bed.journal.wants()[0].workload


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.bed.close()


async def test_every_setting_is_listed_with_its_value_and_can_be_set(site: Site) -> None:
    site.begin(mode="indefinite")
    listed = {view.key: view for view in settings_of(site.service, "w")}
    assert set(listed) == set(SETTABLE)
    assert all(view.meaning and view.counts in ("now", "next attempt") for view in listed.values())
    assert (listed["partitions"].value, listed["backoff_base"].value, listed["mem"].value) == (["a", "b"], 1.0, None)
    values = {
        "partitions": "c", "signal": "USR1@60", "time_limit": "30m", "mem": "2GB", "hedge": "true", "account": "x",
        "qos": "x", "constraint": "x", "reservation": "x", "exclude_nodes": "a-1", "node_list": "a-2",
        "no_blacklist": "true", "cpus_per_task": "2", "backoff_base": "7",
    }  # fmt: skip
    for key in SETTABLE:
        before = site.value(key)
        (view,) = await site.set(**{key: values.get(key, "301")})
        assert view.value != before, key
        assert site.value(key) == view.value


async def test_a_change_counts_for_the_life_of_the_run_and_over_hosts(site: Site) -> None:
    site.begin(max_retries=0)
    await site.bed.go(5)
    assert await site.set(max_retries="2", backoff_base="3s", backoff_max="3s")
    site.bed.new_host()
    site.new_host()
    assert site.value("max_retries") == 2
    for attempt in (2, 3):
        site.bed.backend.end(only(site.bed).token, 1, ran_s=500.0)
        await site.bed.go(10)
        assert only(site.bed).attempt == attempt
    site.bed.backend.end(only(site.bed).token, 1, ran_s=500.0)
    await site.bed.go(10)
    assert only(site.bed).phase is Phase.FAILED


async def test_who_changed_what_and_when_is_a_line_of_its_story(site: Site) -> None:
    site.begin()
    site.bed.clock.advance(60)
    await site.set(by="ada@login1", max_retries="3", partitions="c", hedge="true")
    (line,) = [line for line in site.bed.story() if line.kind == "intent"][1:]
    assert line.reason == (
        "set max_retries from what is built in to 3; partitions from a,b to c; hedge from false to true by ada@login1"
    )
    assert line.at == site.bed.clock.now()
    await site.set(max_retries="")
    assert site.story()[-1] == "set max_retries from 3 to what is built in"


async def test_what_runs_goes_on_and_what_has_ended_is_not_begun_again(site: Site) -> None:
    site.begin()
    await site.bed.go(5)
    before = only(site.bed)
    await site.set(partitions="c", time_limit="1h", max_retries="50")
    await site.bed.go(5)
    assert (only(site.bed).token, only(site.bed).phase) == (before.token, before.phase)
    site.bed.backend.end(only(site.bed).token, 1)
    await site.bed.go(60)
    request = site.bed.backend.requests[only(site.bed).token]
    assert [pool.name for pool in request.pools] == ["c"]
    assert request.group.resources.time_limit_s == 3600
    site.bed.backend.end(only(site.bed).token, 0)
    await site.bed.go(5)
    await site.set(max_retries="7")
    await site.bed.go(60)
    assert only(site.bed).phase is Phase.DONE


async def test_where_it_may_run_is_checked_against_the_cluster(site: Site) -> None:
    site.begin()
    with pytest.raises(InputError, match="there is no partition 'd'"):
        await site.set(partitions="d")
    with pytest.raises(InputError, match="no partition fits") as caught:
        await site.set(partitions="b", time_limit="2h")
    assert caught.value.hint == "b: at most 1h, 2h asked"
    assert site.story() == ["brought up"]
    await site.set(time_limit="2h")
    assert [pool.name for pool in site.workload.group("script").pools] == ["a"], "b gives no two hours"
    await site.set(partitions="")
    assert {pool.name for pool in site.workload.group("script").pools} == {"a", "c"}
    site.bed.backend.silent = {"cluster"}
    await site.set(partitions="x,y")
    assert [pool.name for pool in site.workload.group("script").pools] == ["x", "y"], "taken unchecked, as at its start"
    with pytest.raises(BackendUnreachable, match="no partition can be chosen"):
        await site.set(partitions="")


async def test_a_time_that_is_over_later(site: Site) -> None:
    site.begin(mode="indefinite", keep_alive="1h")
    await site.bed.go(5)
    site.bed.clock.advance(1800)
    await site.set(max_retries="5")
    until = site.workload.group("script").replace.until
    await site.set(keep_alive="2h")
    assert site.workload.group("script").replace.until == pytest.approx(until + 5400, abs=10)
    await site.set(keep_alive="")
    assert site.workload.group("script").replace.until == 0


@pytest.mark.parametrize(
    ("changes", "said", "hint"),
    [
        ({"max_retrys": "3"}, "a run has no setting 'max_retrys'", "did you mean 'max_retries'?"),
        ({"max-retries": "x"}, "max-retries=x".replace("-", "_") + ": `max_retries` must be a whole number, not x", ""),
        ({"max_retries": "-1"}, "`max_retries` must be at least 0, not -1", ""),
        ({"zzz": "1"}, "a run has no setting 'zzz'", "known: account, backoff_base"),
        ({"gpus": "4"}, "`gpus` is fixed when a run is started", "stop it, and start it with another value"),
        ({"heartbeat_interval": "4"}, "`heartbeat_interval` is fixed", ""),
        ({"time_limit": "soon"}, "`time_limit`", ""),
        ({"signal": "NONE@4"}, "must be a signal and seconds, not 'NONE@4'", "write TERM@90 or USR1@300"),
        ({"backoff_max": "0.5"}, "`backoff_max` is 0.5 s, less than the 1 s of `backoff_base`", ""),
        ({"keep_alive": "1h"}, "`keep_alive` is for `mode: indefinite`", ""),
        ({}, "nothing is to be changed", "write KEY=VALUE"),
    ],
)
async def test_what_cannot_be_is_refused_in_a_sentence_and_changes_nothing(
    site: Site, changes: dict[str, str], said: str, hint: str
) -> None:
    site.begin()
    before = (site.workload, site.story())
    with pytest.raises(InputError) as caught:
        await site.set(**{"quick_failure": "9", **changes} if changes else {})
    assert said in str(caught.value)
    assert hint in caught.value.hint
    assert (site.workload, site.story()) == before


async def test_shepherds_names_and_flags_are_understood(site: Site) -> None:
    site.begin()
    assert set(SHEPHERDS.values()) <= set(SETTABLE)
    await site.set(**{"blacklist_ttl_sec": "60", "Max-Retries": "4", "partition": "c"})
    assert [site.value(key) for key in ("blacklist_ttl", "max_retries", "partitions")] == [60.0, 4, ["c"]]


async def test_only_runs_have_settings(site: Site) -> None:
    swarm = Workload(
        name="w",
        kind=Kind.SWARM,
        uid="u1",
        backend="fake",
        run_dir=str(StatePaths(site.root).workload("w")),
        groups=(group(),),
    )
    site.service.create(swarm)
    with pytest.raises(InputError, match="'w' is a swarm, and only runs have settings that can be changed"):
        settings_of(site.service, "w")
    with pytest.raises(NotFound):
        settings_of(site.service, "v")


async def test_a_write_that_fails_changes_neither_the_record_nor_what_the_host_believes(site: Site) -> None:
    site.begin()
    before = (site.workload, site.bed.host.wants["w"], site.story())

    def kill(_: str) -> None:
        raise Killed

    site.bed.journal.hook = kill
    with pytest.raises(Killed):
        await site.set(max_retries="3")
    assert (site.workload, site.bed.host.wants["w"], site.story()) == before


def test_what_counts_at_once_is_what_the_host_decides(site: Site) -> None:
    assert {key for key, when in SETTABLE.items() if when == NOW} == {
        "max_retries", "heal_after", "quick_failure", "backoff_base", "backoff_max", "keep_alive", "heartbeat_grace",
        "kill_grace",
    }  # fmt: skip


@pytest.mark.parametrize(("mode", "retries"), [("run_once", 10), ("indefinite", None)])
async def test_what_was_not_asked_for_is_shown_as_it_counts(site: Site, mode: str, retries: int | None) -> None:
    site.begin(mode=mode)
    assert site.value("max_retries") == retries
    await site.set(max_retries="3")
    assert site.value("max_retries") == 3
