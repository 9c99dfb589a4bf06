"""A job as plain data: what was asked, and what came of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.base.text import did_you_mean
from remuda.batch.input.expand import is_url
from remuda.batch.pipeline.order import ORDERS
from remuda.wire.fields import alike, known

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Bound of the adaptive concurrency when the user gives none.
DEFAULT_BOUND = 512
_KINDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "str": ((str,), "text"),
    "int": ((int,), "a whole number"),
    "float": ((float, int), "a number"),
    "bool": ((bool,), "true or false"),
}


@dataclass(frozen=True)
class JobRequest:
    """One batch job. All fields are plain data, so that it survives a trip through JSON (detached jobs)."""

    endpoint: str
    """Base URL of an OpenAI-compatible server, with or without `/v1`; empty for jobs that ask nobody."""
    model: str
    """Model name; empty takes the only one that the endpoint serves."""
    input: str
    """Input file, folder, glob or a{01..20}.parquet (or jsonl, csv)."""
    output: str
    """Output file (.parquet, .jsonl, .csv) or folder."""
    job: str = "chat"
    """Short name of a built-in job, or `module:Class`."""
    job_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the job's constructor; what it does not know goes into the request body."""
    endpoint_file: str = ""
    """`endpoint.json` of a swarm, where the endpoint may move; `endpoint` counts while it says nothing."""
    swarm_dir: str = ""
    """Run directory of the swarm that answers at `endpoint`. Once it says that the swarm was taken down nothing more is
    asked there: the port may be another's by then."""
    api_key_env: str = ""
    api_key_file: str = ""
    checkpoint_dir: str = ""
    """Checkpoint folder; default: OUTPUT.checkpoint, beside the output."""
    checkpoint_tag: str = ""
    """Tag that separates several checkpoints of one output."""
    resume: bool = True
    checkpointing: bool = True
    retry_errors: bool = False
    """Retry rows that ended with an error."""
    max_concurrency: int = 0
    """Limit of requests in flight; 0 adapts."""
    retries: int = 5
    """Retries per row."""
    timeout_s: float = 600.0
    """Time limit of one try: seconds, or 10m."""
    endpoint_wait_s: float = 600.0
    """How long rows wait for an endpoint that went away before the job stops."""
    order: str = "auto"
    """Order of requests; prefix groups rows with a common beginning. The output keeps the input's order."""
    slots: int | None = None
    """Requests that all engines behind the endpoint work on at once, each with a prompt cache of its own; 0 where they
    share one; None: ask the endpoint, -1: nobody knows."""
    num_threads: int = 1
    """Number of files of a folder output."""
    limit: int = 0
    """Number of rows to process, from the first."""
    input_column: str = ""
    """Column with the prompts (default: the job's own)."""
    output_columns: tuple[str, ...] = ()
    """Column for the answers (repeatable)."""
    id_column: str = ""
    """Column that identifies rows (default: their position)."""
    data_backend: str = "arrow"
    """Library: arrow, or pandas for user jobs."""
    native_batch_size: int = 0
    """Rows per call of a user's job."""
    read_kwargs: dict[str, Any] = field(default_factory=dict)
    write_kwargs: dict[str, Any] = field(default_factory=dict)
    shard_output: bool = False
    """Write a folder output as one file per shard of --num-threads."""
    checkpoint_interval: int = 0
    """Rows per write to the checkpoint."""
    usage_columns: bool = True
    """Whether chat-like jobs add prompt_tokens, completion_tokens and finish_reason."""
    name: str = ""
    """Job id, for display."""
    owner: str = ""
    """What all attempts of one job have in common, and nobody else: an attempt waits for the one before to let go of
    the checkpoint, where a stranger is refused. Empty: everybody is a stranger."""

    def __post_init__(self) -> None:
        """Check values and accept lists where JSON has no tuples.

        Raises:
            InputError: a value has another type, a number is out of range or a choice is unknown.
        """
        for item in dataclasses.fields(self):
            kinds, words = _KINDS.get(str(item.type), ((), ""))
            value = getattr(self, item.name)
            if kinds and (not isinstance(value, kinds) or isinstance(value, bool) != (kinds == (bool,))):
                raise InputError(f"{item.name} must be {words}, not {value!r}")
        object.__setattr__(self, "output_columns", tuple(self.output_columns))
        for name in ("max_concurrency", "retries", "limit", "native_batch_size", "checkpoint_interval"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}; it cannot be negative")
        if self.timeout_s <= 0 or self.num_threads < 1:
            raise InputError("timeout and num-threads must be above zero")
        if self.data_backend not in {"arrow", "pandas"}:
            raise InputError(f"unknown data backend {self.data_backend!r}", hint="known: arrow, pandas")
        _check_place("input", self.input, instead="copy it here first")
        _check_place("output", self.output, instead="write a file here, and copy it there afterwards")
        if self.order not in ORDERS:
            raise InputError(f"unknown order {self.order!r}", hint=f"known: {', '.join(ORDERS)}", where="--order")

    @classmethod
    def of(cls, said: Mapping[str, Any], *records: object, **more: Any) -> JobRequest:
        """The request of options, of records with fields of the same names, and of more; what comes last counts."""
        return cls(**known(cls, said) | alike(cls, *records) | more)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict; holds no secret."""
        return dataclasses.asdict(self) | {"output_columns": list(self.output_columns)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> JobRequest:
        """The request that `to_json` wrote.

        Raises:
            InputError: a field is unknown or missing.
        """
        known = [item.name for item in dataclasses.fields(cls)]
        for name in data:
            if name not in known:
                raise InputError(f"a job has no option {name!r}", hint=did_you_mean(name, known))
        try:
            return cls(**data)
        except TypeError as error:
            raise InputError(f"not a job request: {error}") from error

    def checkpoint_path(self) -> Path:
        """Where the checkpoint is; nothing is created."""
        base = self.checkpoint_base()
        return base / self.checkpoint_tag if self.checkpoint_tag else base

    def checkpoint_base(self) -> Path:
        """Where the checkpoints of all tags are; nothing is created."""
        return Path(self.checkpoint_dir) if self.checkpoint_dir else Path(self.output.rstrip("/") + ".checkpoint")


def _check_place(name: str, said: str, *, instead: str) -> None:
    if not said.strip():
        hint = f"write a path after --{name}; is a variable of the shell not set?"
        raise InputError(f"the {name} has no name", hint=hint, where=f"--{name}")
    if is_url(said):
        raise InputError(f"the {name} {said} is a URL; rows are in files", hint=instead, where=f"--{name}")


@dataclass(frozen=True)
class Summary:
    """What a run of a job came to."""

    rows: int
    """Rows of the input, within the limit."""
    done: int
    """Rows answered or given up in this run."""
    skipped: int
    """Rows that an earlier run had finished."""
    failed: int
    """Rows of the output that carry an error, from this run or an earlier one."""
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    output: str
    checkpoint: str
    """Checkpoint directory; empty without checkpointing."""
    output_kept: bool = False
    """Nothing was left to do and the output was there already."""
    cached_tokens: int = 0
    """Prompt tokens that the engine did not have to compute, as far as it says."""
    order: str = "input"
    """In which order rows were asked: `input` or `prefix`."""
    lanes: int = 0
    """With `prefix`: how many sequences of rows were asked side by side."""
    notes: tuple[str, ...] = ()
    """What happened to checkpoint and input since the last run, a sentence each."""
    asked_again: int = 0
    """Questions that were sent a second time because nobody seemed to hear the first."""

    @property
    def rows_per_s(self) -> float:
        """Rows of this run by its wall time."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens of this run by its wall time."""
        return self.completion_tokens / self.seconds if self.seconds > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict with the rates in it."""
        return dataclasses.asdict(self) | {
            "rows_per_s": round(self.rows_per_s, 2),
            "tokens_per_s": round(self.tokens_per_s, 2),
        }
