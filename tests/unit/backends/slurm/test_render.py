from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.backends.base import Rendered, Request, TaskKey, make_token
from remuda.backends.slurm.arrays import array_name, compress_ids, merge, one_by_one
from remuda.backends.slurm.render import SlurmSite, duration, render
from remuda.base.errors import InputError
from remuda.plan.model import INDEX_MARK, Command, Group, Kind, Listen, Pool, Resources, Role, Watch, Workload

SITE = SlurmSite(
    Path("/home/me/.remuda/workloads"), Path("/home/me/node.pyz"), Path("/home/me/host.json"), port_locks="/tmp/locks"
)
FOLDER = "/home/me/.remuda/workloads/w/script-0/attempt-1-abc"


def request(
    *,
    count: int = 1,
    index: int = 0,
    attempt: int = 1,
    place: dict[str, object] | None = None,
    env: dict[str, str] | None = None,
    watch: Watch | None = None,
    listen: Listen | None = None,
    resources: Resources | None = None,
) -> Request:
    group = Group(
        name="script", role=Role.SCRIPT, count=count, command=Command(argv=("train", "a b"), env=env or {}),
        watch=watch, listen=listen, resources=resources or Resources(),
    )  # fmt: skip
    workload = Workload(
        name="w", kind=Kind.RUN, uid="abc", backend="slurm", groups=(group,), run_dir="/r", place=place or {}
    )
    key = TaskKey("w", "script", index)
    return Request(key, attempt, make_token(key, attempt, "abc"), workload, group)


def child_of(rendered: Rendered) -> dict[str, object]:
    (path,) = [name for name in rendered.files if name.endswith("/child.json")]
    made: dict[str, object] = json.loads(rendered.files[path])
    return made


def test_the_least() -> None:
    made = render(request(), SITE)
    assert made.argv == (
        "sbatch", "--job-name=w.script.0.1.abc", "--parsable", "--hold", "--export=NONE", "--open-mode=append",
        "--no-requeue", f"--chdir={FOLDER}", f"--output={FOLDER}/node.log", f"{FOLDER}/job.sh",
    )  # fmt: skip
    assert set(made.files) == {f"{FOLDER}/child.json", f"{FOLDER}/job.sh"}
    assert made.files[f"{FOLDER}/job.sh"] == (
        "#!/bin/sh\n"
        "export REMUDA_TOKEN=w.script.0.1.abc\n"
        "export SLURM_EXPORT_ENV=ALL\n"
        f"exec python3 -I -S /home/me/node.pyz child {FOLDER}/child.json\n"
    )


@pytest.mark.parametrize(
    ("nodes", "asked"),
    [(1, ("--nodes=1", "--ntasks=4", "--ntasks-per-node=4")), (2, ("--nodes=2", "--ntasks=4", "--ntasks-per-node=2"))],
)
def test_ranks_of_mpi_are_tasks_of_the_job(nodes: int, asked: tuple[str, ...]) -> None:
    plain = request(resources=Resources(nodes=nodes))
    command = plain.group.command.model_copy(update={"ranks": 4})
    made = render(replace(plain, group=plain.group.model_copy(update={"command": command})), SITE)
    assert made.argv[made.argv.index(asked[0]) :][:3] == asked
    argv = json.loads(made.files[f"{FOLDER}/child.json"])["argv"]
    assert argv[:5] == ["python3", "-I", "-S", "/home/me/node.pyz", "step"]
    assert set(asked) < set(argv)


def test_everything_that_can_be_asked_for() -> None:
    place: dict[str, object] = {
        "partition": "gpu", "account": "acc", "qos": "high", "constraint": "a100&nvlink", "reservation": "res",
        "node_list": "a[1-2]", "exclude_nodes": "b[1-2]", "mail_user": "u@example.org", "requeue": True,
        "args": ("--licenses=x:1",), "workdir": "/data/my run", "directives": ("--comment='a b'",),
        "python": "/opt/py/bin/python3", "output": "/logs/%j.out", "error": "/logs/%j.err",
    }  # fmt: skip
    resources = Resources(
        gpus=4, gpu_type="a100", cpus=8, threads_per_core=1, mem_bytes=(1 << 30) + 1, nodes=2, time_limit_s=90061
    )
    made = render(replace(request(place=place, resources=resources, watch=Watch()), exclude_nodes=("b3", "c1")), SITE)
    assert made.argv == (
        "sbatch", "--partition=gpu", "--account=acc", "--qos=high", "--constraint=a100&nvlink", "--reservation=res",
        "--nodelist=a[1-2]", "--mail-user=u@example.org", "--mail-type=BEGIN,END,FAIL", "--gres=gpu:a100:4",
        "--cpus-per-task=8", "--threads-per-core=1", "--mem=1025M", "--nodes=2", "--time=1-01:01:01",
        "--exclude=b[1-3],c1", "--signal=B:USR1@90", "--licenses=x:1", "--job-name=w.script.0.1.abc", "--parsable",
        "--hold",
        "--export=NONE", "--open-mode=append", "--requeue", "--chdir=/data/my run", "--output=/logs/%j.out",
        "--error=/logs/%j.err", f"{FOLDER}/job.sh",
    )  # fmt: skip
    script = made.files[f"{FOLDER}/job.sh"].splitlines()
    assert script[:2] == ["#!/bin/sh", "#SBATCH --comment='a b'"]
    assert "export SLURM_SUBMIT_DIR='/data/my run'" in script
    assert script[-1] == f"exec /opt/py/bin/python3 -I -S /home/me/node.pyz child {FOLDER}/child.json"
    child = child_of(made)
    assert isinstance(child["watch"], dict)
    assert (child["cwd"], child["watch"]["tee"]) == ("/data/my run", True)
    assert json.loads(made.files["/home/me/.remuda/workloads/w/script-0/current.json"]) == {"token": made.token}


