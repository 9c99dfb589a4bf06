"""Packs: one job for all tasks, and what is said of each of them when it has ended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.backends.base import CHILD_ENDED, Ending, Life, Observed, Rendered, Request, TaskKey, make_token
from remuda.backends.slurm import observing
from remuda.backends.slurm.arrays import in_calls, merge, one_by_one
from remuda.backends.slurm.observing import Queue, is_of
from remuda.backends.slurm.parsing.parse import QueueLine
from remuda.backends.slurm.render import SlurmSite, render
from remuda.node.guard.crew import env_of, heard, say_last_word, tell
from remuda.plan.compile import accept
from remuda.plan.context import Context
from remuda.plan.deployment import DeploymentSite, plan_deployment
from remuda.plan.deployment.packing import in_one_job
from remuda.plan.deployment.terms import asked_as
from remuda.plan.front import RouterSettings, router_group
from remuda.plan.gang import plan_gang
from remuda.plan.model import Pool, Workload
from remuda.specs.gang import GangSpec
from remuda.specs.reading.document import parse
from remuda.specs.recipe.load import build
from remuda.supervise.failures.causes import classify
from remuda.supervise.model import Cause
from remuda.wire.child import ChildSpec
from remuda.wire.crew import CrewSeat, CrewSpec
from remuda.wire.exit import FENCED, STOPPED, ExitRecord

SITE = SlurmSite(Path("/h/workloads"), Path("/h/node.pyz"), Path("/h/host.json"))
NAME = "g.pack.0.2.u1234567"


def planned(**fields: Any) -> Workload:
    spec = GangSpec(**{"ranks": 3, "command": ("python", "t.py"), "mode": "rigid", "backend": "slurm", **fields})
    context = Context(cwd="/here", state="/h", env={"PATH": "/bin", "MASTER_ADDR": "of-the-shell"}, gpus=())
    return accept(plan_gang(spec, context, name="g", pools=(Pool(name="p"),), nodes=2), "u1234567", 0.0)


def asked(workload: Workload) -> list[Rendered]:
    group = workload.groups[0]
    keys = [TaskKey("g", "rank", index) for index in range(group.count)]
    return [
        render(Request(key, 2, make_token(key, 2, workload.uid), workload, group, pools=group.pools), SITE)
        for key in keys
    ]


def test_all_tasks_are_one_call() -> None:
    fields = {"resources": {"gpus": 2}, "cpus_per_task": 3, "mem": "1GB", "time_limit": "1h", "account": "lab"}
    items = asked(planned(**fields))
    (call,) = merge(items)
    assert call.tokens == tuple(f"g.rank.{index}.2.u1234567" for index in range(3))
    assert (call.indices, call.is_batch, call.native("7", 2)) == ((), False, "7")
    words = f"--job-name={NAME} --partition=p --account=lab --gres=gpu:4 --cpus-per-task=6 --mem=2048M --nodes=2"
    words += " --ntasks-per-node=1 --time=01:00:00 --no-requeue --hold"
    assert set(words.split()) <= set(call.argv)
    assert call.argv[-1] == "/h/workloads/g/pack-0/attempt-2-u1234567/job.sh"
    assert merge(one := list(items)) == one_by_one(one), "what is one job is never sent apart"
    (shown,) = in_calls(items)
    assert shown.token == NAME
    folder = "/h/workloads/g/pack-0/attempt-2-u1234567"
    assert shown.files[f"{folder}/job.sh"].endswith(f"exec python3 -I -S /h/node.pyz crew {folder}/crew.json\n")
    crew = CrewSpec.from_json(shown.files[f"{folder}/crew.json"])
    assert [(seat.node, seat.place, seat.gpu, seat.gpus) for seat in crew.seats] == [
        (0, 0, 0, 2), (0, 1, 2, 2), (1, 0, 0, 2),
    ]  # fmt: skip
    children = [ChildSpec.from_json(shown.files[f"{seat.run_dir}/child.json"]) for seat in crew.seats]
    assert [child.token for child in children] == list(call.tokens)
    assert {child.guard for child in children} == {None}
    assert {"MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"}.isdisjoint(children[0].env), "these the crew says"


def test_modules_are_loaded_once_for_all() -> None:
    files = {path: text for item in asked(planned(modules=["cuda"])) for path, text in item.files.items()}
    assert [path for path in files if path.endswith("env.sh")] == ["/h/workloads/g/pack-0/attempt-2-u1234567/env.sh"]


RECIPE = """\
schema: 2
name: g
model: {path: /m, name: m}
engine: sglang
resources: {gpus_per_node: 4}
slurm: {partition: p, time_limit: "1:00:00"}
sbatch_directives: {mem: 9GB}
allocation: one-job
roles: ROLES
services: [{name: cache, command: [serve]}]
"""


def deployed(roles: str) -> Workload:
    spec = build(parse(RECIPE.replace("ROLES", roles), "r.yaml"))[0].loaded.spec
    site = DeploymentSite("g", "u1234567", "/h/workloads/g", "/python")
    plan = plan_deployment(spec, router_group("smg", RouterSettings(asked_as(spec), 4, group="frontend")), site)
    return in_one_job(plan.workload, spec)


def sent(workload: Workload) -> tuple[dict[str, Rendered], dict[str, ChildSpec]]:
    """Calls by their job's name, and the documents of node programs by task."""
    groups = [group for group in workload.groups if not group.backend]
    keys = [(group, TaskKey("g", group.name, index)) for group in groups for index in range(group.count)]
    items = [render(Request(key, 2, make_token(key, 2, workload.uid), workload, group), SITE) for group, key in keys]
    children = [
        ChildSpec.from_json(text) for item in items for path, text in item.files.items() if "child.json" in path
    ]
    return {call.token: call for call in in_calls(items)}, {child.task: child for child in children}


