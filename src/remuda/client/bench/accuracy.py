"""Accuracy: lm-eval asks an endpoint through the batch engine, and what it finds becomes a point."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from remuda import bench
from remuda.base.disk.private import make_private
from remuda.base.errors import InputError, RemudaError
from remuda.base.extras import need_accuracy
from remuda.base.secrets import SecretRef
from remuda.base.text import did_you_mean, short
from remuda.base.units import show_counted
from remuda.batch.show import progress_line
from remuda.bench.generator.load_workers import LoadProgress
from remuda.bench.judging.rules import failures
from remuda.bench.load import Load
from remuda.client.bench.benchmarks import Measured
from remuda.plan.deployment.bench import HUB_TOKEN
from remuda.specs.benchmark import SETS, QuestionFields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from remuda.bench.perform import BenchSession
    from remuda.bench.store import PointStore
    from remuda.client.bench.answers import EndpointModel, KnownTasks
    from remuda.client.bench.benchmarks import EndpointSource
    from remuda.specs.benchmark import BenchmarkSpec

_GATED: Final = {"gpqa": "Idavidrein/gpqa"}
"""First letters of tasks whose questions the hub gives to those only who have asked for them -> data set."""
_KEPT: Final = ".answers"


def check(spec: QuestionFields, *, gates: bool = True) -> KnownTasks:
    """See that there are such tasks, and whether their `gates` are open; nothing is loaded of their questions.

    Raises:
        InputError: lm-eval is not installed, there is no task of a name, or a token is missing.
    """
    need_accuracy("a benchmark of answers takes")
    if spec.tasks_dir and not Path(spec.tasks_dir).is_dir():
        raise InputError(f"there is no folder {spec.tasks_dir}", where="tasks_dir")
    if spec.hub_token is not None:
        os.environ[HUB_TOKEN] = SecretRef(spec.hub_token.file, spec.hub_token.env).read()
    found = _tasks(spec.tasks, spec.tasks_dir)
    from huggingface_hub import constants, get_token

    for name in spec.tasks:
        if name not in found.task_index:
            known = f"`sums` is shipped; lm-eval loads {', '.join(SETS)} and its other tasks from the hub"
            near = did_you_mean(name, found.all_tasks, known, most=3, cutoff=0.75)
            raise InputError(f"there is no task {name!r}", hint=near, where="tasks")
        data = next((data for begin, data in _GATED.items() if name.startswith(begin)), "")
        kept = Path(constants.HF_HUB_CACHE, f"datasets--{data.replace('/', '--')}")
        if gates and data and not get_token() and not kept.exists():
            said = f"accept its terms at https://huggingface.co/datasets/{data}, and say which variable has your token"
            hint = f"{said}: --hub-token-env NAME, or `hub_token: {{env: NAME}}` in a document"
            raise InputError(f"the questions of {name} are gated, and {HUB_TOKEN} is not set", hint=hint, where="tasks")
    return found


@cache
def _tasks(names: tuple[str, ...], tasks_dir: str) -> KnownTasks:
    """All tasks that could be meant, by name."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    from remuda.client.bench.answers import KnownTasks

    for noisy in ("lm_eval", "datasets", "huggingface_hub"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    places = [str(Path(bench.__file__).with_name("questions")), *filter(None, (tasks_dir,))]
    found = KnownTasks(include_path=places, include_defaults=False)
    # Those of lm-eval are fourteen thousand: some seconds.
    return found if set(names) <= set(found.all_subtasks) else KnownTasks(include_path=places)


def measure(
    spec: BenchmarkSpec, session: BenchSession, source: EndpointSource, kept: PointStore,
    show: Callable[[Load, LoadProgress], None], *, again: bool,
) -> Measured:  # fmt: skip
    """Ask what is not known, score all, and store the point.

    Answers are kept by who gave them, and to what: a run that was killed goes on, and one that is typed again asks only
    what failed, or what is new.

    Raises:
        RemudaError: they cannot be asked.
    """
    from remuda.client.bench.answers import EndpointModel

    found = check(spec)
    asyncio.run(session.open())
    address = question(spec, session)  # before lm-eval compiles what lies beside its tasks
    began, file = time.time(), source.endpoint_file
    load = Load(isl=0, osl=0, concurrency=next(iter(spec.concurrency), 0), api=spec.api)
    asked = spec.model_dump(mode="json", include={"api", *QuestionFields.model_fields}, exclude={"hub_token"})
    # More of the same questions, or more at once, have the same answers.
    of_all = session.address(Load(isl=0, osl=0), orjson.dumps({**asked, "limit": 0}).decode())
    model = EndpointModel(
        make_private(kept.root / _KEPT / of_all[:16], below=kept.root.parent),
        is_chat=spec.api == "chat", max_tokens=spec.max_tokens,
        show=lambda live: show(load, LoadProgress(issued=live.done, line=progress_line(live))),
        endpoint=session.target.place.base, model=session.target.model, api_key_env=source.key_env,
        api_key_file=source.key_file, endpoint_file=file, swarm_dir=file.rpartition("/")[0], resume=not again,
        max_concurrency=load.concurrency, timeout_s=spec.timeout,
    )  # fmt: skip
    made = _evaluate(spec, found, model)
    errors = [row["error"] for row in model.rows if row["error"]]
    scores, total = _scores(made), len(model.rows)
    asked["question"] = address
    asked |= {"lm_eval": version("lm-eval"), "versions": {one["task"]: one["version"] for one in scores}}
    accuracy = {
        **asked, "scores": scores, "asked": total, "failed": len(errors),
        "cut": sum(1 for row in model.rows if row["finish_reason"] == "length"),
    }  # fmt: skip
    text = f"{len(errors)} of {show_counted(total, 'question')} have no answer"
    hint = "the score is of the others; the same command asks these again"
    judged = failures(text, len(errors) / total, errors, session.terms.thresholds, hint)
    point = session.point(load, {"requests": total, "measured": total - len(errors)}, [judged], began,
                          asked=orjson.dumps(asked).decode(), accuracy=accuracy)  # fmt: skip
    known = kept.of(point.id)
    if known and not model.asked and known[-1].accuracy == orjson.loads(orjson.dumps(accuracy)):
        return Measured(known[-1], is_stored=True)
    return Measured(kept.write(point, [], _samples(made)))


def question(spec: BenchmarkSpec, session: BenchSession) -> str:
    """The content address of these questions to an endpoint; of one with a config also before anything is asked."""
    said = spec.model_dump(mode="json", include={"api", *QuestionFields.model_fields}, exclude={"hub_token"})
    own = sorted(Path(spec.tasks_dir).rglob("*")) if spec.tasks_dir else []
    stamps = [
        (str(path), (at := path.stat()).st_size, at.st_mtime_ns)
        for path in own
        if path.is_file() and path.parent.name != "__pycache__"
    ]
    return session.address(Load(isl=0, osl=0), orjson.dumps([said, version("lm-eval"), stamps]).decode())


def _evaluate(spec: BenchmarkSpec, found: KnownTasks, model: EndpointModel) -> Mapping[str, Any]:
    from lm_eval import simple_evaluate

    try:
        made: Mapping[str, Any] = simple_evaluate(
            model, tasks=[*spec.tasks], task_manager=found, limit=spec.limit or None, num_fewshot=spec.num_fewshot,
            apply_chat_template=spec.api == "chat",
        )  # fmt: skip
    except RemudaError:
        raise
    except Exception as error:
        words = f"lm-eval cannot score {', '.join(spec.tasks)}: {type(error).__name__}: {short(str(error), 200)}"
        raise RemudaError(words, hint="answers are kept") from error
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
