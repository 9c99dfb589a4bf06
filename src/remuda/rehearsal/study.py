"""A rehearsal for a person: from a document, a trace and a few numbers to a comparison of policies, as data."""

from __future__ import annotations

import csv
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

from remuda.base.errors import InputError
from remuda.base.text import did_you_mean
from remuda.base.units import show_duration
from remuda.look.scripts import read_script
from remuda.plan.context import Context
from remuda.plan.run import plan_run, run_name
from remuda.rehearsal import simulate
from remuda.rehearsal.model import (
    DAY_S,
    HOUR_S,
    Assumptions,
    Hazard,
    Hours,
    InterruptionRates,
    Scenario,
    Strike,
    job_of,
)
from remuda.rehearsal.rates import PUBLISHED
from remuda.specs.reading.directives import read_directives
from remuda.specs.reading.load import Loaded, build, read_defaults, read_document, read_settings
from remuda.specs.reading.resolve import Override
from remuda.specs.strict import Plain
from remuda.wire.fields import names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.specs.run import RunSpec

_DOCUMENTS: Final = frozenset({".yaml", ".yml", ".json"})
_COLUMNS: Final = ("time_h", "node", "kind")
_DEFAULT_JOB: Final[Mapping[str, str]] = {
    "script": "train.sh", "name": "rehearsal", "gpus": "8", "mode": "indefinite", "progress_stall": "10m",
    "checkpoint_every": "30m", "checkpoint_cost": "30s", "restart_cost": "10m",
}  # fmt: skip
"""The training job that is rehearsed without a document."""
_SPARE: Final = 0.05
"""Share of the nodes that the default job leaves free."""
MAX_NODES: Final = 1_000_000

RULES: Final[Mapping[str, str]] = {
    "remuda": "the supervisor itself: its decisions, causes and ledger of nodes, called with invented time",
    "shepherd": (
        "heartbeat and progress as in the document, GPU checks, restarts after a backoff that an hour of "
        "running resets, no bound of restarts; nodes of crashes and GPU faults avoided for the same time as ours; a "
        "time limit bans the node for ever"
    ),
    "requeue": "sbatch --requeue: lost nodes and preemption are restarted by Slurm, all else when a person comes",
}
"""What each policy does, for the footnote."""


@dataclass(frozen=True)
class StudyOptions:
    """What a person asked for."""

    file: str = ""
    """Document or script of a run; empty: a training job that uses nearly all nodes."""
    nodes: int = 1000
    days: float = 30.0
    run_nodes: int = 0
    """Nodes of the run; 0: what the document says."""
    failures: str = "llama3"
    """Name of published rates, or a file."""
    seed: int = 1
    repeat: int = 5
    policies: tuple[str, ...] = simulate.POLICIES
    settings: tuple[Override, ...] = ()
    """Values of the document that are otherwise here."""
    assume: tuple[str, ...] = ()
    """`name=value` of `Assumptions`."""


@dataclass(frozen=True)
class Rehearsed:
    """A rehearsal that is over."""

    asked: StudyOptions
    scenario: Scenario
    failures: InterruptionRates | tuple[Strike, ...]
    summaries: tuple[simulate.PolicySummary, ...]

    @property
    def source(self) -> str:
        """Where the failures are from."""
        if isinstance(self.failures, InterruptionRates):
            return self.failures.source
        return f"{len(self.failures)} interruptions of {self.asked.failures}"


def rehearse(asked: StudyOptions, progress: Callable[[int, int], None] | None = None) -> Rehearsed:
    """Read what is to be read, and play it through.

    Raises:
        InputError: the document, the trace or a number is wrong; says where.
    """
    spec = read_run(asked)
    failures = read_failures(asked.failures, asked.nodes)
    assumptions = read_assumptions(asked.assume, failures if isinstance(failures, InterruptionRates) else None)
    scenario = plan(spec, asked, assumptions)
    if not isinstance(failures, InterruptionRates):
        dice = Random(asked.seed)
        failures = tuple(_with(one, assumptions, dice) for one in failures)
    seeds = range(asked.seed, asked.seed + asked.repeat)
    return Rehearsed(
        asked, scenario, failures, tuple(simulate.compare(scenario, failures, asked.policies, seeds, progress))
    )


def _with(strike: Strike, assumptions: Assumptions, dice: Random) -> Strike:
    """What a trace does not tell of an interruption."""
    notice_s = assumptions.notice_s if strike.repair_s and strike.kind in (Hazard.GPU, Hazard.HANG) else 0.0
    return replace(strike, named=dice.random() < assumptions.named_share, notice_s=notice_s)