def test_workers_and_frontend_are_one_call_and_services_are_not() -> None:
    calls, children = sent(deployed("{prefill: {nodes: 1, workers: 2, gpus: 1}, decode: {nodes: 2, workers: 1}}"))
    assert list(calls) == [NAME, "g.cache.0.2.u1234567"]
    words = "--partition=p --gres=gpu:4 --exclusive --mem=0 --nodes=3 --ntasks-per-node=1 --time=01:00:00"
    assert set(words.split()) <= set(calls[NAME].argv)
    assert not any(word.startswith(("--cpus-per-task", "--ntasks=")) for word in calls[NAME].argv)
    assert not {"--nodes=3", "--exclusive"} & set(calls["g.cache.0.2.u1234567"].argv)
    crew = CrewSpec.from_json(calls[NAME].files["/h/workloads/g/pack-0/attempt-2-u1234567/crew.json"])
    assert [(seat.run_dir.split("/")[4], seat.node, seat.gpu, seat.gpus) for seat in crew.seats] == [
        ("prefill-0", 0, 0, 1), ("prefill-1", 0, 1, 1), ("decode-0", 1, 0, 4), ("frontend-0", 0, 2, 0),
    ]  # fmt: skip
    assert not crew.meet
    spread = children["decode/0"].spread
    assert spread is not None
    assert spread.first == 1


def test_on_shared_nodes_each_task_has_what_the_cluster_gives_to_one() -> None:
    calls, _ = sent(deployed("{prefill: {nodes: 1, workers: 2, gpus: 1}, decode: {nodes: 1, workers: 1, gpus: 3}}"))
    assert {"--gres=gpu:3", "--nodes=2", "--ntasks-per-node=3"} <= set(calls[NAME].argv)
    assert not {"--exclusive", "--mem=0"} & set(calls[NAME].argv)


def test_a_service_is_in_no_pack_of_that_attempt() -> None:
    service = "g.cache.0.2.u1234567"
    assert not is_of(service, NAME, "7")
    assert Queue([line("7")]).named(service) == []
    assert Queue([line("7"), line("8", service)]).named(service) == [line("8", service)]


def line(job: str, name: str = NAME, state: str = "RUNNING") -> QueueLine:
    return QueueLine(job, job, None, name, "me", state, "None", "p", "n[1-2]", 10.0, 20.0, 5.0, has_limit=False)


def test_its_tasks_are_found_by_the_name_of_the_pack() -> None:
    assert is_of("g.rank.1.2.u1234567", NAME, "7")
    assert not is_of("g.rank.1.1.u1234567", NAME, "7"), "another attempt"
    queue = Queue([line("8"), line("7"), line("9", "x.pack.0.2.u1234567")])
    assert [one.job_id for one in queue.named("g.rank.1.2.u1234567")] == ["7", "8"]


OVER = Observed(Life.ENDED, "7", "FAILED", "n1", ended_at=20.0)


def said(code: int | None, at: float = 20.0, *, own: bool = True, **more: Any) -> Observed:
    more = {"native_state": CHILD_ENDED if own else "FAILED", **more}
    return replace(OVER, exit_code=code, ended_at=at, reason=f"code {code}", **more)


