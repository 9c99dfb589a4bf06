"""`remuda bench accuracy` as it is typed: the real lm-eval, and a server whose every answer is known."""

from __future__ import annotations

import itertools
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.conftest import until
from tests.fakes.stub_process import StubProcess

from remuda.specs.benchmark import SETS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Home

MANY, IN_FLIGHT = 60, 4
TASK = {
    "task": "known", "dataset_path": "json", "test_split": "test", "output_type": "generate_until",
    "doc_to_text": "{{question}}", "doc_to_target": "{{answer}}", "generation_kwargs": {"until": ["STOP"]},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    "metadata": {"version": 2.5},
}  # fmt: skip


@pytest.fixture
def stub() -> Iterator[StubProcess]:
    with StubProcess() as made:
        yield made


def reply(number: int, text: str) -> str:
    """A question that the server answers with `text`."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return "[body]" + json.dumps({"id": number, "choices": [choice]})


def tasks(folder: Path, questions: list[str], **more: Any) -> str:
    """A folder with the task `known`, whose right answers are yes; the stop and what is behind it are cut off."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"question": one, "answer": "yes"}) + "\n" for one in questions]
    (folder / "known.jsonl").write_text("".join(lines))
    task = {**TASK, "dataset_kwargs": {"data_files": {"test": str(folder / "known.jsonl")}}, **more}
    (folder / "known.yaml").write_text(yaml.safe_dump(task))
    return str(folder)


def three_of_four(count: int = MANY) -> list[str]:
    return [reply(number, "no" if number % 4 == 3 else "yesSTOP and more") for number in range(count)]


def words(url: str, folder: str, *more: str) -> list[str]:
    return [
        "bench",
        "accuracy",
        "known",
        "--tasks-dir",
        folder,
        "--endpoint",
        url,
        "-C",
        str(IN_FLIGHT),
        "--json",
        *more,
    ]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """No hub, and no token of the caller's."""
    return {"HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1", "HF_TOKEN": ""}


def ask(home: Home, env: dict[str, str], argv: list[str], code: int = 0) -> dict[str, Any]:
    done = home.run(*argv, env=env, check=False)
    assert done.returncode == code, done.stderr
    point: dict[str, Any]
    (point,) = json.loads(done.stdout)
    return point


def asked(stub: StubProcess) -> dict[str, int]:
    """How often each question was asked."""
    found: dict[str, int] = stub.stats()["prompts"]
    return found


def done(home: Home) -> int:
    """How many questions have an answer that is kept."""
    files = home.paths.root.glob("bench/.answers/*/*.checkpoint/progress.json")
    return max((json.loads(file.read_text())["done"] for file in files), default=0)