def read_run(asked: StudyOptions) -> RunSpec:
    """The run that is to be rehearsed.

    Raises:
        InputError: the document or the script's head is wrong, or it is no run.
    """
    said = list(asked.settings)
    if asked.run_nodes:
        said.append(Override("nodes", Plain(str(asked.run_nodes)), "--run-nodes"))
    if not asked.file:
        few = max(1, math.floor(asked.nodes * (1 - _SPARE)))
        low = [Override(key, Plain(value), "default") for key, value in {**_DEFAULT_JOB, "nodes": str(few)}.items()]
        return _built(None, [*low, *said], "").spec
    if Path(asked.file).suffix not in _DOCUMENTS:
        said = [Override("script", asked.file, "SCRIPT"), *said]
        return _built(None, said, read_script(Path(asked.file))).spec
    document = read_document(asked.file)
    loaded = _built(document, said, "")
    if loaded.kind != "run":
        raise InputError(f"is a {loaded.kind}, and a run is needed here", where=asked.file)
    path = Path(loaded.spec.script).expanduser()
    path = path if path.is_absolute() or path.exists() else Path(asked.file).parent / path
    # A rehearsal starts nothing: the script need not be here, but if it is, its head counts.
    return _built(document, said, read_script(path), str(path)).spec if path.is_file() else loaded.spec


def _built(document: Any, said: Sequence[Override], text: str, name: str = "train.sh") -> Loaded[RunSpec]:
    head = read_directives(text, name)
    layers = [head.sbatch, head.own]
    built = build(document, said, expect="run", defaults=read_defaults(), settings=read_settings(), script=layers)
    return cast("Loaded[RunSpec]", built)


def plan(spec: RunSpec, asked: StudyOptions, assumptions: Assumptions) -> Scenario:
    """The run, planned for an invented cluster as it would be for a real one.

    Raises:
        InputError: it needs more nodes than there are.
    """
    if not 1 <= asked.nodes <= MAX_NODES:
        raise InputError(f"must be 1 to {MAX_NODES:,}, not {asked.nodes}", where="--nodes")
    if not 0 < asked.days <= 3650:
        raise InputError(f"must be more than 0 and at most 3650, not {asked.days:g}", where="--days")
    if spec.nodes > asked.nodes:
        raise InputError(
            f"the run needs {spec.nodes} nodes, and the cluster has {asked.nodes}",
            hint="a larger cluster: --nodes; a smaller run: --run-nodes", where="--nodes",
        )  # fmt: skip
    days = min(asked.days, spec.keep_alive / DAY_S) if spec.keep_alive else asked.days
    spec = spec.model_copy(update={"keep_alive": 0.0, "array": None})
    workload = plan_run(spec, Context(cwd="/"), name=run_name(spec), backend="slurm", script=f"/{spec.script}")
    job = job_of(
        workload,
        checkpoint_every=spec.checkpoint_every or math.inf,
        checkpoint_cost=spec.checkpoint_cost,
        restart_cost=spec.restart_cost,
    )
    if job.nodes == 1:
        assumptions = replace(assumptions, named_share=1.0)  # its only node is known
    return Scenario(workload, job, asked.nodes, days, assumptions)


def read_assumptions(words: Sequence[str], rates: InterruptionRates | None) -> Assumptions:
    """The assumptions, with what the failures say about lemons, and with what a person says.

    Raises:
        InputError: no such assumption, or no number.
    """
    values: dict[str, float] = {}
    if rates is not None and rates.lemon_share:
        values = {"lemon_share": rates.lemon_share, "lemon_factor": rates.lemon_factor}
    known = names_of(Assumptions)
    for word in words:
        name, _, text = word.partition("=")
        name = name.strip().replace("-", "_")
        if name not in known:
            hint = did_you_mean(name, known, f"known: {', '.join(known)}")
            raise InputError(f"there is no assumption {name!r}", hint=hint, where="--assume")
        values[name] = _number(text, f"--assume {name}")
        if name.endswith("_share") and values[name] > 1:
            raise InputError(f"must be at most 1, not {values[name]:g}", where=f"--assume {name}")
    return Assumptions(**values)


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise InputError(f"must be a number, 0 or more, not {text!r}", where=where)
    return value


def read_failures(name: str, nodes: int) -> InterruptionRates | tuple[Strike, ...]:
    """Published rates by name, or the interruptions of a file.

    Raises:
        InputError: neither, or a line of the file is wrong; says which.
    """
    if name in PUBLISHED:
        return PUBLISHED[name]
    path = Path(name)
    if not path.is_file():
        hint = "llama3, rsc, none, or a CSV file with the columns time_h,node,kind,repair_h"
        raise InputError(f"{name!r} is neither a known trace nor a file", hint=hint, where="--failures")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot be read as text", where=name) from error
    return read_trace(text, name, nodes)


def read_trace(text: str, name: str, nodes: int) -> tuple[Strike, ...]:
    """Interruptions, one a line: `time_h,node,kind,repair_h`. Pure.

    Args:
        text: CSV with a header line; `repair_h` may be left out, other columns are passed over.
        name: of the file, for messages.
        nodes: of the cluster. Nodes are 0 to `nodes` - 1, or names, which are numbered as they come.

    Raises:
        InputError: a line is wrong; says which, and what.
    """
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    missing = [column for column in _COLUMNS if column not in (rows.fieldnames or ())]
    if missing:
        hint = "the first line is: time_h,node,kind,repair_h"
        raise InputError(f"has no column {missing[0]!r}", hint=hint, where=f"{name}:1")
    names: dict[str, int] = {}
    strikes = [_strike(row, f"{name}:{rows.line_num}", nodes, names) for row in rows]
    return tuple(sorted(strikes))


