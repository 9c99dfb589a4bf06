"""The Python API: `with Swarm("swarm.yaml") as swarm: swarm.submit_job(job, "in.parquet", "out.parquet")`."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from remuda.base.disk.paths import state_paths
from remuda.base.errors import Conflict, InputError, RemudaError
from remuda.base.extras import need_batch
from remuda.base.ids import api_path
from remuda.client import ending, swarms
from remuda.client.http import connect
from remuda.client.jobs import batches, drivers, targets
from remuda.look import planning
from remuda.look.kinds.swarm import plan_loaded
from remuda.specs.reading.load import load_swarm, mapping_overrides
from remuda.views.job_folders import JobFolder, new_id

if TYPE_CHECKING:
    from types import TracebackType

    from remuda.batch.job import SwarmJob
    from remuda.batch.request import Summary
    from remuda.client.jobs.drivers import Sent
    from remuda.client.jobs.targets import Target
    from remuda.plan.compile import Plan


class Swarm:
    """Replicas of a model behind one address, up for as long as the `with` block lasts.

    Args:
        config: path of a swarm document, or its fields as a mapping.
        name: name of the swarm; default: the document's, or one made of the model.
        keep: leave it up at the end of the block.
        wait_s: seconds to wait until it answers; default: the document's `wait_endpoint_s`.
        values: fields that win over the document: `Swarm("swarm.yaml", replicas=2)`.

    Raises:
        InputError: the document is wrong; says where.
    """

    def __init__(
        self,
        config: str | Path | dict[str, Any] | None = None,
        *,
        name: str = "",
        keep: bool = False,
        wait_s: float | None = None,
        **values: Any,
    ) -> None:
        if config is not None and not isinstance(config, (str, Path, dict)):
            raise InputError(f"Swarm(…) takes the path of a document or a dict, not {config!r}")
        fields = {**config, **values} if isinstance(config, dict) else values
        file = None if isinstance(config, dict) else config
        overrides = mapping_overrides(fields, "Swarm(…)")
        self._facts = planning.facts_of()
        self._planned: Plan | None = plan_loaded(load_swarm(file, overrides), self._facts, name)
        self.name = self._planned.workload.name
        address = self._planned.workload.endpoint
        self._wait_s = wait_s if wait_s is not None else (address.wait_s if address else 600.0)
        self._keep = keep
        self._target: Target | None = None

    @classmethod
    def from_state(cls, name: str) -> Self:
        """The swarm of that name which is up already. Leaving a `with` block of it does not take it down.

        Raises:
            NotFound: there is none.
        """
        connect().get(api_path(name))
        swarm = cls.__new__(cls)
        swarm.__dict__.update(name=name, _planned=None, _keep=True, _wait_s=600.0, _target=None)
        return swarm

    def up(self) -> Self:
        """Bring it up, and wait until the endpoint answers.

        Raises:
            RemudaError: it failed.
            TimedOut: it took longer than `wait_s`.
        """
        client = connect()
        if self._planned is not None:
            swarms.bring_up(self._planned, self._facts, client)
        deque(swarms.wait_up(self.name, self._wait_s, client), maxlen=1)
        self._target = targets.of_swarm(self.name, "", "", lambda _: None)
        return self

    def down(self) -> None:
        """Take it down; returns when nothing of it is left."""
        self._target = None
        for _ in ending.take_down([self.name]):
            pass

    def __enter__(self) -> Self:
        try:
            return self.up()
        except BaseException:
            if not self._keep:
                self.down()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._keep:
            self.down()

    @property
    def target(self) -> Target:
        """Where requests go.

        Raises:
            Conflict: it is not up.
        """
        if self._target is None:
            if self._planned is not None:
                raise Conflict(f"swarm {self.name!r} is not up", hint="use it inside `with`, or call up() first")
            self._target = targets.of_swarm(self.name, "", "", lambda _: None)
        return self._target

    @property
    def endpoint(self) -> str:
        """`http://host:port`, without `/v1`."""
        return self.target.endpoint

    @property
    def model(self) -> str:
        """Model name that requests carry."""
        return self.target.model

    def status(self) -> dict[str, Any]:
        """What `remuda status NAME --json` prints."""
        view: dict[str, Any] = connect().get(api_path(self.name), fresh="true")
        return view

    def submit_job(
        self,
        job: SwarmJob | str,
        input_path: str | Path,
        output_path: str | Path,
        *,
        local: bool = False,
        **options: Any,
    ) -> Summary:
        """Run a job over all rows of `input_path`; a run that was cut off goes on where it was.

        A job of a name runs where `remuda job submit` would run it: beside the swarm where that is on a cluster, else
        in this process. It goes on there when this process ends.

        Args:
            job: a name as for `remuda job submit`, or an instance of your own class or a built-in job, which runs in
                this process wherever the swarm is.
            input_path: parquet, jsonl or csv: file, directory, glob or brace range.
            output_path: file or directory.
            local: run it in this process in any case.
            options: further fields of `remuda.batch.request.JobRequest`, e.g. `limit=100`, `retry_errors=True`.

        Raises:
            RemudaError: what ended it; finished rows are kept.
        """
        need_batch("a batch job takes")
        from remuda.batch.input.expand import absolute
        from remuda.batch.prepare import check
        from remuda.batch.request import JobRequest

        named = isinstance(job, str)
        what = job if isinstance(job, str) else f"{type(job).__module__}:{type(job).__qualname__}"
        given = {
            "input": absolute(str(input_path)), "output": absolute(str(output_path)), "job": what,
            "endpoint": self.target.endpoint, "swarm_dir": self.target.swarm_dir, "model": self.target.model,
            "api_key_file": self.target.api_key_file, "slots": self.target.slots,
        }  # fmt: skip
        if twice := sorted(given.keys() & options.keys()):
            raise InputError(f"submit_job sets {twice[0]!r} itself: it is not an option")
        request = JobRequest.from_json({**given, **options})
        # What exists only in this process can run nowhere else.
        place = drivers.place_of(connect(), self.name, here=local or not named)
        if place is not None:
            check(request)
        folder = JobFolder(state_paths(), new_id(request.output))
        sent = drivers.batch(folder, request, place) if place is not None else None
        folder.begin("batch", what, self.name, place.swarm.backend if place is not None else "", request)
        if sent is not None:
            return self._beside(folder, sent)
        return batches.run_here(folder, request, None, None if named else job)  # type: ignore[arg-type]

    def _beside(self, folder: JobFolder, sent: Sent) -> Summary:
        """Send it to where the swarm runs, and wait."""
        drivers.send(connect(), folder, sent)
        state = deque(drivers.until_ended(folder), maxlen=1).pop()
        summary = batches.summary_of(state)
        if summary is None:
            raise RemudaError(f"job {state.id} is {state.state}, and its driver left no numbers",
                              hint=f"its output: remuda job logs {state.id}")  # fmt: skip
        return summary
