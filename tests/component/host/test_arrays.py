"""`remuda run --array`: one name for many tasks, so many at a time, each with its own index, tried again for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.component.host.test_runs import script
from tests.conftest import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Home

TASK = """
echo begin $SLURM_ARRAY_TASK_ID >> story
while [ ! -e go ]; do sleep 0.05; done
if [ $SLURM_ARRAY_TASK_ID = 9 ] && [ ! -e second ]; then touch second; echo end 9 >> story; exit 1; fi
known="$SLURM_ARRAY_TASK_COUNT from $SLURM_ARRAY_TASK_MIN to $SLURM_ARRAY_TASK_MAX in $SLURM_ARRAY_JOB_ID"
echo $known > known-$SLURM_ARRAY_TASK_ID
echo end $SLURM_ARRAY_TASK_ID >> story
"""


def most_at_once(story: Path) -> int:
    """How many tasks were there at the same time, at most."""
    now: set[str] = set()
    most = 0
    for line in story.read_text().splitlines():
        word, index = line.split()
        now = now | {index} if word == "begin" else now - {index}
        most = max(most, len(now))
    assert not now
    return most


def test_two_at_a_time_over_the_death_of_the_host(home: Home) -> None:
    """The array stands in the script, and `up` takes it as it is."""
    name = script(home, TASK, directives="--heartbeat-interval 1\n#SBATCH --array=1-11:2%2")
    story = home.root / "story"
    home.run("up", name)
    until(lambda: story.is_file() and len(story.read_text().splitlines()) == 2, "two have begun")
    until(lambda: home.view("train")["ready"] == 2, "the host knows")
    view = home.view("train")
    assert (view["phase"], view["wanted"], view["uid"]) == ("RUNNING", 6, view["uid"])
    waits = {task["task"]: task["reason"] for task in view["tasks"] if task["phase"] == "waiting"}
    assert waits == {f"script/{index}": "its turn has not come: 2 at a time" for index in (5, 7, 9, 11)}
    told = home.run("explain", "train", "--task", "11").stdout.splitlines()
    assert told[0] == "train is RUNNING: 2 of 6 ready, 0 done"
    assert told[2] == "  its turn has not come: 2 at a time"
    home.kill_host()
    (home.root / "go").touch()
    home.run("host", "start")
    until(lambda: home.view("train")["phase"] == "DONE", "all are done")
    assert most_at_once(story) == 2
    known = {file.name: file.read_text() for file in home.root.glob("known-*")}
    assert known == {f"known-{index}": f"6 from 1 to 11 in {view['uid']}\n" for index in range(1, 12, 2)}
    attempts = {task["task"]: task["attempt"] for task in home.view("train")["tasks"]}
    assert attempts == {f"script/{index}": 2 if index == 9 else 1 for index in range(1, 12, 2)}
    assert home.run("list", "--all").stdout.splitlines()[1].split()[:2] == ["train", "DONE"]
    assert "6/6 done" in home.run("list", "--all").stdout


def test_one_that_failed_is_begun_again_alone(home: Home) -> None:
    body = "i=$SLURM_ARRAY_TASK_ID; [ $i = 8 ] && [ ! -e mended ] && { echo broken $i; exit 3; }; echo fine $i"
    done = home.run("run", script(home, body), "--array", "2-12:3", "--max-retries", "0", "--wait", check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "train is FAILED: script/8: given up after 1 failure: exit code 3"
    assert "3/4 done" in home.run("list").stdout
    assert "FAILED: 3 of 4 done" in home.run("status", "train").stdout
    assert home.run("logs", "train", "--task", "8").stdout == "broken 8\n"
    assert home.run("logs", "train", "--task", "script/5").stdout == "fine 5\n"
    told = home.run("explain", "train", "--task", "8").stdout
    assert "script/8: failed" in told
    assert "script/5" not in told
    unknown = home.run("explain", "train", "--task", "9", check=False)
    assert unknown.stderr.splitlines() == ["error: 'train' has no task script/9",
                                           "  it has: script/2,5,8,11"]  # fmt: skip
    wrong = home.run("restart", "train", "8,9", check=False)
    assert wrong.stderr.splitlines() == ["error: 'train' has no task 9", "  its tasks: 2,5,8,11"]
    odd = home.run("restart", "train", "8,x", check=False)
    assert odd.stderr.splitlines() == ["error: '8,x' has 'x', which is neither an index nor a range",
                                       "  write 7, 1,3 or 1-5; its tasks: 2,5,8,11"]  # fmt: skip
    group = home.run("restart", "train", "x,8", check=False)
    assert group.stderr.splitlines() == ["error: 'train' has no group 'x,8'", "  its groups: script"]
    assert "restart it once that is fixed: remuda restart train 8" in home.run("explain", "train").stdout
    (home.root / "mended").touch()
    said = home.run("restart", "train", "8").stderr
    assert said == "8 of train is being restarted (remuda status train)\n"
    until(lambda: home.view("train")["phase"] == "DONE", "all are done")
    assert [task["attempt"] for task in home.view("train")["tasks"]] == [1, 1, 2, 1]


def test_who_stays_sees_what_all_write(home: Home) -> None:
    done = home.run("run", script(home, "echo fine $SLURM_ARRAY_TASK_ID"), "-a", "1-3%1", "--follow")
    assert done.stdout.splitlines() == ["train", *(f"script/{index}: fine {index}" for index in (1, 2, 3))]
    assert "script/3: waiting: its turn has not come: 1 at a time" in done.stderr.splitlines()
    assert done.stderr.splitlines()[-1] == "train is DONE"
