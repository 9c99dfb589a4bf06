"""A gang: ranks of one script that train together, each of them started, watched and restarted for itself."""

from __future__ import annotations

import re
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from remuda.specs.backend import of_fleet
from remuda.specs.kubernetes import KubernetesFields
from remuda.specs.run import Names, RunName, check_backoff
from remuda.specs.strict import (
    Env,
    Interval,
    Seconds,
    SecretEnv,
    Size,
    Strict,
    Text,
    Texts,
    Words,
    contradiction,
    wrong,
)

STORES: Final = ("file", "s3", "gs", "az")
"""Schemes of a rendezvous that every rank reaches."""
NOWHERE: Final = "none"
"""Instead of a rendezvous: ranks do not meet."""
OF_RANKS: Final = frozenset({"REPLICA_RANK", "REPLICA_COUNT", "RUN_ID", "REMUDA_RENDEZVOUS", "REMUDA_QUORUM"})
"""Variables that each rank is given."""
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class GangResources(Strict):
    """Resources of one rank."""

    gpus: int = Field(default=0, ge=0)
    """GPUs of each rank. On this machine all ranks get theirs in one step, or the gang is refused."""


class GangSpec(KubernetesFields):
    """Ranks that train together over an object store. A document says `kind: gang`: nothing else tells."""

    kind: Literal["gang"] = "gang"
    """Kind of document."""
    name: RunName = Field(default=None, json_schema_extra={"derived": "from the script's name"})
    """Name of the gang; other commands find it by this."""
    ranks: int = Field(ge=1)
    """Number of ranks."""
    script: Text | None = Field(default=None, min_length=1)
    """File that each rank runs. Its first line says with what (`#!/usr/bin/env python3`). A copy of it is kept."""
    command: Words = ()
    """Command instead of `script`. Each attempt reads the files that it names again."""
    args: Words = ()
    """Arguments of the script or command."""
    env: Env = Field(default_factory=dict)
    """Environment variables of each rank."""
    secret_env: SecretEnv = Field(default_factory=dict)
    """Environment variables whose values are secrets: name to `{file: PATH}` or `{env: NAME}`."""
    workdir: Text | None = Field(default=None, json_schema_extra={"derived": "where the command was typed"})
    """Directory in which each rank starts."""
    resources: GangResources = GangResources()
    """Resources of each rank."""
    rendezvous: Text | None = Field(
        default=None, json_schema_extra={"derived": "`file://` and the folder `rendezvous` of the run directory"}
    )
    """URL of the folder or bucket where ranks meet, which all of them reach (`file://`, `s3://`, `gs://`, `az://`);
    `none` where they do not meet. On Kubernetes it must be said, and no `file://`."""
    run_id: Text | None = Field(default=None, json_schema_extra={"derived": "the name"})
    """Training run ID in the rendezvous. A gang with the same ID resumes its training."""
    quorum: int | None = Field(default=None, ge=1, json_schema_extra={"derived": "all ranks"})
    """Ranks that suffice to train on without the others: the gang is degraded until those are back."""
    assemble: Seconds = 600.0
    """On Slurm and Kubernetes, of an `elastic` gang: time in which fewer than `quorum` ranks run while others are in
    the queue, after which all give their GPUs back and wait a random time, longer each time. 0: never."""
    mode: Literal["elastic", "rigid"] = "elastic"
    """`elastic`: a rank that fails is restarted and joins the others. `rigid`: all ranks restart when one fails."""
    backend: Literal["local", "slurm", "fleet", "kubernetes"] = "local"
    """Backend to run on: `local` for this machine; `slurm` or `fleet`, where each rank of an `elastic` gang is a job,
    and a `rigid` one is one job; `kubernetes`, where each rank is a Job, and none is `rigid`. With `type` in a
    mapping, fields of Kubernetes may stand beside it."""
    timeout: Seconds = 0.0
    """Time limit of the gang, after which it fails and all ranks end. 0: none."""

    max_retries: int = Field(default=10, ge=0)
    """Restarts of a rank after failures; one more, and the gang has failed."""
    heal_after: Seconds = 86400.0
    """Time without a failure after which a rank gets its retries back."""
    quick_failure: Seconds = 120.0
    """Crash-loop limit: three failures of a rank in a row, each within this time of its start. 0: off."""
    heartbeat_interval: Seconds = 30.0
    """Time between two heartbeats of a rank."""
    heartbeat_grace: Seconds = 90.0
    """Time beyond the interval after which a rank without a heartbeat is restarted. 0: never for this reason."""
    progress_stall: Seconds = 0.0
    """Time without progress (progress file, else output) after which a rank is restarted. 0: never."""
    backoff_base: Seconds = 10.0
    """Wait before the first new attempt of a rank after a failure; it doubles each time."""
    backoff_max: Seconds = 300.0
    """Longest wait before a new attempt."""
    kill_grace: Seconds = 60.0
    """Time between asking a rank to end and killing it."""
    gpu_check: bool = True
    """Test the GPUs before the start."""
    profile: Interval = ""
    """GPU sampling rate of each rank: `10Hz`, `100ms`, `true` for 10 Hz; empty disables recording."""

    ranks_per_node: int | None = Field(default=None, ge=1, json_schema_extra={"derived": "as many as fit"})
    """On Slurm, of a `rigid` gang: most ranks on one node."""
    partitions: Names = ()
    """On Slurm: partitions to use, the preferred one first; unset: all that fit."""
    gpu_type: Text | None = None
    """Kind of GPU, e.g. `a100`, on Kubernetes as the label of nodes says it; unset: any. Not used on this machine."""
    cpus_per_task: int | None = Field(default=None, ge=1)
    """On Slurm and Kubernetes: CPUs of each rank; unset: the scheduler's default."""
    mem: Size | None = None
    """On Slurm and Kubernetes: memory of each rank, e.g. `64GB`; unset: the scheduler's default."""
    time_limit: Seconds = 0.0
    """On Slurm and Kubernetes: time limit of one attempt, after which the rank, or all of a `rigid` gang, is restarted;
    0: the partition's limit."""
    account: Text | None = None
    """On Slurm: account to charge."""
    qos: Text | None = None
    """On Slurm: quality of service to use."""
    constraint: Text | None = None
    """On Slurm: features that nodes must have, as Slurm writes them."""
    reservation: Text | None = None
    """On Slurm: reservation to use."""
    exclude_nodes: Text | None = None
    """On Slurm: nodes to avoid, e.g. `node[001-004]`."""
    node_list: Text | None = None
    """On Slurm: nodes to use, e.g. `node[005-008]`."""
    sbatch_args: Words = ()
    """On Slurm: further arguments of `sbatch`, verbatim."""
    modules: Texts = ()
    """On Slurm: environment modules to load; of a `rigid` gang on the first node, whose environment all ranks get."""
    preamble: Texts = ()
    """On Slurm: commands before a rank, of a `rigid` gang on the first node before all; or `#SBATCH` directives."""
    python: Text | None = Field(
        default=None, json_schema_extra={"derived": "remuda's own where nodes can see it, else `python3`"}
    )
    """On Slurm and Kubernetes: Python 3.9 or newer for remuda's helper, on the nodes or in the image."""

    @field_validator("rendezvous")
    @classmethod
    def _reachable(cls, url: str | None) -> str | None:
        if url in (None, NOWHERE):
            return url
        parts = urlsplit(url)
        if "://" not in url or parts.scheme not in STORES:
            known = ", ".join(f"{scheme}://" for scheme in STORES)
            hint = f"write file://{url}" if url.startswith("/") else f"it begins with one of {known}"
            raise wrong(f"must be the URL of a store, not {url.partition('@')[2] or url!r}", hint)
        if parts.password or parts.query:
            raise wrong(
                "must not have a secret in it", "keys of a store travel by `secret_env`, e.g. AWS_SECRET_ACCESS_KEY"
            )
        if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
            raise wrong(f"must name a folder with its whole path, not {url!r}", "write file:///folder")
        return url

    @field_validator("run_id")
    @classmethod
    def _one_word(cls, text: str | None) -> str | None:
        if text is not None and _RUN_ID.fullmatch(text) is None:
            raise wrong(f"cannot be {text!r}", "use 1 to 128 of A-Z a-z 0-9 . _ - and begin with a letter or digit")
        return text

    @field_validator("env", "secret_env")
    @classmethod
    def _not_of_ranks(cls, env: dict[str, object]) -> dict[str, object]:
        for name in env:
            if name in OF_RANKS:
                raise wrong(f"has {name}, which is set for each rank")
        return env

    _of_fleet = model_validator(mode="before")(of_fleet)

    @model_validator(mode="after")
    def _fits_together(self) -> GangSpec:
        if self.mode == "rigid" and self.quorum is not None:
            sentence = "`quorum` lets ranks train on without the others, which no `rigid` gang does"
            raise contradiction("quorum", sentence, "leave one of the two out")
        if self.mode == "rigid" and "assemble" in self.model_fields_set:
            sentence = "`assemble` is for ranks that begin one by one, and those of a `rigid` gang begin together"
            raise contradiction("assemble", sentence, "leave one of the two out")
        if self.backend == "kubernetes":
            self._check_apart()
        if self.ranks_per_node and self.backend == "slurm" and self.mode != "rigid":
            sentence = "`ranks_per_node` is for ranks that share a job, and those of an `elastic` gang do not"
            raise contradiction("ranks_per_node", sentence, "leave it out, or set `mode: rigid`")
        if (self.script is None) == (not self.command):
            said = "command" if self.command else "kind"
            raise contradiction(said, "a gang needs one of `script` (a file) and `command` (what would be typed)")
        if self.quorum is not None and self.quorum > self.ranks:
            raise contradiction("quorum", f"`quorum` is {self.quorum}, and there are {self.ranks} ranks")
        if self.gpu_type and not self.resources.gpus:
            raise contradiction("gpu_type", "`gpu_type` says which GPUs, but ranks have none", "add --gpus 1")
        if twice := sorted(self.env.keys() & self.secret_env.keys()):
            raise contradiction("secret_env", f"{twice[0]} is in `env` and in `secret_env`", "leave it out of `env`")
        check_backoff(self.backoff_base, self.backoff_max)
        return self

    def _check_apart(self) -> None:
        """Refuse what ranks that begin one by one, and share no files, cannot do."""
        if self.mode == "rigid":
            sentence = "the ranks of a `rigid` gang begin together, and on Kubernetes they begin one by one"
            raise contradiction("mode", sentence, "leave `mode` out, or set `backend: slurm`")
        if urlsplit(self.rendezvous or "file:").scheme == "file":
            sentence = "ranks on Kubernetes share no files: they need a `rendezvous` in an object store"
            hint = "set it to a URL that begins with s3://, gs:// or az://, or to none where they do not meet"
            raise contradiction("rendezvous" if self.rendezvous else "backend", sentence, hint)
