"""Accuracy: lm-eval asks an endpoint through the batch engine, and what it finds becomes a point."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from remuda import bench
from remuda.base.disk.private import make_private
from remuda.base.errors import InputError, RemudaError, Unavailable
from remuda.base.extras import need_accuracy
from remuda.base.settings import variable
from remuda.base.text import did_you_mean, short
from remuda.base.units import show_counted, show_percent
from remuda.bench.judging.verdict import INVALID, OK, SUSPECT, Check, verdict_of
from remuda.bench.load import Load
from remuda.bench.point import Point
from remuda.client.bench.benchmarks import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.batch.progress import Progress
    from remuda.bench.perform import BenchSession
    from remuda.bench.store import PointStore
    from remuda.client.bench.answers import EndpointModel
    from remuda.client.bench.benchmarks import BenchPlan, EndpointSource

NAMED: Final = {"mmlu": "mmlu_generative", "gpqa": "gpqa_diamond_cot_zeroshot"}
"""Sets by their short names -> the task of lm-eval that a server of chats can answer."""
TOKEN: Final = "HF_TOKEN"  # noqa: S105 - its name
_GATED: Final = {"gpqa": "Idavidrein/gpqa"}
"""First letters of tasks whose questions the hub gives to those only who have asked for them -> data set."""
_KEPT: Final = ".answers"


@dataclass(frozen=True)
class Questions:
    """What is asked.

    Attributes:
        tasks: names of lm-eval's, of `tasks_dir`, or `NAMED`.
        tasks_dir: folder with further tasks.
        limit: of each task so many questions; 0: all.
        num_fewshot: examples before each question; -1: as the task says.
        max_tokens: of an answer; 0: as the task says.
        token_env: variable with the token of the hub.
    """

    tasks: tuple[str, ...]
    tasks_dir: str = ""
    limit: int = 0
    num_fewshot: int = -1
    max_tokens: int = 0
    token_env: str = ""

    @property
    def names(self) -> list[str]:
        """As lm-eval calls them."""
        return [NAMED.get(name, name) for name in self.tasks]


def find(questions: Questions) -> Any:
    """The tasks by their names, for `measure`; nothing is loaded of their questions.

    Raises:
        InputError: lm-eval is not installed, there is no task of a name, or a token is missing.
    """
    need_accuracy("a benchmark of answers takes")
    os.environ.setdefault("TQDM_DISABLE", "1")
    if questions.token_env:
        os.environ[TOKEN], _ = variable(questions.token_env, named=True)
        if not os.environ[TOKEN]:
            raise InputError(f"environment variable {questions.token_env} is not set", where="--hub-token-env")
    if questions.tasks_dir and not Path(questions.tasks_dir).is_dir():
        raise InputError(f"there is no folder {questions.tasks_dir}", where="--tasks-dir")
    from lm_eval.tasks import TaskManager

    for noisy in ("lm_eval", "datasets", "huggingface_hub"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    places = [str(Path(bench.__file__).with_name("questions")), *filter(None, (questions.tasks_dir,))]
    found = TaskManager(include_path=places, include_defaults=False)
    if not set(questions.names) <= set(found.all_subtasks):
        found = TaskManager(include_path=places)  # Fourteen thousand names: some seconds.
    for name in questions.names:
        if name not in found.task_index:
            raise InputError(
                f"there is no task {name!r}", hint=did_you_mean(name, found.all_tasks, most=3), where="task"
            )
        _check_token(name)
    return found


def _check_token(name: str) -> None:
    from huggingface_hub import constants, get_token

    data = next((data for begin, data in _GATED.items() if name.startswith(begin)), "")
    kept = Path(constants.HF_HUB_CACHE) / f"datasets--{data.replace('/', '--')}"
    if data and not get_token() and not kept.exists():
        hint = f"accept its terms at https://huggingface.co/datasets/{data}, and name the variable with your token"
        raise InputError(f"the questions of {name} are gated, and {TOKEN} is not set", hint=hint, where="task")


def _load(found: Any, questions: Questions) -> dict[str, Any]:
    """Tasks with their questions.

    Raises:
        Unavailable: they are not here, and the hub does not answer.
        InputError: a task cannot be loaded, or asks what a server cannot answer.
    """
    try:
        loaded: dict[str, Any] = found.load(questions.names)
    except Exception as error:
        what, words = ", ".join(questions.tasks), short(str(error), 200)
        if isinstance(error, ConnectionError):
            hint = "load them once where the hub is reached, and set HF_HOME to that folder; `sums` needs no hub"
            raise Unavailable(f"the questions of {what} are not on this machine: {words}", hint=hint) from error
        raise InputError(f"{what} cannot be loaded: {type(error).__name__}: {words}", where="task") from error
    for name, task in loaded["tasks"].items():
        if task.OUTPUT_TYPE != "generate_until":
            words = f"{name} asks for log-probabilities ({task.OUTPUT_TYPE}), which are not asked of servers yet"
            raise InputError(words, hint="take a task whose answers are generated", where="task")
        if getattr(task, "UNSAFE_CODE", False):
            raise InputError(f"{name} runs what the model has written, which is not done here", where="task")
    return loaded


def measure(
    questions: Questions, found: Any, plan: BenchPlan, kept: PointStore, show: Callable[[Progress], None], *,
    again: bool = False,
) -> Measured:  # fmt: skip
    """Ask what is not known, score all, and store the point.

    Answers are kept in a folder by who gave them and to what, so a run that was killed goes on, and one that is typed
    again asks only what failed.

    Args:
        questions: what is asked.
        found: see `find`.
        plan: who is asked.
        kept: where points and answers are kept.
        show: called while it runs.
        again: ask all of them again.

    Raises:
        RemudaError: they cannot be asked.
    """
    from remuda.client.bench.answers import EndpointModel

    session, spec = plan.sessions[0], plan.spec
    loaded = _load(found, questions)
    asyncio.run(session.open())
    began = time.time()
    asked = {**asdict(questions), "tasks": questions.names, "token_env": "", "api": spec.api}
    load = Load(isl=0, osl=0, concurrency=next(iter(spec.concurrency), 0), api=spec.api)
    # More of the same questions, or more at once, have the same answers.
    of_all = session.address(Load(isl=0, osl=0), orjson.dumps({**asked, "limit": 0}).decode())
    folder = make_private(kept.root / _KEPT / of_all[:16], below=kept.root.parent)
    request = {**_request(session, plan.sources[0]), "resume": not again, "max_concurrency": load.concurrency}
    model = EndpointModel(request, folder, show, is_chat=spec.api == "chat", max_tokens=questions.max_tokens)
    made = _evaluate(questions, found, loaded, model)
    accuracy = {**asked, "lm_eval": version("lm-eval"), "scores": _scores(made), **_counts(model.rows)}
    versions = {one["task"]: one["version"] for one in accuracy["scores"]}
    point = Point(
        id=session.address(load, orjson.dumps([asked, accuracy["lm_eval"], versions]).decode()), repeat=0,
        source="remuda", endpoint=session.target.place.base, model=session.target.model, engine=session.identity,
        load=load, metrics={"requests": len(model.rows), "measured": len(model.rows) - accuracy["failed"]},
        checks=(check := _check(model.rows, session.terms.thresholds),), verdict=verdict_of([check]),
        thresholds=dict(session.terms.thresholds), hardware=session.target.hardware, meta=dict(session.terms.meta),
        started_at=began, config=session.target.config, accuracy=accuracy,
    )  # fmt: skip
    known = kept.of(point.id)
    if known and not model.asked and known[-1].accuracy == orjson.loads(orjson.dumps(accuracy)):
        return Measured(known[-1], is_stored=True)
    return Measured(kept.write(point, [], _samples(made)))


def _request(session: BenchSession, source: EndpointSource) -> dict[str, Any]:
    file = source.endpoint_file
    return {
        "endpoint": session.target.place.base, "model": session.target.model, "api_key_env": source.key_env,
        "api_key_file": source.key_file, "endpoint_file": file, "swarm_dir": file.rpartition("/")[0],
    }  # fmt: skip


def _evaluate(questions: Questions, found: Any, loaded: dict[str, Any], model: EndpointModel) -> Mapping[str, Any]:
    from lm_eval import simple_evaluate

    from remuda.client.bench.answers import leave_out

    for task in loaded["tasks"].values():
        leave_out(task)
    found.load = lambda _: loaded  # Questions are loaded once.
    few = questions.num_fewshot if questions.num_fewshot >= 0 else None
    try:
        made: Mapping[str, Any] = simple_evaluate(
            model, tasks=questions.names, task_manager=found, limit=questions.limit or None, num_fewshot=few,
            apply_chat_template=model.is_chat,
        )  # fmt: skip
    except RemudaError:
        raise
    except Exception as error:
        words = f"{type(error).__name__}: {short(str(error), 200)}"
        raise RemudaError(
            f"lm-eval cannot score {', '.join(questions.tasks)}: {words}", hint="answers are kept"
        ) from error
    return made


def _scores(made: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One of each task or group, metric and filter."""
    return [
        {
            "task": task, "metric": metric, "filter": reader, "value": float(value),
            "stderr": error if isinstance(error := found.get(f"{metric}_stderr,{reader}"), float) else None,
            "n": found.get("sample_len", 0), "few_shot": made["n-shot"].get(task),
            "version": str(made["versions"].get(task, "")),
        }
        for task, found in made["results"].items()
        for (metric, _, reader), value in ((key.partition(","), value) for key, value in found.items())
        if reader and not metric.endswith("_stderr") and isinstance(value, (int, float))
    ]  # fmt: skip


