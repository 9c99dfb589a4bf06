"""Several swarms in one document, each with its job, and how many of them may be up at once."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from remuda.specs.strict import Json, Seconds, Strict, Text, Texts, Words, contradiction, wrong
from remuda.specs.swarm import Name  # noqa: TC001 - pydantic reads it when it runs


class PoolJob(Strict):
    """Job to run against a swarm once it answers: over rows, or a script."""

    job: Text = "chat"
    """A built-in job, or `module:Class` of your own, as for `remuda job submit`."""
    input: Text | None = None
    """Rows: file, folder, glob or brace range."""
    output: Text | None = None
    """File, or folder with a slash at the end."""
    job_kwargs: dict[str, Json] = Field(default_factory=dict)
    """Arguments of the job."""
    input_column: Text = ""
    """Column with the prompts."""
    output_columns: Texts = ()
    """Columns for the answers."""
    id_column: Text = ""
    """Column that identifies rows."""
    checkpoint_dir: Text | None = None
    """Checkpoint folder; default: beside the output."""
    checkpoint_tag: Text = ""
    """Tag that separates several checkpoints of one output."""
    retry_errors: bool = False
    """Retry rows that ended with an error."""
    max_concurrency: int = Field(default=0, ge=0)
    """Limit of requests in flight; 0 adapts."""
    retries: int = Field(default=5, ge=0)
    """Retries per row; of a script, default: 0."""
    timeout: Seconds = 600.0
    """Time limit of one try of a row."""
    limit: int = Field(default=0, ge=0)
    """Number of rows to process, from the first; 0: all."""
    num_threads: int = Field(default=1, ge=1)
    """Number of files of a folder output."""
    script: Text | None = None
    """Python file to run instead, with the endpoint in its environment."""
    args: Words = ()
    """Arguments of the script."""

    @model_validator(mode="after")
    def _one_kind(self) -> PoolJob:
        if self.script is None and (self.input is None or self.output is None):
            raise wrong("needs `input` and `output`, or a `script`")
        if self.script is not None and (self.input is not None or self.output is not None):
            raise wrong("has a `script`, which takes its input and output as `args`")
        if self.args and self.script is None:
            raise wrong("has `args`, which are those of a `script`", "use `job_kwargs` for a job over rows")
        return self


class PoolSwarm(Strict):
    """One swarm of a pool."""

    config: Text | None = None
    """Document of the swarm; a relative path begins at the pool's own folder."""
    swarm: dict[str, Json] | None = None
    """Document of the swarm, written here."""
    overrides: dict[str, Json] = Field(default_factory=dict)
    """Values that override the document; keys may be dotted."""
    name: Name | None = None
    """Name of the swarm; default: the document's."""
    replicas: int | None = Field(default=None, ge=1)
    """Number of replicas; default: the document's."""
    job: PoolJob | None = None
    """Job to run against the swarm; without one the swarm stays up."""
    keep: bool = False
    """Leave it up when its job has ended."""
    queue_timeout: Seconds = 0.0
    """Time in the queue after which a swarm that has not started is taken down. 0: never."""

    @property
    def stays(self) -> bool:
        """Whether it stays up."""
        return self.keep or self.job is None

    @model_validator(mode="after")
    def _one_document(self) -> PoolSwarm:
        if (self.config is None) == (self.swarm is None):
            raise wrong("needs one of `config` (a file) and `swarm` (written here)")
        return self


class PoolSpec(Strict):
    """A queue of swarm+job pairs, N at a time."""

    kind: Literal["pool"] = "pool"
    """Kind of document; may be left out."""
    name: Name | None = None
    """Name of the pool; the file's name if not said."""
    max_concurrent: int | None = Field(default=None, ge=1)
    """Number of swarms that may be up at the same time; default: all."""
    swarms: tuple[PoolSwarm, ...] = Field(min_length=1)
    """The swarms, in the order in which they are brought up."""

    @property
    def bound(self) -> int:
        """How many may be up at once."""
        return self.max_concurrent or len(self.swarms)

    @model_validator(mode="after")
    def _ends(self) -> PoolSpec:
        staying = sum(swarm.stays for swarm in self.swarms)
        if (staying >= self.bound and staying < len(self.swarms)) or staying > self.bound:
            raise contradiction(
                "max_concurrent" if self.max_concurrent else "swarms",
                f"{staying} of its swarms stay up (`keep`, or no `job`) and only {self.bound} may be up at once, "
                "so the others would wait indefinitely",
                "raise `max_concurrent`, or give them a job",
            )
        return self
