"""Who carries campaigns out: killed at every step it does each once, and never more at once than it may."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.bench.test_store import point
from tests.unit.supervise.bed import Bed, Killed
from tests.unit.supervise.build import group

from remuda.base.disk.paths import StatePaths
from remuda.base.errors import Conflict, NotFound, Unwritable
from remuda.bench.store import PointStore
from remuda.host.reconcilers.campaign_bodies import CampaignBody, PlannedRow, is_known
from remuda.host.reconcilers.campaigns import Campaigns
from remuda.host.reconcilers.job_rows import JobKeeper
from remuda.host.service import Service
from remuda.plan.job import ENDPOINT, NOW, SLOTS, filled
from remuda.plan.model import Command, Endpoint, Kind, Replace, Role, Secret, Workload
from remuda.supervise.campaign import FAILED
from remuda.supervise.reconciler import Moment, Turns
from remuda.views.job_folders import META, JobFolder, described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STEPS = ("record_campaign", "add_workloads", "end_workloads", "record_jobs")
NEVER = Replace(policy="never")


class Driven(Turns):
    """No turns beside the test, which takes each itself: a host that is killed does nothing any more."""

    def wake(self) -> None:
        """The next turn comes when the test takes it, not when the machine has time for it."""


class Site:
    """A state directory, a backend, and the host of the moment."""

    def __init__(self, root: Path) -> None:
        self.paths = StatePaths(root)
        self.bed = Bed(root / "remuda.db")
        self.most, self.code, self.is_slow = 0, 0, False
        self.new_host()

    def new_host(self) -> None:
        self.bed.new_host()
        self.jobs = JobKeeper(self.bed.journal, self.bed.host, self.paths, self.bed.clock)
        self.service = Service(self.bed.journal, self.bed.host, self.paths, self.bed.clock)
        self.campaigns = Campaigns(self.service, self.jobs)
        self.campaigns.turns = Driven(self.campaigns._turn, "campaigns")

    def body(self, *names: str, bound: int = 2, tag: str = "", **changes: Any) -> CampaignBody:
        rows = [self.row(name, f"{name}{tag}", **changes) for name in names]
        return CampaignBody(name="p", kind="pool", document="p.yaml", bound=bound, rows=rows)

    def row(self, name: str, address: str, *, has_job: bool = True, **changes: Any) -> PlannedRow:
        swarm = Workload(
            name=name, kind=Kind.SWARM, uid=f"uid{address}", backend="fake", run_dir=str(self.paths.workload(name)),
            groups=(group(count=1),), endpoint=Endpoint(port=9000, model="m"), digest=name,
        )  # fmt: skip
        folder = JobFolder(self.paths, f"{name}-job")
        command = Command(
            argv=("drive",), env={"URL": f"{ENDPOINT}/v1"}, secret_env={"KEY": Secret(file=f"/s/{swarm.uid}/K")}
        )  # fmt: skip
        driver = group("driver", 1, role=Role.DRIVER, replace=NEVER).model_copy(
            update={"command": command, "probe": None, "listen": None}
        )  # fmt: skip
        meta = json.dumps({"created_at": NOW, **described("script", "s.py", name, "fake")})
        job = Workload(
            name=folder.id, kind=Kind.JOB, uid=f"job{address}", backend="fake", groups=(driver,),
            run_dir=str(self.paths.workload(folder.id)), files={str(folder.path / META): meta},
        )  # fmt: skip
        return PlannedRow(address=address, workload=swarm, job=job if has_job else None, **changes)

    async def go(self, rounds: int = 60) -> list[dict[str, Any]]:
        """Let the world and the host go on until all is over, or for so many rounds."""
        for _ in range(rounds):
            await self.bed.go(2)
            for token in self.bed.backend.living():
                if ".driver." not in token and not self.is_slow:
                    self.bed.host.take(self.bed.backend.report(token))
                elif ".driver." in token and not self.is_slow:
                    self.bed.backend.end(token, self.code)
            self.most = max(self.most, len({token.split(".")[0] for token in self.swarms(living=True)}))
            await self.campaigns._turn()
            if all(row["step"] == "over" for row in self.rows()):
                break
        return self.rows()

    def rows(self) -> list[dict[str, Any]]:
        return list(self.campaigns.view("p")["rows"])

    def outcomes(self) -> list[str]:
        return [row["outcome"] for row in self.rows()]

    def swarms(self, *, living: bool = False) -> list[str]:
        tokens = self.bed.backend.living() if living else [*self.bed.backend.made]
        return [token for token in tokens if ".replica." in token]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.bed.close()


def kill_at(site: Site, at: int) -> Callable[[], bool]:
    """Kill the host before or after its k-th write; whether it was."""
    left = at

    def count() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise Killed

    def wrapped(act: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **more: Any) -> Any:
            count()
            found = act(*args, **more)
            count()
            return found

        return write

    real = {name: getattr(site.bed.store, name) for name in STEPS}
    for name, act in real.items():
        setattr(site.bed.store, name, wrapped(act))

    def revive() -> bool:
        for name, act in real.items():
            setattr(site.bed.store, name, act)
        return left <= 0

    return revive


async def killed(root: Path, at: int) -> bool:
    """A campaign whose host is killed at a step, and the next goes on; whether there was such a step."""
    site = Site(root)
    body, revive = site.body("a", "b", "c"), kill_at(site, at)
    try:
        await site.campaigns.begin(body)
        await site.go()
    except Killed:
        revive()
        site.new_host()
        await site.campaigns.begin(body)  # the command that was not answered asks again
        await site.go()
    was_killed = revive()
    assert site.outcomes() == ["done"] * 3, at
    assert site.most <= 2, at
    assert sorted(token.split(".")[0] for token in site.swarms()) == ["a", "b", "c"], at
    drivers = [token.split(".")[0] for token in site.bed.backend.made if ".driver." in token]
    assert sorted(drivers) == ["a-job", "b-job", "c-job"], at
    assert site.bed.backend.living() == []
    site.bed.close()
    return was_killed


async def test_killed_at_every_step_each_is_done_once_and_never_more_than_may_be(tmp_path: Path) -> None:
    at = 1
    while await killed(tmp_path / str(at), at):
        at += 1
    assert at > 50


async def test_a_job_knows_its_swarm_when_it_is_sent(site: Site) -> None:
    await site.campaigns.begin(site.body("a"))
    await site.go()
    command = site.bed.host.wants["a-job"].workload.groups[0].command
    assert command.env["URL"] == f"{site.service.view('a').endpoint}/v1"
    meta = JobFolder(site.paths, "a-job").read(META)
    assert 0.0 < site.bed.clock.now() - meta["created_at"] < 60.0
    assert site.rows()[0]["job_id"] == "a-job"


def test_marks_of_a_job_are_filled(site: Site) -> None:
    job = site.row("a", "a").job
    assert job is not None
    job = job.model_copy(update={"files": {"/f": f'{{"slots": "{SLOTS}", "url": "{ENDPOINT}", "key": "/s/uida/K"}}'}})
    made = filled(job, "http://h:1", ("uida", "uidb"), 5.0, 8)
    assert json.loads(made.files["/f"]) == {"slots": 8, "url": "http://h:1", "key": "/s/uidb/K"}
    assert made.groups[0].command.env == {"URL": "http://h:1/v1"}
    assert made.uid == job.uid


async def test_what_is_up_already_gets_a_job_and_stays(site: Site) -> None:
    other = site.row("a", "other").workload
    assert other is not None
    site.service.create(other)
    await site.campaigns.begin(site.body("a"))
    (row,) = await site.go()
    assert (row["outcome"], row["is_ours"], row["uid"]) == ("done", False, "uidother")
    command = site.bed.host.wants["a-job"].workload.groups[0].command
    assert command.secret_env["KEY"].file == "/s/uidother/K"
    assert site.service.view("a").phase == "RUNNING"


@pytest.mark.parametrize(("code", "outcome", "reason"), [(0, "done", ""), (3, "failed", "it is FAILED: ")])
async def test_what_ends_by_itself_is_over_with_that(site: Site, code: int, outcome: str, reason: str) -> None:
    site.code, body = code, site.body("a", "b", bound=1, has_job=False)
    for planned in body.rows:
        driver = group("driver", 1, role=Role.DRIVER, replace=NEVER).model_copy(update={"probe": None, "listen": None})
        assert planned.workload is not None
        own = {"groups": (*planned.workload.groups, driver), "ends_with": "driver"}
        planned.workload = planned.workload.model_copy(update=own)
    await site.campaigns.begin(body)
    rows = await site.go()
    assert [row["outcome"] for row in rows] == [outcome, outcome]
    assert all(row["reason"].startswith(reason) and bool(row["reason"]) == bool(reason) for row in rows)
    assert (site.most, site.bed.backend.living(), len(site.swarms())) == (1, [], 2)


async def test_what_failed_begins_anew_and_what_is_done_stays(site: Site) -> None:
    site.code = 3
    await site.campaigns.begin(site.body("a"))
    (row,) = await site.go()
    assert row["outcome"] == "failed"
    assert row["reason"].startswith("its job is FAILED: ")
    site.code = 0
    again = site.body("a")
    again.rows[0].job = site.row("b", "b").job
    await site.campaigns.begin(again)
    assert [row["outcome"] for row in await site.go()] == ["done"]
    made = len(site.bed.backend.made)
    await site.campaigns.begin(again)
    await site.go()
    assert len(site.bed.backend.made) == made, "nothing is done twice"


async def test_a_sweep_is_no_pool_and_says_how_it_is_ended(site: Site) -> None:
    sweep = site.body("a").model_copy(update={"kind": "sweep"})
    await site.campaigns.begin(sweep)
    with pytest.raises(Conflict, match="'p' is a sweep") as told:
        await site.campaigns.begin(site.body("a"))
    assert told.value.hint == "give the pool another name"
    await site.go(1)
    with pytest.raises(Conflict, match="sweep 'p' was asked for otherwise before, and a is ") as told:
        await site.campaigns.begin(site.body("a", tag="2").model_copy(update={"kind": "sweep"}))
    assert told.value.hint == "wait for it, or end it: remuda sweep cancel p"


async def test_commands_of_a_sweep_know_no_pool(site: Site) -> None:
    begin = {"sweep": "begin one: remuda apply FILE --sweep", "pool": "begin one: remuda pool -c FILE", "": ""}
    await site.campaigns.begin(site.body("a"))
    for name, kind, hint in (
        ("p", "sweep", begin["sweep"]), ("nope", "sweep", begin["sweep"]), ("nope", "pool", begin["pool"]),
        ("nope", "", ""), ("pp", "pool", "did you mean 'p'?"),
    ):  # fmt: skip
        with pytest.raises(NotFound) as told:
            await site.campaigns.cancel(name, kind)
        assert (told.value.message, told.value.hint) == (f"there is no {kind or 'campaign'} {name!r}", hint)
    assert site.campaigns.views("sweep") == []
    (listed,) = site.campaigns.views("pool")
    assert {key: listed[key] for key in ("name", "document", "deployments", "waiting", "going", "done", "failed")} == {
        "name": "p", "document": "p.yaml", "deployments": 1, "waiting": 1, "going": 0, "done": 0, "failed": 0,
    }  # fmt: skip
    assert [row["outcome"] for row in await site.go()] == ["done"], "the pool was not ended"
    assert site.campaigns.views("") == site.campaigns.views("pool")
    assert site.campaigns.views("")[0]["done"] == 1


async def test_what_a_row_measures_is_told_when_it_is_asked_for(site: Site) -> None:
    body = site.body("a", "b")
    body.rows[0].points = [{"address": "x", "load": "c=1"}]
    await site.campaigns.begin(body)
    assert "points" not in site.campaigns.view("p")
    site.new_host()
    assert site.campaigns.view("p", "pool", with_points=True)["points"] == body.rows[0].points


async def test_one_that_ended_with_its_benchmark_is_no_answer_to_the_next(site: Site) -> None:
    driver = group("driver", 1, role=Role.DRIVER, replace=NEVER).model_copy(update={"probe": None, "listen": None})
    planned = site.row("a", "1").workload
    assert planned is not None
    own = {"groups": (*planned.groups, driver), "ends_with": "driver", "digest": "of its document"}
    first, second = (planned.model_copy(update={**own, "uid": uid}) for uid in ("uid1", "uid2"))
    assert site.service.create(first).uid == "uid1"
    assert site.service.create(second).uid == "uid1", "it is up, and typed again"
    await site.campaigns.begin(site.body("b", has_job=False))
    await site.go()
    assert site.service.view("a").phase == "DONE"
    assert site.service.create(first).uid == "uid1", "a command that was not answered asks again"
    assert site.service.create(second).uid == "uid2"


def sweep_of(site: Site, name: str, rows: dict[str, str], bound: int = 1) -> CampaignBody:
    """Rows that end by themselves, each with the addresses of its points."""
    driver = group("driver", 1, role=Role.DRIVER, replace=NEVER).model_copy(update={"probe": None, "listen": None})
    body = site.body(*rows, has_job=False, tag=name).model_copy(update={"name": name, "kind": "sweep", "bound": bound})
    for planned, said in zip(body.rows, rows.values(), strict=True):
        assert planned.workload is not None
        own = {"groups": (*planned.workload.groups, driver), "ends_with": "driver", "digest": planned.workload.uid}
        planned.workload = planned.workload.model_copy(update=own)
        planned.points = [{"address": one * 20, "repeats": 1} for one in said]
    return body


def steps(site: Site, name: str) -> dict[str, str]:
    return {row["name"]: row["step"] for row in site.campaigns.view(name)["rows"]}


async def test_what_another_sweep_measures_at_the_moment_is_waited_for(site: Site) -> None:
    """Their first rows share the point `y`, and the last have one name; the second row of `q` is free."""
    site.is_slow = True
    await site.campaigns.begin(sweep_of(site, "p", {"a": "xy", "d": "v"}, bound=2))
    await site.go(2)
    await site.campaigns.begin(sweep_of(site, "q", {"b": "yz", "c": "w", "d": "u"}, bound=3))
    await site.go(3)
    assert steps(site, "p") == {"a": "starting", "d": "starting"}
    assert steps(site, "q") == {"b": "waiting", "c": "starting", "d": "waiting"}
    told = {row["name"]: row["told"] for row in site.campaigns.view("q")["rows"]}
    assert told["b"] == told["d"] == "sweep 'p' measures points of it now"
    site.new_host()
    await site.go(2)
    assert steps(site, "q")["b"] == "waiting", "the next host waits, too"
    site.is_slow = False
    while {*steps(site, "q").values()} != {"over"}:
        await site.go(5)
        if steps(site, "q")["b"] != "waiting":
            assert steps(site, "p")["a"] == "over"
    assert [row["outcome"] for name in "pq" for row in site.campaigns.view(name)["rows"]] == ["done"] * 5


async def test_what_the_other_sweep_has_measured_is_not_brought_up(site: Site) -> None:
    kept = PointStore(site.paths.root / "bench")
    await site.campaigns.begin(sweep_of(site, "p", {"a": "xy"}))
    await site.go(2)
    await site.campaigns.begin(sweep_of(site, "q", {"b": "y", "c": "yz"}))
    for address, verdict in (("x", "valid"), ("y", "suspect"), ("z", "invalid")):
        kept.write(replace(point(), id=address * 20, verdict=verdict), [])
    for _ in range(30):
        await site.go(2)
    assert [row["outcome"] for row in site.campaigns.view("q")["rows"]] == ["done", "done"]
    assert sorted({token.split(".")[0] for token in site.swarms()}) == ["a", "c"], "`c` lacks a point that counts"


async def test_what_answers_and_commands_of_another_came_to_is_not_brought_up(site: Site) -> None:
    kept = PointStore(site.paths.root / "bench")
    kept.write(replace(point(), id="x" * 20, accuracy={"question": "q"}), [], b"")
    kept.ran("done")
    cases = [("q", "asks", True), ("x" * 20, "asks", False), ("done", "command", True), ("other", "command", False)]
    for address, what, is_there in cases:
        plan = json.dumps({"points": [{"address": address, what: True, "repeats": 1}]})
        assert is_known(plan, site.paths.root) is is_there, (address, what)


async def test_two_pools_may_share_a_swarm(site: Site) -> None:
    await site.campaigns.begin(site.body("a"))
    await site.go(3)
    other = site.body("a").model_copy(update={"name": "o"})
    other.rows[0].job = site.row("b", "b").job
    await site.campaigns.begin(other)
    await site.go(1)
    assert steps(site, "o") != {"a": "waiting"}


async def test_one_that_would_fail_is_told_and_the_others_go_on(site: Site) -> None:
    body = site.body("a", "b")
    body.rows[0].outcome, body.rows[0].reason = FAILED, "there is no model 'x'"
    await site.campaigns.begin(body)
    await site.go()
    assert [(row["outcome"], row["reason"]) for row in site.rows()] == [
        ("failed", "there is no model 'x'"),
        ("done", ""),
    ]


async def test_another_document_of_its_name_waits_for_the_first(site: Site) -> None:
    await site.campaigns.begin(site.body("a", "b", bound=1))
    await site.go(1)
    with pytest.raises(Conflict) as caught:
        await site.campaigns.begin(site.body("a", "b", tag="2"))
    assert caught.value.message == "pool 'p' was asked for otherwise before, and a is starting"
    assert caught.value.hint == "wait for it, or end it: remuda pool -c p.yaml --cancel"


async def test_it_is_cancelled_at_any_step(site: Site) -> None:
    with pytest.raises(NotFound, match="there is no campaign 'p'"):
        await site.campaigns.cancel("p")
    for step in range(8):
        tag = f"-{step}"
        await site.campaigns.begin(site.body("a", "b", bound=1, tag=tag))
        await site.go(step)
        await site.campaigns.cancel("p")
        for row in await site.go():
            assert (row["step"], row["reason"] in ("", "cancelled")) == ("over", True)
        assert site.bed.backend.living() == [], step


async def test_who_is_kept_holds_its_place_until_it_is_down(site: Site) -> None:
    body = site.body("a", "b", bound=1)
    body.rows[0].keeps = True
    await site.campaigns.begin(body)
    await site.go(20)
    assert site.outcomes() == ["done", ""]
    site.service.down("a")
    assert site.campaigns.due(Moment(site.bed.host.wants["a"], site.bed.host.tasks("a"))).actions, "it is told of that"
    await site.go()
    assert site.outcomes() == ["done", "done"]


async def test_its_limits_move_with_the_clock_and_with_a_host_that_stood_still(site: Site) -> None:
    site.bed.backend.starts_at_once, site.is_slow = False, True
    await site.campaigns.begin(site.body("a", queue_timeout_s=60.0))
    await site.go(3)
    site.bed.clock.stop(3600.0)
    site.bed.clock.set_by(86400.0)
    await site.go(3)
    assert site.outcomes() == [""]
    site.bed.clock.advance(25.0)
    await site.go()
    assert site.rows()[0]["reason"].startswith("nothing of it has started within 1m")


async def test_a_database_without_room_ends_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.campaigns.begin(site.body("a"))
    real = site.bed.store.record_campaign

    def refuse(*_: Any, **__: Any) -> None:
        raise Unwritable("no room")

    monkeypatch.setattr(site.bed.store, "record_campaign", refuse)
    await site.go(5)
    monkeypatch.setattr(site.bed.store, "record_campaign", real)
    await site.go()
    assert site.outcomes() == ["done"]


async def test_secrets_are_kept_in_a_file_until_it_is_over(site: Site) -> None:
    body = site.body("a")
    body.secrets = {"KEY": "s3cret"}
    await site.campaigns.begin(body)
    file = site.paths.root / "campaigns" / "p.json"
    assert file.stat().st_mode & 0o777 == 0o600
    await site.go()
    assert not file.exists()
    await site.campaigns.begin(body)
    assert not file.exists(), "nothing is brought up any more"
    assert site.campaigns.prune(site.bed.clock.now() + 1) == 1
    assert site.bed.store.campaigns() == []