@pytest.mark.parametrize(
    ("ends", "causes", "culprit"),
    [
        pytest.param([said(85, own=False), said(3, 19), said(85, own=False)], "gag", 1, id="one failed"),
        pytest.param([said(3, 19), said(3, 18.5), said(1, 19.5)], "gag", 1, id="the first of several"),
        pytest.param([said(0), said(3), said(None)], "-ag", 1, id="one was done, one was killed"),
        pytest.param([said(85, own=False, native_state="COMPLETED")] * 3, "uuu", None, id="all were asked to end"),
        pytest.param([said(85, own=False)] * 3, "?gg", 0, id="their crew was killed"),
        pytest.param([said(0), said(85, own=False), said(85, own=False)], "-?g", 1, id="and one was done"),
        pytest.param([said(FENCED, own=False), said(85, own=False), said(None)], "?gg", 0, id="one is history"),
        pytest.param([said(85, 19, ending=Ending.NODE_FAILED), said(None, ending=Ending.NODE_FAILED)], "gn", 1,
                     id="a node failed: who could say nothing was there"),
        pytest.param([said(85, ending=Ending.PREEMPTED)] * 2, "pp", None, id="preempted"),
        pytest.param([said(85, ending=Ending.CANCELLED, by="me")] * 2, "uu", None, id="a person's"),
    ],
)  # fmt: skip
def test_one_of_them_ended_the_others(ends: list[Observed], causes: str, culprit: int | None) -> None:
    tokens = [f"g.rank.{index}.2.u1234567" for index in range(len(ends))]
    seen = dict(zip(tokens, ends, strict=True))
    after = {**seen, **observing.judged(seen)}
    verdicts = [classify(after[token]) for token in tokens]
    letters = {"g": Cause.GROUP, "a": Cause.APPLICATION, "-": Cause.NONE, "u": Cause.USER, "?": Cause.UNKNOWN,
               "n": Cause.NODE, "p": Cause.PREEMPTION}  # fmt: skip
    assert [verdict.cause for verdict in verdicts] == [letters[letter] for letter in causes]
    counted = [verdict.counts and not verdict.success for verdict in verdicts]
    assert sum(counted) == (culprit is not None)
    for verdict in verdicts:
        if verdict.cause is Cause.GROUP:
            assert verdict.reason == f"ended with rank/{culprit}: {after[tokens[culprit or 0]].reason}"
            assert not verdict.evidence


@pytest.mark.parametrize(("name", "is_asked"), [(NAME, True), ("g.rank.0.2.u1234567", False), ("g.rank.7", False)])
def test_a_pack_that_was_asked_to_end_may_have_been_preempted(name: str, is_asked: bool) -> None:
    record = ExitRecord(token="g.rank.0.2.u1234567", attempt=2, code=85, at=20.0, reason="asked to end by SIGTERM")
    assert observing.is_unclear(line("7", name, "COMPLETED"), record) is is_asked


def test_packs_are_judged_apart() -> None:
    other = said(85, own=False, native="8", native_state="COMPLETED")
    seen = {"g.rank.0.2.u1234567": said(3), "h.rank.0.1.u7654321": other}
    assert observing.judged(seen) == {}


@pytest.mark.parametrize(
    ("seat", "environ", "told"),
    [
        (CrewSeat("/r", 0, 1, 2, 2), {"CUDA_VISIBLE_DEVICES": "4,5,6,7"},
         {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "6,7"}),
        (CrewSeat("/r", 0, 1, 0, 0), {"CUDA_VISIBLE_DEVICES": "4"}, {"LOCAL_RANK": "1"}),
        (CrewSeat("/r", 0, 0, 0, 1), {}, {"LOCAL_RANK": "0"}),
    ],
)  # fmt: skip
def test_what_a_task_is_told(seat: CrewSeat, environ: dict[str, str], told: dict[str, str]) -> None:
    assert env_of(seat, environ) == told
    assert env_of(seat, environ, ranks=False) == {name: text for name, text in told.items() if name != "LOCAL_RANK"}


def test_what_was_told_stays_told(tmp_path: Path) -> None:
    assert heard(tmp_path) == {"stop": False, "warn": False}, "nothing can be read yet"
    tell(tmp_path)
    tell(tmp_path, warn=True)
    tell(tmp_path, stop=True)
    assert heard(tmp_path) == {"stop": True, "warn": True}
    (tmp_path / "told.json").write_text("{")
    assert heard(tmp_path) == {"stop": False, "warn": False}


def test_the_last_word_of_a_node_program_that_was_killed(tmp_path: Path) -> None:
    spec = ChildSpec("t.rank.0.1.u1234567", "t", "rank/0", 1, ["x"], str(tmp_path))
    (tmp_path / "child.json").write_text(spec.to_json())
    say_last_word(str(tmp_path), 9)
    record = ExitRecord.from_json((tmp_path / "exit.json").read_text())
    assert (record.code, record.reason) == (137, "its node program was killed by signal 9")
    (tmp_path / "exit.json").write_text(json.dumps({"token": "t", "attempt": 1, "code": STOPPED, "at": 1.0}))
    say_last_word(str(tmp_path), 9)
    assert ExitRecord.from_json((tmp_path / "exit.json").read_text()).code == STOPPED, "its own word counts more"
