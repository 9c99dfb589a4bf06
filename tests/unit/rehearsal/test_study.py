"""What is read before a rehearsal: traces, assumptions, documents; and what is told after it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from remuda.base.errors import InputError
from remuda.rehearsal import plot, study
from remuda.rehearsal.model import Assumptions, Hazard, Hours, Strike
from remuda.rehearsal.rates import LLAMA3, RSC
from remuda.rehearsal.study import StudyOptions

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "time_h,node,kind,repair_h\n"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def test_a_trace_is_read_and_sorted() -> None:
    text = HEAD + "2.5, 7 ,gpu,24\n1,3,crash,\n4,,preemption,\n"
    assert study.read_trace(text, "t.csv", 10) == (
        Strike(3600.0, 3, Hazard.CRASH),
        Strike(9000.0, 7, Hazard.GPU, 86400.0),
        Strike(14400.0, -1, Hazard.PREEMPTION),
    )


def test_names_of_nodes_are_numbered_as_they_come_and_other_columns_are_passed_over() -> None:
    text = "who,kind,node,time_h\nx,network,gpu-b,1\ny,network,gpu-a,2\nz,software,gpu-b,3\n"
    assert [one.node for one in study.read_trace(text, "t.csv", 2)] == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "sentence", "hint"),
    [
        ("", "t.csv:1: has no column 'time_h'", "the first line is: time_h,node,kind,repair_h"),
        ("time_h,node\n", "t.csv:1: has no column 'kind'", "the first line is: time_h,node,kind,repair_h"),
        (HEAD + "1,2,crash,1\nsoon,2,crash,1\n", "t.csv:3: time_h: must be a number, 0 or more, not 'soon'", ""),
        (HEAD + "-1,2,crash,1\n", "t.csv:2: time_h: must be a number, 0 or more, not '-1'", ""),
        (HEAD + "nan,2,crash,1\n", "t.csv:2: time_h: must be a number, 0 or more, not 'nan'", ""),
        (HEAD + "1,2,crash,long\n", "t.csv:2: repair_h: must be a number, 0 or more, not 'long'", ""),
        (HEAD + "1,2,crsh,1\n",
         "t.csv:2: kind must be one of crash, gpu, hang, network, maintenance, software, preemption, not 'crsh'",
         "did you mean 'crash'?"),
        (HEAD + "1,,crash,1\n", "t.csv:2: node is empty", "only a preemption needs none"),
        (HEAD + "1,10,crash,1\n", "t.csv:2: node '10' is not one of the 10 nodes", "a larger cluster: --nodes"),
        (HEAD + "1\n", ("t.csv:2: kind must be one of crash, gpu, hang, network, maintenance, software, preemption, "
         "not ''"), ""),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(text: str, sentence: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        study.read_trace(text, "t.csv", 10)
    assert (str(caught.value), caught.value.hint) == (sentence, hint)


@pytest.mark.parametrize(
    ("word", "sentence", "hint"),
    [
        ("peple_h=8", "--assume: there is no assumption 'peple_h'", "did you mean 'people_h'?"),
        ("people_h=late", "--assume people_h: must be a number, 0 or more, not 'late'", ""),
        ("people_h", "--assume people_h: must be a number, 0 or more, not ''", ""),
        ("hang_share=3", "--assume hang_share: must be at most 1, not 3", ""),
    ],
)
def test_a_wrong_assumption_is_named(word: str, sentence: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        study.read_assumptions([word], None)
    assert (str(caught.value), caught.value.hint) == (sentence, hint)


def test_assumptions_come_from_the_person_then_from_the_trace() -> None:
    assert study.read_assumptions([], LLAMA3) == Assumptions()
    said = study.read_assumptions(["lemon-factor=3", "people_h=8"], RSC)
    assert (said.lemon_share, said.lemon_factor, said.people_h) == (RSC.lemon_share, 3.0, 8.0)


def test_a_document_is_planned_as_for_a_real_cluster(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        "kind: run\nscript: train.sh\nnodes: 16\ngpus: 4\ncheckpoint_every: 20m\nrestart_cost: 5m\n"
        "time_limit: 1d\nprogress_stall: 7m\nmax_retries: 3\nblacklist_ttl: 1h\nsignal: USR1@300\n"
    )
    done = study.rehearse(StudyOptions(file="run.yaml", nodes=20, days=0.5, repeat=1, failures="none"))
    job, group = done.scenario.job, done.scenario.workload.groups[0]
    assert (job.nodes, job.gpus, job.checkpoint_every, job.restart_cost) == (16, 4, 1200.0, 300.0)
    assert (job.time_limit, job.warn_before, job.progress_stall, job.heartbeat_s) == (86400.0, 300.0, 420.0, 120.0)
    assert (group.replace.max_failures, group.nodes.ttl_s, done.scenario.workload.backend) == (4, 3600.0, "slurm")


def test_the_head_of_the_script_counts_where_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("#!/bin/bash\n#REMUDA --nodes 6 --gpus 2 --checkpoint-every 15m\necho\n")
    (tmp_path / "run.yaml").write_text("script: train.sh\ngpus: 3\n")
    by_script = study.read_run(StudyOptions(file="train.sh"))
    by_document = study.read_run(StudyOptions(file="run.yaml", run_nodes=7))
    assert (by_script.nodes, by_script.gpus, by_script.checkpoint_every) == (6, 2, 900.0)
    assert (by_document.nodes, by_document.gpus, by_document.checkpoint_every) == (7, 3, 900.0)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (StudyOptions(nodes=0), "--nodes: must be 1 to 1,000,000, not 0"),
        (StudyOptions(days=0), "--days: must be more than 0 and at most 3650, not 0"),
        (StudyOptions(nodes=4, run_nodes=5), "--nodes: the run needs 5 nodes, and the cluster has 4"),
        (StudyOptions(failures="lama3"), "--failures: 'lama3' is neither a known trace nor a file"),
        (StudyOptions(file="gone.yaml"), "gone.yaml: there is no such file"),
        (StudyOptions(file="swarm.yaml"), "swarm.yaml: is a swarm, and a run is needed here"),
    ],
)
def test_what_cannot_be_rehearsed_is_said(tmp_path: Path, asked: StudyOptions, sentence: str) -> None:
    (tmp_path / "swarm.yaml").write_text("model: m\n")
    with pytest.raises(InputError) as caught:
        study.rehearse(asked)
    assert str(caught.value) == sentence


def test_without_a_document_it_is_a_training_job_on_nearly_all_nodes() -> None:
    spec = study.read_run(StudyOptions(nodes=1000))
    assert (spec.nodes, spec.gpus, spec.mode) == (950, 8, "indefinite")
    assert study.read_run(StudyOptions(nodes=1)).nodes == 1


def test_the_only_node_of_a_run_is_known_to_be_to_blame() -> None:
    one = study.rehearse(StudyOptions(nodes=3, run_nodes=1, days=1, repeat=1, failures="none"))
    many = study.rehearse(StudyOptions(nodes=3, run_nodes=2, days=1, repeat=1, failures="none"))
    assert (one.scenario.assumptions.named_share, many.scenario.assumptions.named_share) == (1.0, 0.0)


def test_the_view_is_complete_and_its_hours_add_up() -> None:
    said: list[tuple[int, int]] = []
    done = study.rehearse(StudyOptions(nodes=100, days=5, repeat=2, seed=4), lambda ready, of: said.append((ready, of)))
    view: dict[str, Any] = study.view(done)
    assert said == [(number, 6) for number in range(1, 7)]
    assert view["seeds"] == [4, 5]
    assert [one["policy"] for one in view["policies"]] == ["remuda", "shepherd", "requeue"]
    for one in view["policies"]:
        assert set(one["hours"]) == {what.value for what in Hours}
        assert math.fsum(one["hours"].values()) == pytest.approx(120)
        assert one["gpu_hours_kept"] == pytest.approx(one["effective"] * one["gpu_hours"])
        assert sum(run["effective"] for run in one["runs"]) / 2 == pytest.approx(one["effective"])
    assert view["assumptions"]["people_h"] == 4.0
    assert any(note.startswith("published with llama3: more than 90%") for note in view["notes"])


def test_a_run_that_gives_up_is_told_what_to_change() -> None:
    from remuda.specs.reading.resolve import Override
    from remuda.specs.strict import Plain

    once = (Override("mode", Plain("run_once"), "--set"), Override("max_retries", Plain("1"), "--set"))
    done = study.rehearse(StudyOptions(nodes=500, days=10, repeat=1, policies=("remuda",), settings=once))
    notes = [note for note in study.notes(done) if "gave the run up" in note]
    assert len(notes) == 1
    assert notes[0].endswith("times, and a person had to begin it again: raise max_retries, or lower heal_after")


def test_the_picture_of_a_terminal_shows_where_nothing_was_done(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(HEAD + "12,0,maintenance,12\n")
    done = study.rehearse(
        StudyOptions(
            nodes=2, run_nodes=2, days=2, repeat=1, failures="t.csv", policies=("remuda",), assume=("queue_s=0",)
        )
    )
    bars = plot.sparkline(done.summaries[0].outcomes[0], 4)
    assert bars[1] == " "
    assert " " not in bars[0] + bars[2:]
