"""From a script and flags to a run's workload: what is planned, what is refused, and in which words."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from remuda.backends.base import Cluster, Node, PoolInfo
from remuda.backends.registry import slurm_backend
from remuda.backends.slurm.arrays import batch_of
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import BackendUnreachable, InputError
from remuda.client import submission
from remuda.look import planning, rendering
from remuda.look.facts import Looked
from remuda.look.kinds import run
from remuda.look.kinds.run import read
from remuda.plan.context import Context
from remuda.plan.model import Kind, Role
from remuda.specs.reading.document import parse
from remuda.specs.reading.resolve import Override
from remuda.specs.reading.sbatch_options import learn

if TYPE_CHECKING:
    from remuda.client.http import HostClient
    from remuda.plan.compile import Plan

TRAIN = "#!/bin/bash\n#REMUDA --backend local\necho hello\n"
NODES = tuple(
    Node(f"{pool}-{i}", "idle", usable=True, pools=(pool,), cpus=64, gpus=4, gpus_free=4, gpu_type=kind)
    for pool, kind in (("a100", "a100-80gb"), ("l40s", "l40s"))
    for i in range(2)
)
CLUSTER = Cluster(NODES, (PoolInfo("a100", is_default=True), PoolInfo("l40s")))


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Looked:
    monkeypatch.chdir(tmp_path)
    caller = Context(cwd=str(tmp_path), state=str(tmp_path / "home"), python="python3", env={"PATH": "/bin"})
    paths = StatePaths(tmp_path / "home")
    return Looked(paths, partial(slurm_backend, paths), (None, {}), CLUSTER, {True: caller})


def write(text: str | bytes, name: str = "train.sh") -> str:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def plan(facts: Looked, *flags: tuple[str, object], text: str = TRAIN) -> Plan:
    (planned,) = run.plan_runs([write(text)], [Override(key, value, f"--{key}") for key, value in flags], facts)
    planning.refuse(planned, facts)
    return planned


def refused(facts: Looked, file: str, *flags: tuple[str, object]) -> tuple[str, str]:
    def refuse() -> None:
        (planned,) = run.plan_runs([file], [Override(key, value, f"--{key}") for key, value in flags], facts)
        planning.refuse(planned, facts)

    with pytest.raises(InputError) as caught:
        refuse()
    return str(caught.value), caught.value.hint


def test_a_run_is_a_workload_of_one_script(facts: Looked, tmp_path: Path) -> None:
    planned = plan(facts, ("args", ["a b"]))
    workload, group = planned.workload, planned.workload.groups[0]
    assert (workload.name, workload.kind, workload.backend) == ("train", Kind.RUN, "local")
    assert (group.name, group.role, group.count, group.restart.policy) == ("script", Role.SCRIPT, 1, "never")
    copy = str(tmp_path / "home" / "workloads" / "train" / "scripts" / workload.uid / "train.sh")
    assert group.command.argv == (copy, "a b")
    assert group.command.cwd == str(tmp_path)
    assert group.command.env == {"REMUDA_SCRIPT_DIR": str(tmp_path)}
    assert workload.files == {copy: TRAIN}
    assert group.watch is not None
    assert (group.watch.heartbeat_interval_s, group.watch.heartbeat_grace_s) == (30, 90)
    assert (group.watch.warn_signal, group.watch.warn_before_s) == ("TERM", 90)
    assert not (tmp_path / "home").exists(), "planning writes nothing"


def test_run_once_has_bounded_retries_and_indefinite_has_a_goal_in_time(facts: Looked) -> None:
    once = plan(facts).workload.groups[0].replace
    assert (once.policy, once.max_failures, once.until, once.user_cancel) == ("on-failure", 11, 0, "stop")
    assert (once.quick_s, once.quick_limit) == (120, 3)
    ever = plan(facts, ("mode", "indefinite"), ("keep_alive", "1h")).workload.groups[0].replace
    assert ever.policy == "always"
    assert ever.max_failures > 10_000
    assert ever.until > 3600
    assert plan(facts, ("mode", "indefinite"), ("max_retries", 2)).workload.groups[0].replace.max_failures == 3


def test_partitions_are_found_and_written_as_pools(facts: Looked) -> None:
    planned = plan(facts, ("gpus", 2), ("backend", "slurm"), ("hedge", True), ("retry_per_partition", 3))
    group = planned.workload.groups[0]
    assert [pool.name for pool in group.pools] == ["a100", "l40s"]
    assert (group.failover.hedge, group.failover.retry_per_pool) == (True, 3)
    assert planned.workload.place["env"] == {"PATH": "/bin"}


def test_sbatch_options_are_handed_on(facts: Looked) -> None:
    text = "#!/bin/bash\n#SBATCH --ntasks=2 -t 30 -o out-%j\n#REMUDA --backend slurm\ntrue\n"
    planned = plan(facts, ("sbatch_args", ["--nice=5"]), text=text)
    place = planned.workload.place
    assert (place["directives"], place["args"], place["output"]) == (["--ntasks=2"], ["--nice=5"], "out-%j")
    assert planned.workload.groups[0].resources.time_limit_s == 1800


def test_what_has_no_effect_here_is_told(facts: Looked) -> None:
    text = "#!/bin/bash\n#REMUDA --backend local --account acc\n#SBATCH --ntasks=2\ntrue\n"
    assert plan(facts, text=text).notes == ("--account, --ntasks: not used on this machine",)


def test_what_is_said_for_all_runs_is_not_told(facts: Looked) -> None:
    defaults = parse("run: {reservation: r}\n", "defaults.yaml")
    said = {"SBATCH_ACCOUNT": ("lab", "environment SBATCH_ACCOUNT")}
    facts.said = (defaults, said)
    planned = plan(facts, ("mem", "1GB"))
    assert (planned.spec.account, planned.spec.reservation) == ("lab", "r")
    assert planned.notes == ("--mem: not used on this machine",)


def test_a_working_directory_that_is_not_there(facts: Looked) -> None:
    """Nothing can run there on this machine; the nodes of a cluster may have it."""
    said = refused(facts, write(TRAIN), ("backend", "local"), ("workdir", "/nope"))
    assert said == ("--workdir: there is no directory '/nope'", "make it first")
    note = "the working directory /nope is not to be seen here; the nodes need it"
    assert note in planning.look([plan(facts, ("backend", "slurm"), ("workdir", "/nope"))], facts)[0]


def test_names(facts: Looked) -> None:
    text = TRAIN
    files = [write(text, name) for name in ("My Script.sh", "train.sh", "train.py", "train.sh")]
    names = [one.workload.name for one in run.plan_runs(files, [], facts)]
    assert names == ["my-script", "train", "train-2", "train-3"]


def test_a_document_may_name_a_script_beside_it(facts: Looked) -> None:
    Path("jobs").mkdir()
    write(TRAIN, "jobs/train.sh")
    Path("jobs/run.yaml").write_text("kind: run\nscript: train.sh\nname: mine\nbackoff_base: 5s\n")
    (planned,) = run.plan_runs(["jobs/run.yaml"], [], facts)
    assert (planned.workload.name, planned.workload.groups[0].replace.backoff_initial_s) == ("mine", 5.0)


def test_defaults_file(facts: Looked) -> None:
    facts.said = parse("run: {max_retries: 3, backend: local}\nslurm: {account: acc, partition: x}\n", "d.yaml"), {}
    spec = plan(facts, text="#!/bin/bash\ntrue\n").spec
    assert (spec.max_retries, spec.account, spec.partitions) == (3, "acc", ())
    facts.said = parse("run: {max_retrys: 3}\n", "d.yaml"), {}
    said = refused(facts, "train.sh")
    assert said == ("d.yaml:1:7: unknown key 'max_retrys' in the defaults", "did you mean 'max_retries'?")


@pytest.mark.parametrize(
    ("text", "sentence", "hint"),
    [
        ("", "x.sh: the script is empty", ""),
        (" \n", "x.sh: the script is empty", ""),
        ("echo hi\n", "x.sh:1: the first line does not say what runs the script",
         "write `#!/bin/bash`, or `#!/usr/bin/env python3`, above everything else"),
        ("#!/bin/bash\r\necho\r\n",
         "x.sh:1: the lines end as on Windows (CR LF), so its interpreter would not be found",
         "convert them: sed -i 's/\\r$//' x.sh"),
        ("#!bash\n", "x.sh:1: '#!bash' does not name a program with its whole path", ""),
        (b"\x7fELF\x00\x01", "x.sh: is a program, not a script",
         "write a script that starts it: two lines, `#!/bin/bash` and `exec ./program`"),
        (b"#!/bin/sh\n\xff\xfe", "x.sh: is a program, not a script",
         "write a script that starts it: two lines, `#!/bin/bash` and `exec ./program`"),
    ],
)  # fmt: skip
def test_scripts_that_cannot_be_run(facts: Looked, text: str | bytes, sentence: str, hint: str) -> None:
    assert refused(facts, write(text, "x.sh")) == (sentence, hint)


def test_no_such_script(facts: Looked, tmp_path: Path) -> None:
    write(TRAIN)
    assert refused(facts, "trian.sh") == ("trian.sh: there is no such script", "did you mean 'train.sh'?")
    assert refused(facts, "no/x.sh") == ("no/x.sh: there is no such script", "there is no directory 'no' either")
    Path("folder").mkdir()
    assert refused(facts, "folder") == ("folder: is a directory, not a script", "")


def test_a_script_that_cannot_be_read(facts: Looked) -> None:
    Path("loop.sh").symlink_to("loop.sh")
    assert refused(facts, "loop.sh") == ("loop.sh: cannot be read: too many levels of symbolic links", "")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ((("gpus", "many"),), "--gpus: `gpus` must be a whole number, not 'many'"),
        ((("nodes", 2),), "--nodes: `nodes` is 2, and this machine is one"),
        ((("name", "a/b"),), "--name: `name` 'a/b' cannot be a name"),
        ((("sbatch_args", ["--array=1-2"]),), "--sbatch_args: an array is made by the run itself"),
        ((("backoff_max", 1),), "--backoff_max: `backoff_max` is 1 s, less than the 10 s of `backoff_base`"),
        ((("env", {"A B": "x"}),), "--env: `env` has 'A B', which cannot be the name of a variable"),
    ],
)
def test_flags_that_are_wrong(facts: Looked, flags: tuple[tuple[str, object], ...], sentence: str) -> None:
    assert refused(facts, write(TRAIN), *flags)[0] == sentence


def test_no_partition_can_be_chosen_while_nobody_answers(facts: Looked) -> None:
    facts.asked = BackendUnreachable("squeue: timeout")
    with pytest.raises(BackendUnreachable) as caught:
        plan(facts, ("backend", "slurm"))
    assert str(caught.value) == "the cluster does not answer, so no partition can be chosen: squeue: timeout"
    assert caught.value.hint == "name them: --partitions a,b; to run on this machine: --backend local"
    planned = plan(facts, ("backend", "slurm"), ("partitions", "a,b"))
    assert [pool.name for pool in planned.workload.groups[0].pools] == ["a", "b"]
    assert planned.notes == ("the cluster does not answer, so the partitions are taken unchecked: squeue: timeout",)


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED", "7")
    monkeypatch.setenv("WANDB_API_KEY", "hush")
    assert run.kept_variable("A=b=c") == Override("env.A", "b=c", "--env A")
    assert run.kept_variable("SEED") == Override("env.SEED", "7", "--env SEED")
    assert run.kept_variable("WANDB_API_KEY") == Override(
        "secret_env.WANDB_API_KEY", {"env": "WANDB_API_KEY"}, "--env WANDB_API_KEY"
    )
    with pytest.raises(InputError, match="environment variable NOT_SET is not set"):
        run.kept_variable("NOT_SET")


def test_a_dry_run_shows_what_is_sent_and_no_secret(facts: Looked) -> None:
    planned = plan(facts, ("env", {"MY_TOKEN": "hush-hush"}))
    shown = [(item.argv, dict(item.files)) for item in rendering.shown([planned.workload], facts)]
    assert "hush-hush" not in json.dumps(shown)
    assert next(iter(planned.workload.files)) in json.dumps(shown)


def test_runs_of_one_command_may_share_an_array_of_the_size_that_the_cluster_takes(facts: Looked) -> None:
    facts.asked = Cluster(CLUSTER.nodes, CLUSTER.pools, array_size=4)

    def uids(count: int, backend: str) -> list[str]:
        readings = [read(write(TRAIN), [Override("backend", backend, "--backend")], facts, set()) for _ in range(count)]
        return [one.workload.uid for one in planning.plan_together("run", readings, facts)]

    found = uids(5, "slurm")
    assert [batch_of(uid) is not None for uid in found] == [True] * 5
    assert [uid.partition("-")[2] for uid in found] == ["1", "2", "3", "1", "2"]
    assert len({uid.partition("-")[0] for uid in found}) == 2
    assert batch_of(*uids(1, "slurm")) is None, "one run is a job of its own"
    assert batch_of(uids(5, "local")[0]) is None


def test_values_of_secrets_are_in_nothing_but_what_is_sent(facts: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    class Host:
        def post(self, path: str, body: dict[str, Any]) -> list[Any]:
            sent.extend(body["workloads"])
            return []

    monkeypatch.setenv("MY_KEY", "hush-hush")
    sent: list[dict[str, Any]] = []
    planned = plan(facts, ("secret_env", {"MY_KEY": {"env": "MY_KEY"}}))
    answer = planning.answered([planned], facts)
    assert "hush-hush" not in json.dumps([answer, submission.caller()])
    assert submission.caller()["env"]["MY_KEY"] == ""
    submission.send(answer, cast("HostClient", Host()))
    assert [one.pop("secrets") for one in sent] == [{"MY_KEY": "hush-hush"}]
    assert "hush-hush" not in json.dumps(sent)


def test_the_clusters_own_options_are_known(facts: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.look.facts.own_options", lambda environ: learn("      --warp=factor      go faster\n"))
    text = "#!/bin/bash\n#REMUDA --backend slurm --partitions a100\n#SBATCH --war -9 --hold\ntrue\n"
    planned = plan(facts, text=text)
    assert planned.workload.place["directives"] == ["--warp=-9"]
