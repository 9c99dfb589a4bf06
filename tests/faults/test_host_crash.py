"""The host is killed at every step between deciding and recording; the next one finds and finishes everything."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Home, until
from tests.faults.dying_hosts import LIMIT_S, DyingHosts

from remuda.base.errors import Conflict, HostUnreachable, RemudaError
from remuda.base.ids import new_suffix
from remuda.plan.model import Command, Group, Kind, Replace, RestartRule, Role, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_STEPS = 60
STEPS = {
    f"{when} {what}"
    for when in ("before", "after")
    for what in ("record", "start", "end", "add_workloads", "end_workloads")
}


@pytest.fixture
def hosts(home: Home) -> Iterator[DyingHosts]:
    one = DyingHosts(home, "local")
    yield one
    one.close()


def workload(home: Home, name: str) -> dict[str, Any]:
    """Two tasks that run for long, without a router: what is tested is the supervisor's bookkeeping."""
    group = Group(
        name="script", role=Role.SCRIPT, count=2, command=Command(argv=("sleep", "600")),
        restart=RestartRule(policy="never"), replace=Replace(backoff_initial_s=0.1), kill_grace_s=2.0,
    )  # fmt: skip
    made = Workload(
        name=name, kind=Kind.RUN, uid=new_suffix(8), backend="local", groups=(group,),
        run_dir=str(home.paths.workload(name)),
    )  # fmt: skip
    return {"workload": json.loads(made.model_dump_json()), "spec": ""}


def bring_up(home: Home, asked: dict[str, Any]) -> dict[str, Any]:
    """Ask for it; empty while what was being taken down still ends."""
    try:
        view: dict[str, Any] = home.client.post("/workloads", asked)
    except Conflict:
        return {}
    return view


def living(home: Home) -> dict[str, set[str]]:
    """Task -> tokens of which any process lives."""
    found: dict[str, set[str]] = {}
    for token in set(home.tokens().values()):
        name, group, index, _, _ = token.rsplit(".", 4)
        found.setdefault(f"{name}/{group}/{index}", set()).add(token)
    return found


def one_life(home: Home, hosts: DyingHosts, step: int | str, name: str) -> str:
    """A life that ends somewhere in bringing it up or down, and one that goes on from there: where the first ended."""
    asked = workload(home, name)
    hosts.run(step)
    with suppress(RemudaError):
        home.client.post("/workloads", asked)
        deadline = time.monotonic() + LIMIT_S
        while home.view(name)["ready"] < 2:
            assert time.monotonic() < deadline, "it is not up"
            time.sleep(0.03)
        home.client.post(f"/workloads/{name}/down")
        while home.view(name)["phase"] != "DOWN":
            assert time.monotonic() < deadline, "it is not down"
            time.sleep(0.03)
    death = hosts.death()
    hosts.run(10_000)  # the user types the same again
    view = until(lambda: bring_up(home, asked), f"{name} is accepted after a death {death}")
    until(lambda: home.view(name)["ready"] == 2, f"{name} is up after a death {death}")
    alive = living(home)
    assert set(alive) == {f"{name}/script/0", f"{name}/script/1"}, (death, alive)
    assert all(len(tokens) == 1 for tokens in alive.values()), (death, alive)
    assert view["name"] == name
    home.client.post(f"/workloads/{name}/down")
    until(lambda: home.view(name)["phase"] == "DOWN", f"{name} is down")
    assert not living(home), death
    assert hosts.death() == "none"
    return death


@pytest.mark.timeout(3000)
def test_killed_at_every_step(home: Home, hosts: DyingHosts) -> None:
    deaths: list[str] = []
    for step in range(1, MOST_STEPS):
        deaths.append(one_life(home, hosts, step, f"w{step}"))
        if deaths[-1] == "none":
            break
    assert deaths[-1] == "none", "there are more steps than were tried"
    # How often something is recorded depends on the moment, so a step may have had another number in each life.
    missed = sorted(STEPS - set(deaths))
    assert [one_life(home, hosts, step, f"s{number}") for number, step in enumerate(missed)] == missed


def test_secrets_of_what_was_not_recorded_are_gone_with_the_next_host(home: Home, hosts: DyingHosts) -> None:
    asked = workload(home, "w")
    folder = home.paths.workload("w") / "secrets" / asked["workload"]["uid"]
    asked["workload"]["groups"][0]["command"]["secret_env"] = {"KEY": {"file": str(folder / "KEY")}}
    hosts.run("before add_workloads")
    with pytest.raises(HostUnreachable):
        home.client.post("/workloads", {**asked, "secrets": {"KEY": "open sesame"}})
    assert hosts.death() == "before add_workloads"
    assert (folder / "KEY").read_text() == "open sesame"
    hosts.run(10_000)
    until(home.client.is_up, "the next host")
    assert not home.paths.workload("w").exists()
    assert hosts.death() == "none"
