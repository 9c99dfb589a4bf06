"""`make gpu` without a GPU: its table, what counts as wrong, its arithmetic, and what the kit is made of."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.live import make_gpu_kit as kit
from tests.live.gpu import measures, report
from tests.live.gpu.machine import smi_samples
from tests.live.gpu.report import FAILED, NOT_HERE, PASSED, Outcome

GOOD: dict[str, Any] = {
    "rounds": 598, "expected_rounds": 600, "energy_off_%": -0.4, "smi_off_%": 1.2, "on_W": 650.0, "off_W": 120.0,
    "recorder_cpu_%": 0.9,
}  # fmt: skip


def test_the_table_has_a_line_a_step_and_what_is_wrong_below_it() -> None:
    outcomes = [
        Outcome("cuda", PASSED, {"outcome": "ok", "own": True, "J": 24013.25, "off_%": 0.1234}, "", 1.25),
        Outcome("run", FAILED, {}, "it is FAILED: exit code 3", 12.0),
        Outcome("swarm", NOT_HERE, {}, "/usr/bin/python3 has no transformers", 0.0),
    ]
    assert report.table(outcomes).splitlines() == [
        "step   result                 s  numbers",
        "cuda   passed               1.2  outcome ok · own yes · J 24013 · off_% 0.1234",
        "run    failed              12.0",
        "       it is FAILED: exit code 3",
        "swarm  not possible here    0.0",
        "       /usr/bin/python3 has no transformers",
    ]


def test_many_numbers_take_several_lines() -> None:
    lines = report.table([Outcome("cost", PASSED, {f"number_{at}": at for at in range(12)}, "", 3.0)]).splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= report.WIDTH
    assert lines[2].startswith(" " * lines[1].index("number_0") + "number_")


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([PASSED, PASSED], 0),
        ([PASSED, NOT_HERE], 0),
        ([PASSED, FAILED, NOT_HERE], 1),
        ([NOT_HERE], 1),
        ([], 1),
    ],
)
def test_the_exit_code(results: list[str], code: int) -> None:
    assert report.exit_code([Outcome("x", result) for result in results]) == code


@pytest.mark.parametrize(
    ("numbers", "wrong"),
    [
        ({}, []),
        ({"rounds": 500}, ["rounds are missing"]),
        ({"energy_off_%": 1.5}, ["the energy is more than 1 % off the card's counter"]),
        ({"energy_off_%": -1.5}, ["the energy is more than 1 % off the card's counter"]),
        ({"smi_off_%": -7.0}, ["the power is more than 5 % off nvidia-smi's"]),
        ({"on_W": 125.0}, ["the square wave is not seen"]),
        ({"recorder_cpu_%": 9.0}, ["the recorder takes more than 5 % of a core"]),
        ({"rounds": 1, "on_W": 0.0}, ["rounds are missing", "the square wave is not seen"]),
    ],
)
def test_what_is_wrong_with_a_recording(numbers: dict[str, Any], wrong: list[str]) -> None:
    assert report.wrong_with_recording(GOOD | numbers) == wrong


def test_a_number_that_is_not_to_be_had_is_not_judged() -> None:
    left = {name: value for name, value in GOOD.items() if name not in ("energy_off_%", "smi_off_%")}
    assert report.wrong_with_recording(left) == []


@pytest.mark.parametrize(("median", "is_wrong"), [(-0.3, False), (2.0, False), (2.1, True)])
def test_a_cost_is_judged_by_its_median(median: float, is_wrong: bool) -> None:
    assert bool(report.wrong_with_cost({"median_%": median, "low_%": -9.0, "high_%": 9.0})) is is_wrong


def test_values_between_samples() -> None:
    samples = [(0.0, 0.0), (1.0, 10.0), (3.0, 10.0)]
    assert [measures.at(samples, when) for when in (-1, 0, 0.5, 1, 2, 9)] == [0, 0, 5, 10, 10, 10]
    assert measures.mean(samples, 0.0, 2.0) == 7.5
    assert measures.mean_of(samples, [(0.0, 1.0), (1.0, 3.0)]) == pytest.approx(25 / 3)
    assert measures.off(99.0, 100.0) == -1.0
    assert measures.off(1.0, 0.0) == 0.0


def test_halves_of_a_square_wave() -> None:
    assert measures.spans(100.0, 3.0, 2, 1.0) == ([(101, 103), (107, 109)], [(104, 106), (110, 112)])


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(1, 0, 0), (5, 0, 4), (6, 0, 5), (9, 1, 7), (20, 5, 14)],  # ranks of the sign test: 6 and 15 of 20
)
def test_a_median_with_its_interval(count: int, low: int, high: int) -> None:
    middle, least, most = measures.median_interval([float(number) for number in reversed(range(count))])
    assert (middle, least, most) == ((count - 1) / 2, low, high)


def test_lines_of_nvidia_smi() -> None:
    begin = time.mktime((2026, 11, 26, 1, 2, 3, 0, 0, -1))
    text = (
        "2026/11/26 01:02:03.250, 612.50, 100\r\n2026/11/26 01:02:03.350, [N/A], 99\r\n"
        '2026/11/26 01:02:0\nField "power.draw.instant" is not a valid field to query.\n'
    )
    found = smi_samples(text, ("timestamp", "power.draw.instant", "utilization.gpu"), begin - 1000)
    assert [value for _, value in found["power.draw.instant"]] == [612.5]
    assert [value for _, value in found["utilization.gpu"]] == [100.0, 99.0]
    assert [when for when, _ in found["utilization.gpu"]] == pytest.approx([1000.25, 1000.35])


def test_the_kit_is_the_core_without_what_is_large() -> None:
    asked = kit.wanted((kit.ROOT / "pyproject.toml").read_text())
    names = {kit._name(one) for one in asked}
    assert {"aiohttp", "pydantic", "sqlalchemy", "obstore", "openai"} <= names
    assert not names & {"numpy", "pyarrow", "ray", "smg", "pytest"}


def test_the_kit_has_the_hashes_of_the_lock() -> None:
    pinned = kit.locked(kit.LOCK.read_text(), {"click", "orjson"})
    assert [line.split("==")[0] for line in pinned.splitlines() if "==" in line] == ["click", "orjson"]
    assert pinned.count("--hash=sha256:") > 2
    with pytest.raises(KeyError):
        kit.locked(kit.LOCK.read_text(), {"nothing-of-the-sort"})
