"""Several swarms in one document, each with its job, and how many of them may be up at once."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from remuda.specs.strict import Json, Seconds, Strict, Text, Texts, Words, contradiction, wrong
from remuda.specs.swarm import Name  # noqa: TC001 - pydantic reads it when it runs


class PoolJob(Strict):
    """What is run against a swarm once it answers: a job over rows, or a script."""

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
    """Where the checkpoint is kept; beside the output if not said."""
    checkpoint_tag: Text = ""
    """Keeps several variants over one output apart."""
    retry_errors: bool = False
    """Do the rows again that have an error."""
    max_concurrency: int = Field(default=0, ge=0)
    """Bound of requests in flight; 0 adapts."""
    retries: int = Field(default=5, ge=0)
    """Tries after the first: of a row; of a script, 0 if not said."""
    timeout: Seconds = 600.0
    """Bound of one try of a row."""
    limit: int = Field(default=0, ge=0)
    """Only the first so many rows; 0: all."""
    num_threads: int = Field(default=1, ge=1)
    """Files of a folder output."""
    script: Text | None = None
    """A Python file to run instead, with the endpoint in its environment."""
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
    """Its document; a relative path begins at the pool's own folder."""
    swarm: dict[str, Json] | None = None
    """Its document, written here."""
    overrides: dict[str, Json] = Field(default_factory=dict)
    """Values that win over the document; keys may be dotted."""
    name: Name | None = None
    """Its name, if it is to be another than the document's."""
    replicas: int | None = Field(default=None, ge=1)
    """Number of replicas, if it is to be another than the document's."""
    job: PoolJob | None = None
    """What to run against it; without one it is brought up and stays."""
    keep: bool = False
    """Leave it up when its job has ended."""
    queue_timeout: Seconds = 0.0
    """It is taken down when nothing of it has started for so long. 0: never."""

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
    """Several swarms, so many of them at once."""

    kind: Literal["pool"] = "pool"
    """Kind of document; may be left out."""
    name: Name | None = None
    """Name of the pool; the file's name if not said."""
    max_concurrent: int | None = Field(default=None, ge=1)
    """How many swarms may be up at the same time; all of them if not said."""
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
                "so the others would wait for ever",
                "raise `max_concurrent`, or give them a job",
            )
        return self
