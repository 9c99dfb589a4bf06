"""What a plan leaves open, and what accepting it fills in."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import remuda
from remuda.plan.compile import AT, UID, accept
from remuda.plan.context import Context
from remuda.plan.gang import plan_gang
from remuda.plan.model import INDEX_MARK, Command, Replace, Workload
from remuda.plan.run import plan_run
from remuda.specs.gang import GangSpec
from remuda.specs.run import RunSpec

CONTEXT = Context(cwd="/c", state="/h")


def run(**fields: Any) -> Workload:
    return plan_run(RunSpec(script="t.sh", **fields), CONTEXT, name="t", backend="local", script="/c/t.sh")


@given(st.text(), st.dictionaries(st.from_regex(r"[A-Z]{1,5}", fullmatch=True), st.text(max_size=20), max_size=3))
def test_only_the_marks_change(text: str, env: dict[str, str]) -> None:
    """A script is kept to the byte, whatever stands in it; a second time nothing changes."""
    planned = run(env=env)
    path = planned.groups[0].command.argv[0]
    planned = planned.model_copy(update={"files": {path: f"{UID}{text}{AT}"}})
    made = accept(planned, "abc", 5.0)
    assert made.files == {path.replace(UID, "abc"): f"{UID}{text}{AT}"}
    assert made.uid == "abc"
    assert UID not in made.model_copy(update={"files": {}}).model_dump_json()
    assert accept(made, "other", 9.0) == made
    back = {**made.groups[0].command.env}
    back.pop("REMUDA_SCRIPT_DIR")
    assert back == env


@pytest.mark.parametrize(
    ("planned", "until"),
    [
        pytest.param(run(), 0.0, id="a run without an end"),
        pytest.param(run(mode="indefinite", keep_alive=60.0), 1060.0, id="a run that is kept for a while"),
        pytest.param(
            plan_gang(GangSpec(ranks=2, command=("x",), timeout=7.0), CONTEXT, name="g"), 1007.0, id="a gang in time"
        ),
    ],
)
def test_what_lasts_a_while_counts_from_when_it_was_accepted(planned: Workload, until: float) -> None:
    assert planned.groups[0].replace.until == 0, "a plan knows no time of day"
    replace = accept(planned, "u", 1000.0).groups[0].replace
    assert (replace.until, replace.keep_s) == (until, 0.0)


def test_a_plan_of_one_document_is_always_the_same() -> None:
    assert run(gpus=2) == run(gpus=2)
    assert Replace(keep_s=3.0).begun(2.0) == Replace(until=5.0)
    assert Command(argv=(UID,)).argv == (UID,)


ALLOWED = {  # file -> why it may read the surroundings of its process, besides `base`
    "look/caller.py": "collects the context",
    "look/engines.py": "asks an engine for its flags",
    "look/facts.py": "finds out what planning asks",
    "client/api/executor.py": "ranks are started by this interpreter",
    "look/allocate.py": "the host gives out the GPUs of its machine",
    "client/jobs/targets.py": "an endpoint and its key are named by variables",
    "client/http.py": "starts the host with this interpreter and environment",
    "look/deployment_records.py": "facts.json says which interpreter made the plan",
    "client/bench/accuracy.py": "lm-eval takes a token and its settings from variables",
    "client/bench/deployed.py": "runs in a driver's process",
    "client/upkeep/doctor.py": "is asked about the surroundings",
    "client/jobs/drivers.py": "a driver's own environment, and the interpreter that runs drivers",
    "client/bench/job.py": "runs in a driver's process",
    "client/api/entrypoint.py": "runs in a rank",
    "client/upkeep/node_tests.py": "asks Slurm's commands as the user's shell does",
    "client/cluster_match.py": "compares the cluster of this environment with the host's",
    "look/recipes.py": "the cluster file is looked for where the command was typed",
    "client/submission.py": "tells the host where a command was typed",
    "look/kinds/run.py": "`--env NAME` takes the value here",
    "look/preflight.py": "asks interpreters for their modules",
    "client/jobs/pool.py": "scripts of a pool run by this interpreter",
}


def _reads(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "getcwd"):
                return True
            case ast.Attribute(value=ast.Name(id="sys"), attr="executable"):
                return True
            case ast.Attribute(value=ast.Name(id="Path"), attr="cwd"):
                return True
            case ast.Attribute(value=ast.Name(id="shutil"), attr="which"):
                return True
            case ast.Name(id="present_gpus"):
                return True
    return False


def test_who_reads_the_surroundings_of_a_command() -> None:
    """On the way to a plan they are `Context` and facts; whoever else reads them has a reason."""
    top = Path(remuda.__file__).parent
    found = {
        str(path.relative_to(top))
        for room in ("specs", "plan", "policy", "client", "look", "views")
        for path in (top / room).rglob("*.py")
        if _reads(ast.parse(path.read_text()))
    }
    assert found <= ALLOWED.keys(), sorted(found - ALLOWED.keys())
    assert ALLOWED.keys() <= found, f"has no need to any more: {sorted(ALLOWED.keys() - found)}"


def test_a_task_of_an_array_knows_what_it_would_of_slurms() -> None:
    group = run(array="4,1-3:2%2", env={"A": "b"}).groups[0]
    assert (group.count, group.indices, group.at_most, group.at_once(group.count)) == (3, (1, 3, 4), 2, 2)
    known = {name: text for name, text in group.command.env.items() if name != "REMUDA_SCRIPT_DIR"}
    assert known == {
        "A": "b", "SLURM_ARRAY_TASK_ID": INDEX_MARK, "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_MAX": "4", "SLURM_ARRAY_JOB_ID": UID,
    }  # fmt: skip
    assert run().groups[0].indices == ()
    assert (run(array="5").is_array, run(array="5").is_its_task, run().is_its_task) == (True, False, True)
