"""An endpoint and tasks as lm-eval has them: the batch engine asks, and remembers each answer. Loads lm-eval."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

import orjson
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from remuda.base.disk.files import write_atomic
from remuda.base.errors import InputError, Unavailable
from remuda.base.text import short
from remuda.batch.driver import run_job
from remuda.batch.jobs import RequestJob, content_of, continuation_of, first_choice, with_usage
from remuda.batch.request import JobRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lm_eval.api.instance import Instance
    from lm_eval.api.task import Task

    from remuda.batch.jobs import Ask
    from remuda.batch.pipeline.answer import RowAnswer
    from remuda.batch.progress import Progress

#: As lm-eval's own models of servers have them, so that scores can be compared.
_TOKENS: Final = 256
_STOPS: Final = 4
_SEED: Final = 1234


class Unanswered(str):
    """In place of an answer: the error that a question ended with."""

    __slots__ = ()


class QuestionJob(RequestJob):
    """A row is the body of a request, of a chat or a completion; its answer is the text."""

    columns = ("body",)

    async def answer(self, item: Any, ask: Ask) -> RowAnswer:
        """See `RequestJob.answer`."""
        path, read = ("chat/", content_of) if "messages" in item else ("", continuation_of)
        reply = await ask(f"/v1/{path}completions", orjson.dumps({"model": self.model, **item}))
        return with_usage([read(choice := first_choice(reply), reply)], reply, choice)


class EndpointModel(LM):  # type: ignore[misc]
    """An endpoint.

    Args:
        folder: where questions and answers lie; those that are there are not asked again.
        is_chat: the chat API is asked, and the server applies its template.
        max_tokens: of an answer; 0: as the task says.
        show: called while it runs.
        request: of the batch job, as far as it is known.

    Attributes:
        rows: every question with its answer or error, as the batch engine wrote it.
        asked: how many were sent now, and not taken from an earlier run.
    """

    tokenizer_name = ""
    """For caches of lm-eval, which are not used."""

    def __init__(
        self, folder: Path, *, is_chat: bool, max_tokens: int, show: Callable[[Progress], None], **request: Any
    ) -> None:
        super().__init__()
        self._folder = folder
        self._is_chat = is_chat
        self._max_tokens = max_tokens
        self._show = show
        self._request = request
        self.rows: list[dict[str, Any]] = []
        self.asked = 0

    def apply_chat_template(self, chat_history: list[dict[str, str]], **_: Any) -> str:
        """The messages as they are: the server has the template."""
        return json.dumps(chat_history, ensure_ascii=False)

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """Answers in the order of the questions; `Unanswered` where there is none."""
        # A question comes several times in a row where its task wants as many answers.
        times = ((one, again) for _, same in itertools.groupby(requests, key=id) for again, one in enumerate(same))
        bodies = [self._body(one.args, _SEED + again) for one, again in times]
        questions, answers = self._folder / "questions.jsonl", self._folder / "answers.jsonl"
        data = b"".join(orjson.dumps({"body": body}, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n" for body in bodies)
        if not questions.is_file() or questions.read_bytes() != data:
            write_atomic(questions, data, mode=0o600)
        job = QuestionJob(checkpoint_interval=1, max_concurrency=self._request["max_concurrency"])
        request = JobRequest(**self._request, input=str(questions), output=str(answers), retry_errors=True)
        self.asked = run_job(request, self._show, job=job).done
        self.rows = [orjson.loads(line) for line in answers.read_bytes().splitlines()]
        return [
            Unanswered(row["error"]) if row["error"] else _cut(row["result"], _stops(one.args[1]))
            for row, one in zip(self.rows, requests, strict=True)
        ]

    def _body(self, asked: tuple[str, dict[str, Any]], seed: int) -> dict[str, Any]:
        context, said = asked
        own = {name: value for name, value in said.items() if name not in ("do_sample", "until", "max_gen_toks")}
        tokens = self._max_tokens or said.get("max_tokens") or said.get("max_gen_toks") or _TOKENS
        question = {"messages": json.loads(context)} if self._is_chat else {"prompt": context}
        stop = {"stop": stops[:_STOPS]} if (stops := _stops(said)) else {}
        return {**question, "temperature": 0, "seed": seed, **own, "max_tokens": tokens, **stop}

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """`KnownTasks` refuses what asks for it."""
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


def _stops(said: dict[str, Any]) -> list[str]:
    until = said.get("until")
    return [until] if isinstance(until, str) else list(until or ())


def _cut(text: str, stops: Sequence[str]) -> str:
    """An answer up to the first of its stops: servers take four of them, and some obey none."""
    ends = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


class KnownTasks(TaskManager):  # type: ignore[misc]
    """Tasks that score the questions that have an answer, and no others: a failed one is not a wrong one."""

    def load(self, task_list: list[str]) -> Any:
        """Tasks with their questions.

        Raises:
            Unavailable: they are not here, and the hub does not answer.
            InputError: a task cannot be loaded, or asks what an endpoint is not asked.
        """
        what = ", ".join(task_list)
        try:
            loaded = super().load(task_list)
        except Exception as error:
            words = short(str(error), 200)
            if isinstance(error, ConnectionError):
                hint = "load them once where the hub is reached, and set HF_HOME to that folder; `sums` needs no hub"
                raise Unavailable(f"the questions of {what} are not on this machine: {words}", hint=hint) from error
            raise InputError(f"{what} cannot be loaded: {type(error).__name__}: {words}", where="tasks") from error
        for name, task in loaded["tasks"].items():
            if task.OUTPUT_TYPE != "generate_until":
                words = f"{name} asks for log-probabilities ({task.OUTPUT_TYPE}), which endpoints are not asked for"
                raise InputError(words, hint="take a task whose answers are generated", where="tasks")
            if getattr(task, "UNSAFE_CODE", False):
                raise InputError(f"{name} runs what the model has written, which is not done here", where="tasks")
            _leave_out(task)
        return loaded


def _leave_out(task: Task) -> None:
    apply, process = task.apply_filters, task.process_results

    def apply_filters() -> None:
        apply()
        for one in task.instances:
            for failed in (answer for answer in one.resps if isinstance(answer, Unanswered)):
                one.filtered_resps = dict.fromkeys(one.filtered_resps, failed)

    def process_results(doc: Any, results: list[Any]) -> dict[str, Any]:
        return {} if any(isinstance(one, Unanswered) for one in results) else process(doc, results)

    task.apply_filters, task.process_results = apply_filters, process_results