def test_a_server_listens_where_other_nodes_reach_it() -> None:
    child = child_of(render(request(listen=Listen(port=8000)), SITE))
    assert (child["bind_host"], child["port"], child["advertise_host"]) == ("0.0.0.0", 8000, "")
    assert child["port_locks"] == "/tmp/locks"


def test_gres_wins_over_the_number_of_gpus() -> None:
    made = render(request(place={"gres": "gpu:h100:1"}, resources=Resources(gpus=4)), SITE)
    assert "--gres=gpu:h100:1" in made.argv
    assert not any("gpu:4" in word for word in made.argv)


def test_the_environment_goes_through_the_child_document() -> None:
    place: dict[str, object] = {"env": {"A": "1", "B": "2", "CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_ID": "9"}}
    made = render(request(place=place, env={"B": "$(id)"}), SITE)
    assert child_of(made)["env"] == {"A": "1", "B": "$(id)"}
    assert not any("$(id)" in word for word in (*made.argv, made.files[f"{FOLDER}/job.sh"]))


def test_modules_come_after_the_users_environment() -> None:
    place: dict[str, object] = {"env": {"PATH": "/u/bin"}, "modules": ("cuda/12 `id`",), "preamble": ("ulimit -c 0",)}
    made = render(request(place=place, env={"B": "2"}), SITE)
    assert child_of(made)["env"] == {"B": "2"}
    assert made.files[f"{FOLDER}/env.sh"] == "export PATH=/u/bin\n"
    lines = made.files[f"{FOLDER}/job.sh"].splitlines()
    assert lines[0] == "#!/bin/bash"
    load = "module load 'cuda/12 `id`' || { echo 'remuda: module load cuda/12 `id` failed' >&2; exit 1; }"
    order = [f". {FOLDER}/env.sh", load, "ulimit -c 0"]
    assert [line for line in lines if line in order] == order