def refused(home: Home, env: dict[str, str], argv: list[str], code: int = 2) -> str:
    done = home.run(*argv, env=env, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr or done.stdout


def test_answers_are_scored_and_kept(home: Home, env: dict[str, str], stub: StubProcess, tmp_path: Path) -> None:
    argv = words(stub.url, tasks(tmp_path / "tasks", three_of_four()))
    point = ask(home, env, argv)
    assert point["verdict"] == "valid"
    said = point["accuracy"]
    (score,) = said.pop("scores")
    assert score.pop("stderr") == pytest.approx((0.75 * 0.25 / (MANY - 1)) ** 0.5)
    assert score == {"task": "known", "metric": "exact_match", "filter": "none", "value": 0.75, "n": MANY,
                     "few_shot": 0, "version": "2.5"}  # fmt: skip
    assert (said["lm_eval"], said["api"], said["asked"], said["failed"]) == ("0.4.13", "chat", MANY, 0)
    folder = home.paths.root / "bench" / f"{point['id'][:16]}-1"
    lines = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert [line["exact_match"] for line in lines].count(1.0) == 45
    assert {*itertools.chain.from_iterable(line["answers"] for line in lines)} == {"yes", "no"}, (
        "cut at the stop, which this server does not obey"
    )
    assert set(asked(stub).values()) == {1}
    assert point["name"] in home.run("bench", "list").stdout
    shown = home.run("bench", "show", point["name"]).stdout
    assert "0.7500" in shown.splitlines()[1]
    home.run("bench", "report", "-o", str(tmp_path / "page.html"))
    assert "0.750 ± 0.056" in (tmp_path / "page.html").read_text()


def test_typed_again_it_asks_only_what_is_not_known(
    home: Home, env: dict[str, str], stub: StubProcess, tmp_path: Path
) -> None:
    folder = tasks(tmp_path / "tasks", three_of_four())
    first = ask(home, env, words(stub.url, folder, "--limit", "20"))
    stub.forget()
    again = ask(home, env, words(stub.url, folder, "--limit", "20"))
    assert (again["name"], again["stored_before"], asked(stub)) == (first["name"], True, {})
    whole = ask(home, env, words(stub.url, folder))
    assert whole["accuracy"]["asked"] == MANY
    assert len(asked(stub)) == MANY - 20
    stub.forget()
    anew = ask(home, env, words(stub.url, folder, "--again"))
    assert anew["id"] == whole["id"]
    assert (anew["repeat"], len(asked(stub))) == (2, MANY)


@pytest.mark.parametrize("answered", [MANY // 3, 2 * MANY // 3, MANY - 1])
def test_a_run_that_is_killed_asks_nothing_twice(
    home: Home, env: dict[str, str], stub: StubProcess, tmp_path: Path, answered: int
) -> None:
    argv = words(stub.url, tasks(tmp_path / "tasks", three_of_four()))
    stub.set(leave_after=answered)
    with home.start(*argv, env=env) as run:
        until(lambda: done(home) == answered, "all that is answered is taken in")
        os.kill(run.pid, signal.SIGKILL)
    under_way = stub.stats()["requests"] - answered
    assert under_way > 0, "a question was under way"
    stub.set(leave_after=0)
    point = ask(home, env, argv)
    assert (point["accuracy"]["scores"][0]["value"], point["accuracy"]["failed"]) == (0.75, 0)
    assert sorted(asked(stub).values()) == [1] * (MANY - under_way) + [2] * under_way, "an answer was lost"


def test_a_question_that_failed_is_no_wrong_answer(
    home: Home, env: dict[str, str], stub: StubProcess, tmp_path: Path
) -> None:
    """5 % are refused, as prompts that are too long are."""
    questions = three_of_four()
    questions[0] = questions[20] = questions[40] = "[400] too long"
    argv = words(stub.url, tasks(tmp_path / "tasks", questions))
    point = ask(home, env, argv, code=10)
    assert point["accuracy"]["scores"][0]["value"] == pytest.approx(42 / 57)
    assert point["accuracy"]["scores"][0]["n"] == 57
    assert (point["verdict"], point["accuracy"]["failed"]) == ("invalid", 3)
    assert point["checks"][0]["text"] == "3 of 60 questions have no answer (5.0 %); 3: HTTP 400: scripted 400"


def test_a_server_that_fails_now_and_then_is_asked_again(
    home: Home, env: dict[str, str], stub: StubProcess, tmp_path: Path
) -> None:
    folder = tasks(tmp_path / "tasks", [f"{number} yes" for number in range(MANY)])
    stub.set(rate_500=0.05)
    point = ask(home, env, words(stub.url, folder))
    assert (point["verdict"], point["accuracy"]["failed"]) == ("valid", 0)
    assert stub.stats()["requests"] > MANY


def test_nothing_answered_is_no_score(home: Home, env: dict[str, str], stub: StubProcess, tmp_path: Path) -> None:
    folder = tasks(tmp_path / "tasks", [f"[400] {number}" for number in range(3)])
    point = ask(home, env, words(stub.url, folder), code=10)
    assert (point["accuracy"]["scores"], point["verdict"]) == ([], "invalid")


def test_the_task_that_is_shipped_needs_no_hub(home: Home, env: dict[str, str], stub: StubProcess) -> None:
    point = ask(home, env, ["bench", "accuracy", "sums", "--endpoint", stub.url, "--json"])
    assert (point["accuracy"]["scores"][0]["value"], point["accuracy"]["asked"]) == (0.0, 40), "it only repeats them"
    assert len(asked(stub)) == 40


TERMS = (
    "  accept its terms at https://huggingface.co/datasets/Idavidrein/gpqa, and say which variable has your token: "
    "--hub-token-env NAME, or `hub_token: {env: NAME}` in a document"
)


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["sumss"], 2, "error: tasks: there is no task 'sumss'\n  did you mean 'sums'"),
        (["nope"], 2, "error: tasks: there is no task 'nope'\n  `sums` is shipped; lm-eval loads gsm8k, mmlu, gpqa"),
        (["gsm8k"], 5, "error: the questions of gsm8k are not on this machine: Couldn't reach 'openai/gsm8k'"),
        (["gpqa"], 2, f"error: tasks: the questions of {SETS['gpqa']} are gated, and HF_TOKEN is not set\n{TERMS}"),
        (["sums", "--tasks-dir", "nowhere"], 2, "error: tasks_dir: there is no folder nowhere"),
        (["sums", "--hub-token-env", "NOBODY"], 2, "error: secret $NOBODY is empty"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_one_sentence(
    home: Home, env: dict[str, str], stub: StubProcess, argv: list[str], code: int, said: str
) -> None:
    assert refused(home, env, ["bench", "accuracy", *argv, "--endpoint", stub.url], code).startswith(said)
    assert asked(stub) == {}


def test_a_task_that_a_server_cannot_answer_is_refused(
    home: Home, env: dict[str, str], stub: StubProcess, tmp_path: Path
) -> None:
    folder = tasks(tmp_path / "tasks", three_of_four(), output_type="multiple_choice", doc_to_choice=["yes", "no"],
                   metric_list=[{"metric": "acc"}])  # fmt: skip
    assert "known asks for log-probabilities (multiple_choice)" in refused(home, env, words(stub.url, folder))
    assert asked(stub) == {}


def test_a_document_and_a_job_ask_the_same(home: Home, env: dict[str, str], stub: StubProcess, tmp_path: Path) -> None:
    folder = tasks(tmp_path / "tasks", three_of_four())
    argv = words(stub.url, folder, "--detach")
    argv.remove("--json")
    job = home.run(*argv, env=env).stdout.strip()
    assert home.run("job", "wait", job, check=False).returncode == 0, home.run("job", "logs", job).stdout
    document = {"kind": "benchmark", "endpoint": stub.url, "tasks": ["known"], "tasks_dir": folder, "concurrency": 4}
    (tmp_path / "bench.yaml").write_text(yaml.safe_dump(document))
    point = ask(home, env, ["bench", "run", "-c", str(tmp_path / "bench.yaml"), "--json"])
    assert (point["stored_before"], set(asked(stub).values())) == (True, {1})


def test_what_is_for_loads_is_refused_beside_questions(home: Home, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bench.yaml").write_text("{kind: benchmark, endpoint: 'http://h', tasks: [sums], rate: 4}")
    said = refused(home, env, ["bench", "run", "-c", str(tmp_path / "bench.yaml")])
    assert said.endswith("bench.yaml:1:56: cannot be given beside `tasks`\n  it is for loads\n")
