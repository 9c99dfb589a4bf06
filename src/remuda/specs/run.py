"""A supervised run: a script that is started, monitored, and restarted unless it ended by itself."""

from __future__ import annotations

import re
import signal
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from remuda.base.errors import InputError
from remuda.base.units import parse_size
from remuda.specs.arrays import parse_array
from remuda.specs.backend import of_fleet
from remuda.specs.kubernetes import KubernetesFields
from remuda.specs.strict import (
    USUAL_INTERVAL,
    Env,
    Interval,
    Seconds,
    SecretEnv,
    Size,
    Text,
    Texts,
    Words,
    contradiction,
    wrong,
)
from remuda.specs.swarm import Name


def _gigabytes(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise wrong("must be a number of GB")
    text = str(value).strip().lower()
    try:
        return float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else parse_size(text) / 1024**3
    except InputError as error:
        raise wrong(f"must be a number of GB, not {str(value)!r}", "write 40 or 40GB") from error


def _listed(value: object) -> object:
    """Names with commas or spaces between them, or a list of such texts."""
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, (list, tuple)) and all(isinstance(text, str) for text in texts):
        return tuple(dict.fromkeys(name for text in texts for name in re.split(r"[,\s]+", text) if name))
    raise wrong("must be names with commas between them, or a list of names")


Gigabytes = Annotated[float, BeforeValidator(_gigabytes), WithJsonSchema({"type": ["number", "string"], "title": "GB"})]
"""Memory of a GPU: a number of GB, or a size."""