def _strike(row: Mapping[str, Any], where: str, nodes: int, names: dict[str, int]) -> Strike:
    at = _number(row["time_h"] or "", f"{where}: time_h") * HOUR_S
    repair_s = _number(row.get("repair_h") or "0", f"{where}: repair_h") * HOUR_S
    word = (row["kind"] or "").strip()
    kinds = [kind.value for kind in Hazard if kind is not Hazard.TIME_LIMIT]
    if word not in kinds:
        hint = did_you_mean(word, kinds)
        raise InputError(f"kind must be one of {', '.join(kinds)}, not {word!r}", hint=hint, where=where)
    kind = Hazard(word)
    text = (row["node"] or "").strip()
    if kind is Hazard.PREEMPTION and not text:
        return Strike(at, -1, kind)
    if not text:
        raise InputError("node is empty", hint="only a preemption needs none", where=where)
    node = int(text) if text.isdecimal() else names.setdefault(text, len(names))
    if node >= nodes:
        raise InputError(
            f"node {text!r} is not one of the {nodes} nodes", hint="a larger cluster: --nodes", where=where
        )
    return Strike(at, node, kind, repair_s)


def view(done: Rehearsed) -> dict[str, Any]:
    """All of it as JSON data; hours are means over the repetitions."""
    scenario, asked = done.scenario, done.asked
    published = done.failures.published if isinstance(done.failures, InterruptionRates) else 0.0
    return {
        "nodes": scenario.nodes,
        "days": scenario.days,
        "failures": asked.failures,
        "source": done.source,
        "published_effective": published or None,
        "seeds": list(range(asked.seed, asked.seed + asked.repeat)),
        "job": {key: value if value != math.inf else None for key, value in asdict(scenario.job).items()},
        "assumptions": asdict(scenario.assumptions),
        "policies": [policy_view(one, scenario) for one in done.summaries],
        "notes": notes(done),
    }


def policy_view(summary: simulate.PolicySummary, scenario: Scenario) -> dict[str, Any]:
    """One policy as JSON data."""
    gpus = scenario.job.nodes * scenario.job.gpus
    return {
        "policy": summary.policy,
        "what": RULES[summary.policy],
        "effective": summary.effective,
        "margin_95": None if math.isnan(summary.margin) else summary.margin,
        "hours": {what.value: summary.hours(what) for what in Hours},
        "gpu_hours_kept": summary.hours(Hours.USEFUL) * gpus,
        "gpu_hours": scenario.wall_s / HOUR_S * gpus,
        "attempts": summary.mean("attempts"),
        "restarts": summary.restarts,
        "given_up": summary.mean("given_up"),
        "repeat_offences": summary.mean("repeat_offences"),
        "excluded_peak": summary.mean("excluded_peak"),
        "best_checkpoint_every_s": simulate.best_interval_s(scenario, summary) or None,
        "runs": [
            {"effective": one.effective, "hours": {what.value: s / HOUR_S for what, s in one.spent.items()},
             "points_h": [[at / HOUR_S, useful / HOUR_S] for at, useful in one.points]}
            for one in summary.outcomes
        ],
    }  # fmt: skip


def notes(done: Rehearsed) -> list[str]:
    """What a person should know of the result, one sentence each."""
    scenario, said = done.scenario, []
    job = scenario.job
    if isinstance(done.failures, InterruptionRates) and done.failures.published:
        best = done.summaries[0]
        share, rates = done.failures.published, done.failures
        said.append(
            f"published with {rates.name}: more than {share:.0%} effective training time; here {best.policy} has "
            f"{best.effective:.1%}. It depends most on the time between checkpoints and the cost of a restart"
        )
    for summary in done.summaries:
        interval = simulate.best_interval_s(scenario, summary)
        if summary.policy == "remuda" and interval and not 0.5 < interval / job.checkpoint_every < 2:
            said.append(
                f"a checkpoint every {show_duration(interval)} would cost least (Young's formula); it is every "
                f"{show_duration(job.checkpoint_every) if math.isfinite(job.checkpoint_every) else 'never'}"
            )
        if summary.policy == "remuda" and summary.mean("given_up"):
            said.append(
                f"remuda gave the run up {summary.mean('given_up'):.1f} times, and a person had to begin it again: "
                "raise max_retries, or lower heal_after"
            )
    if not job.restart_cost:
        said.append("restart_cost is 0, so a restart takes no time here: set it in the document")
    if job.nodes > 1 and scenario.assumptions.named_share < 1:
        said.append(
            f"{1 - scenario.assumptions.named_share:.0%} of the GPU faults of a job on several nodes are laid to no "
            "node by remuda, and to the first by Shepherd's rules: nothing shows whose they were (--assume "
            "named_share=1 tries the contrary)"
        )
    return said
