"""What a benchmark of answers costs over lm-eval's own model of servers, and what is left to do after a kill at half.

The same task, the same stub server that takes 100 ms with 16 places, the same 16 requests in flight, the same lm-eval
in a process of its own; rounds alternate and the median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fakes.stub_process import StubProcess

from harness import Figure, finish

IN_FLIGHT, TAKES_S = 16, 0.1
TASK = """\
task: known
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{question}}}}"
generation_kwargs: {{until: [STOP]}}
metric_list: [{{metric: exact_match}}]
"""
THEIRS = """\
import sys
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
args = dict(model="stub", base_url=sys.argv[1] + "/v1/chat/completions", num_concurrent=int(sys.argv[3]), max_retries=3)
tasks = TaskManager(include_path=sys.argv[2], include_defaults=False)
made = simple_evaluate("local-chat-completions", args, tasks=["known"], task_manager=tasks, apply_chat_template=True)
assert made["results"]["known"]["sample_len"] == int(sys.argv[4])
"""


def task(folder: Path, questions: int) -> Path:
    folder.mkdir()
    lines = (json.dumps({"question": f"{number}: what is the sum of its digits?"}) for number in range(questions))
    (folder / "known.jsonl").write_text("\n".join(lines))
    (folder / "known.yaml").write_text(TASK.format(file=folder / "known.jsonl"))
    return folder


def theirs(url: str, tasks: Path, questions: int) -> float:
    start = time.perf_counter()
    words = [sys.executable, "-c", THEIRS, url, str(tasks), str(IN_FLIGHT), str(questions)]
    subprocess.run(words, check=True, capture_output=True)
    return time.perf_counter() - start


def begin(url: str, tasks: Path) -> subprocess.Popen[bytes]:
    words = ["bench", "accuracy", "known", "--tasks-dir", str(tasks), "--endpoint", url, "-C", str(IN_FLIGHT), "--json"]
    return subprocess.Popen([sys.executable, "-m", "remuda", *words], stdout=subprocess.PIPE)


def ours(url: str, tasks: Path, questions: int) -> float:
    start = time.perf_counter()
    out, _ = begin(url, tasks).communicate()
    (point,) = json.loads(out)
    assert (point["accuracy"]["asked"], point["accuracy"]["failed"], point["verdict"]) == (questions, 0, "valid")
    return time.perf_counter() - start


def kill_at_half(stub: StubProcess, tasks: Path, questions: int) -> None:
    stub.forget()
    with begin(stub.url, tasks) as run:
        while stub.stats()["requests"] < questions // 2:
            time.sleep(0.01)
        os.kill(run.pid, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rmacc"))
    home = folder / "home"
    os.environ |= {"REMUDA_HOME": str(home), "HF_HOME": str(folder / "hub"), "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    own: list[float] = []
    other: list[float] = []
    rest: list[float] = []
    try:
        tasks = task(folder / "tasks", options.questions)
        with StubProcess("--latency-s", str(TAKES_S), "--slots", str(IN_FLIGHT)) as stub:
            theirs(stub.url, tasks, options.questions)  # The data set is read once for both.
            for _ in range(options.rounds):
                other.append(theirs(stub.url, tasks, options.questions))
                own.append(ours(stub.url, tasks, options.questions))
                shutil.rmtree(home)
                kill_at_half(stub, tasks, options.questions)
                rest.append(ours(stub.url, tasks, options.questions))
                shutil.rmtree(home)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    whole, lm_eval, left = (statistics.median(one) for one in (own, other, rest))
    return finish([
        Figure("a run as typed", whole, "s", 1.1 * lm_eval, lm_eval, "lm-eval's local-chat-completions"),
        Figure("the same after a kill at half", left, "s", 0.6 * whole, whole, "a whole run"),
    ], as_json=options.as_json)  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
