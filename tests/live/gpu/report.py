"""Results of the steps of `make gpu`: the table, the exit code, and what counts as wrong. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PASSED, FAILED, NOT_HERE = "passed", "failed", "not possible here"
NO_GPU = 3
"""Exit code of a machine without a GPU."""
WIDTH = 100
#: How far a number may be off, in %.
ENERGY_OFF, POWER_OFF, COST = 1.0, 5.0, 2.0
LEAST_ROUNDS, MOST_CPU, LEAST_SWING = 0.97, 5.0, 1.3

Numbers = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Result of one step.

    Attributes:
        step: its name.
        result: `PASSED`, `FAILED` or `NOT_HERE`.
        numbers: what it measured, by name; units are in the names.
        words: why it failed or is not possible; empty where it passed.
        seconds: how long it took.
    """

    step: str
    result: str
    numbers: Numbers = field(default_factory=dict)
    words: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return asdict(self)


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """1 where a step failed, or none passed; a step that is not possible on this machine does not count as failed."""
    results = {one.result for one in outcomes}
    return 0 if FAILED not in results and PASSED in results else 1


def table(outcomes: Sequence[Outcome]) -> str:
    """The steps as lines of text: step, result, seconds, numbers; what is wrong below its step."""
    name, result = (max(map(len, column)) for column in (
        ["step", *(one.step for one in outcomes)], ["result", *(one.result for one in outcomes)],
    ))  # fmt: skip
    lines = [f"{'step':{name}}  {'result':{result}}      s  numbers"]
    margin = " " * (name + result + 11)
    for one in outcomes:
        said = _wrapped([f"{key} {_shown(value)}" for key, value in one.numbers.items()], WIDTH - len(margin))
        lines.append(
            f"{one.step:{name}}  {one.result:{result}}  {one.seconds:5.1f}  {said[0] if said else ''}".rstrip()
        )
        lines += [margin + line for line in said[1:]]
        lines += [f"{' ' * name}  {one.words}"] if one.words else []
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)


def _wrapped(items: Sequence[str], width: int) -> list[str]:
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + 3 + len(item) <= width:
            lines[-1] += f" · {item}"
        else:
            lines.append(item)
    return lines


def judged(step: str, numbers: Numbers, wrong: Sequence[str], seconds: float) -> Outcome:
    """Passed where nothing is wrong."""
    return Outcome(step, FAILED if wrong else PASSED, numbers, "; ".join(wrong), seconds)


def wrong_with_recording(numbers: Mapping[str, Any]) -> list[str]:
    """What is wrong with a recording; a number that is missing was not to be had and is not judged."""
    rules = (
        ("rounds", numbers["rounds"] >= LEAST_ROUNDS * numbers["expected_rounds"], "rounds are missing"),
        ("energy_off_%", abs(numbers.get("energy_off_%", 0.0)) <= ENERGY_OFF,
         f"the energy is more than {ENERGY_OFF:g} % off the card's counter"),
        ("smi_off_%", abs(numbers.get("smi_off_%", 0.0)) <= POWER_OFF,
         f"the power is more than {POWER_OFF:g} % off nvidia-smi's"),
        ("on_W", numbers.get("on_W", 2.0) >= LEAST_SWING * numbers.get("off_W", 1.0), "the square wave is not seen"),
        ("recorder_cpu_%", numbers["recorder_cpu_%"] <= MOST_CPU,
         f"the recorder takes more than {MOST_CPU:g} % of a core"),
    )  # fmt: skip
    return [words for _, good, words in rules if not good]


def wrong_with_cost(numbers: Mapping[str, Any]) -> list[str]:
    """What is wrong with the cost of a recorder: its median decides, the interval says how sure that is."""
    words = f"products take more than {COST:g} % longer beside a recorder"
    return [words] if numbers["median_%"] > COST else []
