"""Everything that a job needs before its first row, checked before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from remuda.base.endpoint import base_url, pick_model, read_key
from remuda.base.errors import Conflict, InputError, Interrupted
from remuda.batch.address import DOWN, EndpointAddress, EndpointGone, FollowingTransport
from remuda.batch.endpoint import START_WAIT_S, ask_models
from remuda.batch.fingerprint import check_same, fingerprint
from remuda.batch.input.changes import see_changes
from remuda.batch.input.source import Source
from remuda.batch.jobs import RequestJob
from remuda.batch.loading import load_class, make_job
from remuda.batch.output import checkpoint as store
from remuda.batch.output.checkpoint import Checkpoint
from remuda.batch.output.fit import check_fit
from remuda.batch.output.index import IdTable, digest_id
from remuda.batch.output.output import ColumnLayout, OutputTarget, plan_target, see_stranger
from remuda.batch.pipeline.transport import AiohttpTransport
from remuda.batch.pipeline.unheard import ReplyTimes
from remuda.batch.threads import in_thread

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path

    from remuda.batch.job import SwarmJob
    from remuda.batch.output.lock import FolderLock
    from remuda.batch.pipeline.transport import Transport
    from remuda.batch.request import JobRequest


_SWARM_WAIT_S: Final = 30.0
"""How long a job waits at its start for the user's own swarm on this machine: its router may just be starting again."""


@dataclass
class Connection:
    """An endpoint to ask: its URL without `/v1`, its transport, and the key that must not be shown."""

    url: str
    transport: Transport
    api_key: str
    address: EndpointAddress | None = None
    """Where it is, if it may move."""
    answered: bool = False
    """Whether it has answered a question in this run."""
    wait_s: float = START_WAIT_S
    """How long it is waited for at the start."""
    hearing: ReplyTimes = field(default_factory=ReplyTimes)
    """What is known of its answers."""
    is_patient: bool = False
    """Wait for as long as its supervisor does: nobody looks on, and who gives up would only be started again."""

    @property
    def where(self) -> str:
        """The endpoint's name in messages."""
        return str(self.address) if self.address is not None else self.url

    async def models(self) -> list[str]:
        """See `ask_models`.

        Raises:
            Unavailable: nobody answered in time, or it was taken down.
            Rejected: the key was refused.
        """
        found = await ask_models(
            self.transport, self.where, wait_s=self.wait_s, check=self.check, is_coming=self.is_coming
        )
        self.answered = True
        return found

    def is_coming(self) -> bool:
        """Whether to go on waiting, however long it was."""
        return self.is_patient and self.address is not None and self.address.is_coming()

    def check(self) -> None:
        """See that somebody may still answer.

        Raises:
            EndpointGone: it was taken down.
        """
        gone = self.address.gone() if self.address is not None else ""
        if gone:
            raise EndpointGone(gone, hint="bring it up and type the same command again; finished rows are kept")


@dataclass
class Prepared:
    """A job that can be run."""

    request: JobRequest
    job: SwarmJob
    column: str
    source: Source
    target: OutputTarget
    layout: ColumnLayout


def open_connection(request: JobRequest) -> Connection | None:
    """A connection to the request's endpoint; None when it has none. Sends nothing.

    Raises:
        InputError: the URL or the reference to the key is wrong.
    """
    if request.endpoint_file:
        return _follow(request, EndpointAddress(request.endpoint_file, request.endpoint), request.endpoint_wait_s)
    if not request.endpoint:
        return None
    if request.swarm_dir:
        return _follow(
            request, EndpointAddress(f"{request.swarm_dir}/{DOWN}", request.endpoint, moves=False), _SWARM_WAIT_S
        )
    url = base_url(request.endpoint)
    key = read_key(url, env=request.api_key_env, file=request.api_key_file)
    hearing = ReplyTimes()
    return Connection(url, AiohttpTransport(url, api_key=key, hearing=hearing), key, hearing=hearing)


def _follow(request: JobRequest, address: EndpointAddress, wait_s: float) -> Connection:
    """A connection to a swarm's endpoint, wherever that is, until it is taken down."""
    url = address.read()
    key = read_key(url, env=request.api_key_env, file=request.api_key_file)
    hearing = ReplyTimes()
    transport = FollowingTransport(address, make=partial(AiohttpTransport, api_key=key, hearing=hearing, is_own=True))
    return Connection(
        url, transport, key, address, wait_s=wait_s, hearing=hearing, is_patient=bool(request.owner)
    )  # fmt: skip


async def prepare(request: JobRequest, connection: Connection | None, given: SwarmJob | None) -> Prepared:
    """Find the input, make the job, choose its columns.

    Args:
        request: what to do.
        connection: asked for the model's name when the request has none.
        given: an instance to use instead of the class that the request names.

    Raises:
        InputError: something in the request is wrong.
        Unavailable: the endpoint was to name the model and did not answer.
    """
    source = Source(request.input, limit=request.limit, read_kwargs=request.read_kwargs)
    target = _target(request, source)
    await in_thread(lambda stop: source.survey(types=target.kind != "jsonl", stop=stop))
    kind = type(given) if given is not None else load_class(request.job)
    if request.data_backend == "pandas":
        from remuda.batch.input.frames import check

        check()
    if kind.asks and issubclass(kind, RequestJob) and connection is None:
        raise InputError("this job has no endpoint to ask", hint="pass --endpoint URL or --name SWARM")
    model = request.model or (given.model if given is not None else "") or str(request.job_kwargs.get("model", ""))
    if not model and kind.asks and connection is not None:
        model = pick_model(await connection.models(), connection.where)
    url = connection.url if connection is not None else ""
    if given is None:
        job = make_job(request, endpoint=url, model=model, input_column=request.input_column)
    else:
        job = given
        job.endpoint, job.model = url or job.endpoint, model
    if connection is not None:
        job.use_key(connection.api_key)
        if isinstance(connection.transport, FollowingTransport):
            connection.transport.on_move = job.move
    job.input_column_name = column = _choose_column(request, job, source)
    layout = _layout(request, job)
    check_fit(source, layout, target)
    return Prepared(request, job, column, source, target, layout)