WORDS = st.text(st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(
    path=WORDS.filter(lambda text: "/" not in text and text not in (".", "..")), python=WORDS, count=st.integers(1, 2)
)
@settings(deadline=None, max_examples=40)
def test_the_script_reaches_its_last_line_verbatim(path: str, python: str, count: int) -> None:
    """A real shell reads it; only the program at the end is another."""
    site = replace(SITE, workloads=Path("/") / path)
    made = render(request(place={"python": f"./{python}"}, count=count, index=count - 1), site)
    (script,) = [text for name, text in made.files.items() if name.endswith("/job.sh")]
    head, _, last = script.rpartition("exec ")
    done = subprocess.run(
        ["/bin/sh", "-c", head + 'printf "%s\\0" "$REMUDA_TOKEN" ' + last],
        env={"SLURM_ARRAY_TASK_ID": "1"}, capture_output=True, check=True, text=True,
    )  # fmt: skip
    folder = site.workloads / "w" / f"script-{count - 1}" / "attempt-1-abc"
    words = [made.token, f"./{python}", "-I", "-S", "/home/me/node.pyz", "child", str(folder / "child.json")]
    assert done.stdout.split("\0")[:-1] == words


def test_the_tasks_of_a_group_are_one_array() -> None:
    made = [render(request(count=8, index=index), SITE) for index in (0, 1, 2, 5)]
    other = render(request(count=8, index=3, attempt=2), SITE)
    single = render(request(), SITE)
    calls = merge([made[0], other, *made[1:], single])
    assert [call.tokens for call in calls] == [tuple(item.token for item in made), (other.token,), (single.token,)]
    assert "--array=0-2,5" in calls[0].argv
    assert "--job-name=w.script.a.1.abc" in calls[0].argv
    assert calls[0].argv[-1] == "/home/me/.remuda/workloads/w/script-a/attempt-1-abc/job.sh"
    assert "--output=/home/me/.remuda/workloads/w/script-%a/attempt-1-abc/node.log" in calls[0].argv
    assert [calls[0].native("77", at) for at in range(4)] == ["77_0", "77_1", "77_2", "77_5"]
    # One alone is a job of its own: an array of a large index may be none that the cluster takes.
    assert not any(word.startswith("--array") for word in calls[1].argv)
    assert "--job-name=w.script.3.2.abc" in calls[1].argv
    assert (calls[2].argv, calls[2].native("78", 0)) == (single.argv, "78")
    together = [item.together for item in made if item.together is not None]
    scripts = {text for item in together for name, text in item.files.items() if name.endswith("job.sh")}
    assert (len(together), len(scripts)) == (4, 1)


def test_an_array_can_be_submitted_one_by_one() -> None:
    made = [render(request(count=8, index=index), SITE) for index in range(8)]
    calls = one_by_one(made)
    assert [call.tokens for call in calls] == [(item.token,) for item in made]
    assert [call.argv for call in calls] == [item.argv for item in made]
    for item in made:
        (script,) = (name for name in item.files if name.endswith("job.sh"))
        assert item.argv[-1] == script
        assert "$" not in item.files[script].replace("${SLURM_RESTART_COUNT:-0}", ""), "its own paths, and no index"


def test_ids_for_scontrol() -> None:
    assert compress_ids(["9", "12_3", "7", "12_4", "12_1", "13_0", "het+1"]) == ["7", "9", "12_[1,3-4]", "13_[0]"]
    assert array_name("my.name.g.4.2.uid") == "my.name.g.a.2.uid"


def test_a_pool_changes_the_place() -> None:
    pool = Pool(name="spot", place={"qos": "low"})
    made = render(replace(request(place={"partition": "gpu", "qos": "high", "account": "a"}), pools=(pool,)), SITE)
    assert made.argv[1:4] == ("--partition=spot", "--account=a", "--qos=low")


def test_several_pools_are_several_partitions() -> None:
    pools = (Pool(name="a"), Pool(name="b", place={"partition": "bee"}))
    assert "--partition=a,bee" in render(replace(request(), pools=pools), SITE).argv


def test_pools_that_differ_cannot_be_asked_at_once() -> None:
    pools = (Pool(name="a", place={"qos": "x"}), Pool(name="b", place={"account": "y"}))
    with pytest.raises(InputError) as caught:
        render(replace(request(), pools=pools), SITE)
    assert str(caught.value) == (
        "pools 'a' and 'b' differ in account, qos, and Slurm can be asked for several pools at once only when they "
        "differ in nothing but the partition"
    )
    assert caught.value.hint == "switch hedging off, or give the pools the same settings"


REFUSED = yaml.safe_load((Path(__file__).parents[3] / "cases" / "slurm" / "refused-options.yaml").read_text())


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: "-".join(case["place"]))
def test_what_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        render(request(place=case["place"]), SITE)
    assert str(caught.value) == case["sentence"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "00:00:01"), (60, "00:01:00"), (86399, "23:59:59"), (90061, "1-01:01:01")]
)
def test_time_limits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("place", "asked"),
    [
        ({}, ["--gres=gpu:2"]),
        ({"directives": ["--gres=nvme:1"]}, ["--gres=gpu:2,nvme:1"]),
        ({"preamble": ["module load x", "#SBATCH --gres nvme:1,tmpdisk:20"]}, ["--gres=gpu:2,nvme:1,tmpdisk:20"]),
        ({"args": ["--gres=nvme:1"]}, ["--gres=gpu:2,nvme:1", "--gres=nvme:1", "--gres=gpu:2,nvme:1"]),
        ({"directives": ["--gres=gpu:a100:4,nvme:1"]}, ["--gres=gpu:a100:4,nvme:1"]),
        ({"directives": ["--gres=none"]}, ["--gres=gpu:2"]),
        ({"gres": "gpu:h100:1", "directives": ["--gres=nvme:1"]}, ["--gres=gpu:h100:1,nvme:1"]),
    ],
)
def test_gpus_and_other_resources_are_joined(place: dict[str, object], asked: list[str]) -> None:
    """Of `#SBATCH --gres` and `sbatch --gres` Slurm takes the command line's alone, and of two there the last."""
    made = render(request(place=place, resources=Resources(gpus=2)), SITE)
    assert [word for word in made.argv if word.startswith("--gre")] == asked


def test_resources_of_the_users_own_alone_are_left_to_sbatch() -> None:
    made = render(request(place={"directives": ["--gres=nvme:1"]}), SITE)
    assert not [word for word in made.argv if word.startswith("--gres")]


def test_file_names_of_an_array_mean_the_same_whether_its_tasks_are_one_job_or_many() -> None:
    place: dict[str, object] = {"output": "o/%A_%3a-%j-%%a", "error": "e/%a"}
    made = []
    for index in (2, 40):
        one = request(count=2, index=index, place=place, env={"I": INDEX_MARK, "A": "x"})
        made.append(render(replace(one, group=one.group.model_copy(update={"indices": (2, 40)})), SITE))
    assert [child_of(item)["env"] for item in made] == [{"I": "2", "A": "x"}, {"I": "40", "A": "x"}]
    (call,) = merge(made)
    assert {"--array=2,40", "--output=o/abc_%3a-%j-%%a", "--error=e/%a"} <= set(call.argv)
    alone = {word for call in one_by_one(made) for word in call.argv if word.startswith(("--output", "--error"))}
    assert alone == {"--output=o/abc_002-%j-%%a", "--error=e/2", "--output=o/abc_040-%j-%%a", "--error=e/40"}