def _counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    failed = sum(1 for row in rows if row["error"])
    return {"asked": len(rows), "failed": failed, "cut": sum(1 for row in rows if row["finish_reason"] == "length")}


def _check(rows: Sequence[Mapping[str, Any]], limits: Mapping[str, float]) -> Check:
    """Rule V2: the score is one of those who answered."""
    errors = Counter(row["error"] for row in rows if row["error"])
    if not errors:
        return Check("V2", OK)
    ((words, count),) = errors.most_common(1)
    share = errors.total() / len(rows)
    text = f"{errors.total()} of {show_counted(len(rows), 'question')} have no answer ({show_percent(share)})"
    state = INVALID if share > limits["V2.invalid"] else SUSPECT if share > limits["V2.suspect"] else OK
    return Check(
        "V2", state, f"{text}; {count}: {words}", "the score is of the others; type the same command to ask these again"
    )


def _samples(made: Mapping[str, Any]) -> bytes:
    """A line for each question and way to read its answer."""
    lines = (
        {
            "task": task, "doc_id": one["doc_id"], "filter": one["filter"], "question": one["arguments"][0][0],
            "answers": one["resps"][0], "read": one["filtered_resps"][0], "target": one["target"],
            "is_answered": bool(one["metrics"]), **{name: one[name] for name in one["metrics"]},
        }
        for task, samples in made["samples"].items() for one in samples
    )  # fmt: skip
    return b"".join(orjson.dumps(line, default=str, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n" for line in lines)