def _target(request: JobRequest, source: Source) -> OutputTarget:
    target = plan_target(
        request.output, files=request.num_threads, options=request.write_kwargs, inputs=source.files,
        pattern=request.input,
    )  # fmt: skip
    if request.checkpointing and request.resume and not request.checkpoint_base().exists():
        see_stranger(target)
    return target


def check(request: JobRequest) -> None:
    """See what can be seen without asking anybody, before a job is sent to where nobody watches it start.

    Raises:
        InputError: the input, the output or the job's class is wrong.
    """
    source = Source(request.input, limit=request.limit, read_kwargs=request.read_kwargs)
    _target(request, source)
    load_class(request.job)


def _choose_column(request: JobRequest, job: SwarmJob, source: Source) -> str:
    chosen = request.input_column or job.input_column_name
    if request.input_column or "input_column_name" in request.job_kwargs or chosen != "messages":
        return source.require(chosen, where="--input-column" if request.input_column else "input_column_name")
    names = source.columns
    for name in (*job.columns, "messages"):
        if name in names:
            return name
    if not names:
        raise InputError(f"input {request.input} is empty", where="--input")
    tried = ", ".join(dict.fromkeys((*job.columns, "messages")))
    raise InputError(
        f"input {request.input} has none of the columns {tried}",
        hint=f"choose one with --input-column; it has: {', '.join(names[:20])}",
        where="--input",
    )


def _layout(request: JobRequest, job: SwarmJob) -> ColumnLayout:
    if not isinstance(job, RequestJob):
        return ColumnLayout(tuple(job.output_names), {}, usage=False)
    return ColumnLayout(tuple(job.output_names), job.known_types(), usage=request.usage_columns and job.usage)


def open_checkpoint(
    ready: Prepared, lock: FolderLock | None, folder: Path, stop: threading.Event | None = None
) -> Checkpoint:
    """The job's checkpoint: what an earlier run left if it belongs to this job.

    Args:
        ready: the job.
        lock: held on `folder`; None for a temporary folder.
        folder: where it lies.
        stop: ends it early.

    Raises:
        Conflict: it belongs to other settings, or to another input.
        InputError: the id column holds a value twice.
        Interrupted: `stop` was set.
    """
    request = ready.request
    identity = identify(ready)
    stored = _stored(ready, identity, folder) if lock is not None else identity
    ids = index_ids(ready.source, request.id_column, folder, stop) if request.id_column else None
    try:
        made = Checkpoint(folder, ids=ids, keep=lock is not None)
    except BaseException:
        if ids is not None:
            ids.close()
        raise
    try:
        old, new = stored["input"], identity["input"]
        if old != new:
            note = see_changes(ready.source, made, ready.column, old=old, new=new, stop=stop)
            made.notes += [note] if note else []
        made.claim(identity)
    except BaseException:
        made.close()
        raise
    return made


def _stored(ready: Prepared, identity: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The fingerprint in a locked folder, this job's own where it is new."""
    if not ready.request.resume:
        store.clear(folder)
    stored = store.read_identity(folder)
    if stored:
        check_same(stored, identity, folder)
    elif store.has_records(folder):
        raise Conflict(f"the checkpoint {folder} does not say which job it belongs to", hint="--no-resume starts over")
    return stored or identity


def identify(ready: Prepared) -> dict[str, Any]:
    """The fingerprint of a prepared job."""
    request, job = ready.request, ready.job
    arguments: Mapping[str, Any] = {**job.kwargs, **request.job_kwargs}
    made = fingerprint(job, arguments, ready.source, model=job.model, column=ready.column, id_column=request.id_column)
    return made | ({"items": "pandas"} if request.data_backend == "pandas" else {})


def index_ids(source: Source, column: str, folder: Path, stop: threading.Event | None = None) -> IdTable:
    """A table of the input's ids, made in one pass over their column.

    Raises:
        InputError: there is no such column, or an id is null or there twice.
        Interrupted: `stop` was set.
    """
    source.require(column, where="--id-column")
    try:
        table = IdTable(folder, source.count())
    except OSError as error:
        raise store.full(folder, error) from error
    try:
        _fill_ids(table, source, column, stop)
    except BaseException as error:
        table.close()
        if isinstance(error, OSError):
            raise store.full(folder, error) from error
        raise
    return table


def _fill_ids(table: IdTable, source: Source, column: str, stop: threading.Event | None) -> None:
    for chunk in source.chunks([column]):
        if stop is not None and stop.is_set():
            raise Interrupted("the job was stopped; nothing was asked")
        if chunk.bad:
            hint = "mend the line: with --id-column each row has to name itself"
            raise InputError(next(iter(chunk.bad.values())).message, hint=hint)
        for position, value in enumerate(chunk.values(column), start=chunk.first):
            if value is None:
                raise InputError(f"row {position} has no {column!r}", where="--id-column")
            if (other := table.add(digest_id(value), position)) != position:
                raise InputError(
                    f"{column!r} is {value!r} in row {other} and again in row {position}",
                    hint="an id column names each row once",
                    where="--id-column",
                )
