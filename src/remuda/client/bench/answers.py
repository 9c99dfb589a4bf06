"""lm-eval's model of an endpoint: the batch engine asks its questions, and remembers each answer. Loads lm-eval."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import orjson
from lm_eval.api.model import LM

from remuda.base.disk.files import write_atomic
from remuda.batch.driver import run_job
from remuda.batch.jobs import RequestJob, content_of, continuation_of, first_choice, with_usage
from remuda.batch.request import JobRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
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
        body = orjson.dumps({"model": self.model, **item})
        if "messages" in item:
            reply = await ask("/v1/chat/completions", body)
            return with_usage([content_of(choice := first_choice(reply), reply)], reply, choice)
        reply = await ask("/v1/completions", body)
        return with_usage([continuation_of(choice := first_choice(reply), reply)], reply, choice)


class EndpointModel(LM):  # type: ignore[misc]
    """A server as lm-eval asks it.

    Args:
        request: of the batch jobs, without input and output.
        folder: where questions and answers lie; those that are there are not asked again.
        is_chat: the chat API is asked, and the server applies its template.
        max_tokens: of an answer; 0: as the task says.
        show: called while it runs.

    Attributes:
        is_chat: see there.
        rows: every question with its answer or error, as the batch engine wrote it.
        asked: how many were sent now, and not taken from an earlier run.
    """

    def __init__(
        self, request: Mapping[str, Any], folder: Path, show: Callable[[Progress], None], *,
        is_chat: bool, max_tokens: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.is_chat = is_chat
        self._request = request
        self._folder = folder
        self._max_tokens = max_tokens
        self._show = show
        self.rows: list[dict[str, Any]] = []
        self.asked = 0

    @property
    def tokenizer_name(self) -> str:
        """For caches of lm-eval, which are not used."""
        return ""

    def apply_chat_template(self, chat_history: list[dict[str, str]], **_: Any) -> str:
        """The messages as they are: the server has the template."""
        return json.dumps(chat_history, ensure_ascii=False)

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """Answers in the order of the questions; `Unanswered` where there is none."""
        bodies = [self._body(*one.args) for one in requests]
        for number, one in enumerate(requests):
            if number and one is requests[number - 1]:  # Asked again, where the task wants several answers.
                bodies[number]["seed"] = bodies[number - 1]["seed"] + 1
        rows = self._answers("generate", bodies)
        return [
            Unanswered(row["error"]) if row["error"] else _cut(row["result"], one.args[1].get("until"))
            for row, one in zip(rows, requests, strict=True)
        ]

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """Refused before it is asked for."""
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
        """The same."""
        raise NotImplementedError

    def _body(self, context: str, said: dict[str, Any]) -> dict[str, Any]:
        fields = {name: value for name, value in said.items() if name not in ("do_sample", "until", "max_gen_toks")}
        tokens = self._max_tokens or said.get("max_tokens") or said.get("max_gen_toks") or _TOKENS
        question = {"messages": json.loads(context)} if self.is_chat else {"prompt": context}
        made = {**question, "temperature": 0, "seed": _SEED, **fields, "max_tokens": tokens}
        stops = _stops(said.get("until"))[:_STOPS]
        return {**made, "stop": stops} if stops else made

    def _answers(self, kind: str, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        questions, answers = self._folder / f"{kind}.jsonl", self._folder / f"{kind}.answers.jsonl"
        data = b"".join(orjson.dumps({"body": body}, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n" for body in bodies)
        if not questions.is_file() or questions.read_bytes() != data:
            write_atomic(questions, data, mode=0o600)
        job = QuestionJob(checkpoint_interval=1, max_concurrency=self._request["max_concurrency"])
        request = JobRequest.of(self._request, input=str(questions), output=str(answers), retry_errors=True)
        summary = run_job(request, self._show, job=job)
        self.asked += summary.done
        rows = [orjson.loads(line) for line in answers.read_bytes().splitlines()]
        self.rows += rows
        return rows


def _stops(until: Any) -> list[str]:
    return [until] if isinstance(until, str) else list(until or ())


def _cut(text: str, until: Any) -> str:
    """An answer up to the first of its stops: servers take four of them, and some obey none."""
    ends = [at for stop in _stops(until) if stop and (at := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


def leave_out(task: Task) -> None:
    """Let a task score the questions that have an answer, and no others: a failed one is not a wrong one."""
    apply, process = task.apply_filters, task.process_results

    def apply_filters() -> None:
        apply()
        for one in task.instances:
            for failed in (answer for answer in one.resps if isinstance(answer, Unanswered)):
                one.filtered_resps = dict.fromkeys(one.filtered_resps, failed)

    def process_results(doc: Any, results: list[Any]) -> dict[str, Any]:
        return {} if any(isinstance(one, Unanswered) for one in results) else process(doc, results)

    task.apply_filters, task.process_results = apply_filters, process_results