RunName = Name | None
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""Names with commas between them, or a list."""


class RunSpec(KubernetesFields):
    """A script that is kept running: on a cluster of Slurm or Kubernetes, or on this machine.

    Every field is a flag of `remuda run` and a directive in the head of the script, with hyphens in its name.
    """

    kind: Literal["run"] = "run"
    """Kind of document; may be left out."""
    script: Text = Field(min_length=1)
    """File to run. Its first line says with what (`#!/bin/bash`)."""
    args: Words = ()
    """Arguments of the script."""
    name: RunName = Field(default=None, json_schema_extra={"derived": "from the script's name"})
    """Name of the run; other commands find it by this."""
    backend: Literal["local", "slurm", "fleet", "kubernetes"] | None = Field(
        default=None, json_schema_extra={"derived": "`slurm` where `sbatch` is found, else `local`"}
    )
    """Backend to run on: `slurm`, `fleet`, `kubernetes`, or `local` for this machine. With `type` in a mapping, fields
    of Kubernetes may stand beside it."""
    mode: Literal["run_once", "indefinite"] = "run_once"
    """`run_once`: until it exits with 0. `indefinite`: restarted whenever it ends, until `keep_alive`."""
    keep_alive: Seconds = 0.0
    """Time for which an `indefinite` run is kept, from now on. 0: until it is stopped."""
    array: Text | None = None
    """Indexes of an array, one task each, all under one name: `1-50%4` (four at a time), `1,3,7`, `0-30:3`."""

    gpus: int = Field(default=0, ge=0)
    """GPUs of each node."""
    gpu_type: Text | None = None
    """Kind of GPU, e.g. `a100` or as the scheduler names it; unset: any."""
    min_vram: Gigabytes | None = None
    """Minimum memory of a GPU, in GB. Excludes GPUs of unknown memory."""
    max_vram: Gigabytes | None = None
    """Maximum memory of a GPU, in GB."""
    nodes: int = Field(default=1, ge=1)
    """Nodes of the job."""
    cpus_per_task: int | None = Field(default=None, ge=1)
    """CPUs per task; unset: the scheduler's default."""
    mem: Size | None = None
    """Memory of each node, e.g. `64GB`; unset: the scheduler's default."""
    time_limit: Seconds = 0.0
    """Time limit of one attempt, after which the run is restarted; 0: the partition's limit."""
    prefer: Literal["max", "min"] = "max"
    """Order of the partitions that fit: the best GPUs first, or the cheapest."""
    partitions: Names = ()
    """Partitions to use, the preferred one first; unset: all that fit."""
    account: Text | None = None
    """Account to charge."""
    qos: Text | None = None
    """Quality of service to use."""
    constraint: Text | None = None
    """Features that nodes must have, as Slurm writes them."""
    reservation: Text | None = None
    """Reservation to use."""
    exclude_nodes: Text | None = None
    """Nodes to avoid, e.g. `node[001-004]`."""
    node_list: Text | None = None
    """Nodes to use, e.g. `node[005-008]`."""

    max_retries: int | None = Field(
        default=None, ge=0, json_schema_extra={"derived": "`10` with `run_once`; no bound with `indefinite`"}
    )
    """Restarts after failures before the run fails. Preemption and time limits do not count."""
    heal_after: Seconds = 86400.0
    """Time without a failure after which a run gets its retries back."""
    quick_failure: Seconds = 120.0
    """Crash-loop limit: three failures in a row, each within this time of its start, fail the run. 0: off."""
    heartbeat_interval: Seconds = 30.0
    """Time between two heartbeats."""
    heartbeat_grace: Seconds = 90.0
    """Time beyond the interval after which a run without a heartbeat is restarted. 0: never for this reason."""
    progress_stall: Seconds = 0.0
    """Time without progress (progress file, else output) after which a run is restarted. 0: never."""
    backoff_base: Seconds = 10.0
    """Wait before the first new attempt after a failure; it doubles each time."""
    backoff_max: Seconds = 300.0
    """Longest wait before a new attempt."""
    blacklist_ttl: Seconds = 43200.0
    """Time for which a failed node is avoided."""
    blacklist_limit: int = Field(default=64, ge=0)
    """Maximum number of nodes avoided at once."""
    no_blacklist: bool = False
    """Avoid no nodes."""
    retry_per_partition: int = Field(default=2, ge=1)
    """Failures in one partition before the next is tried."""
    reset_to_preferred: Seconds = 3600.0
    """Time in other partitions after which the preferred one is tried again."""
    hedge: bool = False
    """Queue in all partitions at once, and run in the first that starts the job."""
    requeue: bool = False
    """Let Slurm itself put the job back into its queue after preemption or the loss of a node, under the same id."""

    output: Text | None = None
    """File for a second copy of the output, with Slurm's patterns (`%j`)."""
    error: Text | None = None
    """File for a second copy of standard error."""
    signal: Text = "TERM@90"
    """Signal for the script before its time limit, and the seconds before it."""
    kill_grace: Seconds = 60.0
    """Time between asking the script to end and killing it."""
    sbatch_args: Words = ()
    """Further arguments of `sbatch`, verbatim."""
    modules: Texts = ()
    """Environment modules to load before the script."""
    preamble: Texts = ()
    """Lines before the script: commands, or `#SBATCH` directives."""
    mail_user: Text | None = None
    """Email address for Slurm's messages."""
    env: Env = Field(default_factory=dict)
    """Environment variables of the script."""
    secret_env: SecretEnv = Field(default_factory=dict)
    """Environment variables whose values are secrets: name to `{file: PATH}` or `{env: NAME}`."""
    workdir: Text | None = Field(default=None, json_schema_extra={"derived": "where the command was typed"})
    """Directory in which the script starts."""
    python: Text | None = Field(
        default=None, json_schema_extra={"derived": "remuda's own where nodes can see it, else `python3`"}
    )
    """Python 3.9 or newer for remuda's helper on the nodes. Your script uses its own `#!` line."""
    gpu_check: bool = True
    """Test the GPUs before the start, and avoid nodes whose GPUs fail."""
    profile: Interval = ""
    """GPU sampling rate: `10Hz`, `100ms`, `true` for 10 Hz; empty disables recording."""

    checkpoint_every: Seconds = 1800.0
    """Time between two checkpoints of the script, for rehearsals."""
    checkpoint_cost: Seconds = 0.0
    """Time that a checkpoint takes, for rehearsals."""
    restart_cost: Seconds = 0.0
    """Time from the start of an attempt until it resumes its work, for rehearsals."""

    @field_validator("signal")
    @classmethod
    def _known_signal(cls, text: str) -> str:
        word, _, before = text.strip().upper().removeprefix("B:").removeprefix("R:").partition("@")
        name = _signal_name(word)
        if not name or not (before or "60").isdigit():
            raise wrong(f"must be a signal and seconds, not {text!r}", "write TERM@90 or USR1@300")
        return f"{name}@{before or 60}"

    @field_validator("array")
    @classmethod
    def _is_array(cls, text: str | None) -> str | None:
        try:
            if text is not None:
                parse_array(text)
        except InputError as error:
            raise wrong(error.message, error.hint) from error
        return text

    @field_validator("partitions")
    @classmethod
    def _no_flag(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name.startswith("-"):
                raise wrong(f"must be names of partitions, not {name!r}")
        return names

    _of_fleet = model_validator(mode="before")(of_fleet)

    @model_validator(mode="after")
    def _fits_together(self) -> RunSpec:
        if self.min_vram is not None and self.max_vram is not None and self.min_vram > self.max_vram:
            raise contradiction("min_vram", f"`min_vram` is {self.min_vram:g} and `max_vram` only {self.max_vram:g}")
        if self.keep_alive and self.mode != "indefinite":
            sentence = "`keep_alive` is for `mode: indefinite`; this run ends when its script does"
            raise contradiction("keep_alive", sentence, "add --mode indefinite, or leave it out")
        if self.array and "%" in self.array and self.mode == "indefinite":
            sentence = "`array` lets some of its tasks run at a time, and with `mode: indefinite` none makes room"
            raise contradiction("array", sentence, "leave out what follows %")
        check_backoff(self.backoff_base, self.backoff_max)
        before = float(self.signal.partition("@")[2])
        if "signal" in self.model_fields_set and 0 < self.time_limit <= before:
            sentence = (
                f"`time_limit` is {self.time_limit:g} s, and `signal` tells the script {before:g} s before it to end: "
                f"every attempt would end as soon as it begins"
            )
            raise contradiction("time_limit", sentence, "give it more time, or a shorter warning: --signal TERM@10")
        if not self.gpus and (self.min_vram or self.max_vram or self.gpu_type):
            said = "gpu_type" if self.gpu_type else "min_vram" if self.min_vram else "max_vram"
            raise contradiction(said, f"`{said}` says which GPUs, but `gpus` is 0", "add --gpus 1")
        return self

    def warning(self) -> tuple[str, float]:
        """Signal before the time limit, and how many seconds before; 0: the limit leaves no time for one."""
        name, _, text = self.signal.partition("@")
        before = float(text)
        is_asked = "signal" in self.model_fields_set
        return name, 0.0 if not is_asked and 0 < self.time_limit <= before + EARLY_S else before


def check_backoff(base_s: float, max_s: float) -> None:
    """Refuse a longest wait that is shorter than the first one."""
    if max_s < base_s:
        raise contradiction(
            "backoff_max", f"`backoff_max` is {max_s:g} s, less than the {base_s:g} s of `backoff_base`"
        )


def _signal_name(word: str) -> str:
    """Name of a signal without SIG, empty for none."""
    try:
        found = signal.Signals(int(word)) if word.isdigit() else signal.Signals[f"SIG{word.removeprefix('SIG')}"]
    except (KeyError, ValueError):
        return ""
    return found.name.removeprefix("SIG")


EARLY_S = 60.0
"""Slurm sends a warning up to so long before it is due."""

FLAGS: dict[str, str] = {
    name.replace("_", "-"): name for name in RunSpec.model_fields if name not in ("kind", "script", "args")
}
"""Names of flags and directives -> field."""
ALIASES: dict[str, str] = {
    "partition": "partitions", "exclude": "exclude_nodes", "nodelist": "node_list", "chdir": "workdir",
}  # fmt: skip
"""Other names that are understood, as sbatch has them."""
WITHOUT: dict[str, str] = {"profile": USUAL_INTERVAL}
"""Fields whose flag may stand without a value -> what it means then."""
SWITCHES: frozenset[str] = frozenset(name for name, field in RunSpec.model_fields.items() if field.annotation is bool)
"""Fields that take no value."""
