from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.unit.base.html import Page
from tests.unit.profile.invented import looks, recorded, track

from remuda.base.errors import InputError
from remuda.profile import Attempt, analyse, facts, page, picture
from remuda.profile.columns import Said
from remuda.profile.graphs import graphs_of
from remuda.profile.picture import check_picture
from remuda.wire.recording import Gpu

if TYPE_CHECKING:
    from remuda.profile.columns import Recorded

NOW = 1.79e9


def exp1(gpus: int = 3) -> Recorded:
    """A minute of some GPUs; one of them is idle, and one was not sampled for a while."""
    tracks = []
    for index in range(gpus):
        times = [at for at in range(60) if index != 1 or not 20 <= at < 40]
        tracks.append(track(
            {
                "busy": [0 if index == 2 else 90 + at % 10 for at in times], "power": [300_000] * len(times),
                "energy": [300_000 * at for at in times], "memory": [2.0**35] * len(times),
                "temperature": [60] * len(times), "limits": [0x20 if at < 30 else 0 for at in times],
            },
            times, index=index, token="train-1",
            looks=looks([(at, "train-1", 80.0) for at in times]) if index == 0 else None,
        ))  # fmt: skip
    notes = (Said(int(tracks[0].times[5]), "n1", "gpu", "GPU 1 does not answer"),)
    return recorded(*tracks, name="exp1", notes=notes, attempt_of=lambda token: Attempt(token.split("-")[0], 1))


def test_a_whole_page() -> None:
    text = page(exp1(), now=NOW)
    seen = Page(text)
    assert seen.tags.count("h1") == 1
    for words in ("exp1", "3 × H100", "When they were busy", "GPUs", "Tasks", "Processes", "What stands out",
                  "GPU 2 was idle for 100 % of", "GPU 1 does not answer", "What the numbers mean"):  # fmt: skip
        assert words in seen.text
    assert 'name="viewport"' in text
    assert "prefers-color-scheme:dark" in text
    assert text.count('class="chart wide"') == text.count('class="chart narrow"') >= 5


def test_it_loads_nothing() -> None:
    text = page(exp1(), now=NOW)
    seen = Page(text)
    assert [link for link in seen.links if not link.startswith("#")] == []
    assert seen.handlers == []
    assert set(seen.tags) & {"link", "iframe", "img", "object", "embed", "base", "form"} == set()
    assert re.findall(r'["\'=(]\s*https?://', text) == []


@pytest.mark.parametrize("name", ["</title><script>alert(1)</script>", '" onload="x', "<" * 100_000, "\x1b[31mred\x00"])
def test_what_others_wrote_is_only_text(name: str) -> None:
    one = track({"busy": [1, 2]}, node=name, token=name, looks=looks([(0, name, 5.0)]))
    whole = recorded(one, name=name, notes=(Said(int(one.times[0]), name, "gap", name),))
    text = page(whole, now=NOW)
    seen = Page(text)
    assert seen.handlers == []
    assert seen.tags.count("script") == 1
    assert "\x1b" not in text
    assert len(text) < 100_000


def test_a_week_of_64_gpus_is_a_small_page() -> None:
    chance = np.random.default_rng(2)
    tracks = [
        track({"busy": chance.integers(0, 100, 10_000).tolist(), "power": [3e5] * 10_000}, interval_s=60.0,
              index=index % 8, node=f"n{index // 8}")
        for index in range(64)
    ]  # fmt: skip
    begin = time.process_time()
    text = page(recorded(*tracks), now=NOW)
    assert len(text) < 1_500_000
    assert time.process_time() - begin < 30
    assert "Mean, highest and lowest of 64 GPUs." in text
    assert "days since" in text


def test_nothing_but_busy_is_a_page() -> None:
    assert "Busy" in Page(page(recorded(track({"busy": [7]})), now=NOW)).text


def test_a_line_is_broken_where_nothing_is_known() -> None:
    graphs = graphs_of(exp1())
    busy = graphs.charts[0][0]
    assert [line.name for line in busy.lines if line.number == 1] == ["", "GPU 1"]
    assert graphs.heat is not None
    assert np.isnan(graphs.heat.levels[1]).sum() == 20


@pytest.mark.parametrize(("ending", "begins"), [(".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_pictures_for_paper(ending: str, begins: bytes) -> None:
    assert picture(exp1(), ending).startswith(begins)


def test_other_endings_are_refused() -> None:
    with pytest.raises(InputError, match=r"must end with \.html, \.png, \.pdf"):
        check_picture(".bmp")


# Sentences


def test_facts_the_gravest_first() -> None:
    assert facts(analyse(exp1()), "the last minute") == [
        "GPU 1 does not answer",
        "GPU 2 was idle for 100 % of the last minute",
        "clocks of GPUs 0 and 2 were lowered by heat for 30s",
        "clocks of GPU 1 were lowered by heat for 20s",
        "GPU 1 was not sampled for 33 % of the time, in 1 gap",
        "3 GPUs used 53.1 kJ in the last minute",
    ]


def test_many_gpus_are_counted_and_nodes_are_named() -> None:
    tracks = [track({"busy": [0] * 10}, index=index) for index in range(5)]
    tracks += [track({"busy": [0] * 10}, node="n2", index=index) for index in (0, 1)]
    assert facts(analyse(recorded(*tracks)), "the last hour") == [
        "5 GPUs of n1 were idle for 100 % of the last hour", "GPUs 0 and 1 of n2 were idle for 100 % of the last hour",
    ]  # fmt: skip


def test_what_differs_from_gpu_to_gpu_is_one_sentence() -> None:
    tracks = [track({"busy": [0] * idle + [9] * (100 - idle)}, index=index) for index, idle in enumerate((93, 60, 99))]
    tracks += [track({"busy": [0] * idle + [9] * (100 - idle)}, node="n2", index=idle) for idle in (70, 80)]
    assert facts(analyse(recorded(*tracks)), "the last hour") == [
        "GPUs 0, 1 and 2 of n1 were idle for 60 % to 99 % of the last hour",
        "GPU 70 of n2 was idle for 70 % of the last hour", "GPU 80 of n2 was idle for 80 % of the last hour",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("owners", "words"),
    [(("a", "b"), "several tasks"), (("a", ""), "processes that belong to no task")],
)  # fmt: skip
def test_shared_gpus_are_said(owners: tuple[str, str], words: str) -> None:
    seen = looks([(at, owner, 10.0) for at in range(10) for owner in owners])
    (said,) = facts(analyse(recorded(track({"busy": [90] * 10}, looks=seen, token="a"))))
    assert said == f"GPU 0 had {words} at the same time; joules are split by their shares"


def test_joules_by_power_are_said_to_be() -> None:
    assert facts(analyse(recorded(track({"power": [100_000] * 10})))) == [
        "1 GPU used 900 J in the 10s that were recorded, as an integral of power"
    ]


def test_errors_of_memory_are_said() -> None:
    (said,) = facts(analyse(recorded(track({"ecc_uncorrected": [4, 4, 6]}))))
    assert said == "GPU 0 had 2 memory errors that could not be corrected"


def test_what_the_recorder_saw_is_said_first() -> None:
    one = track({"busy": [90] * 3})
    notes = (
        Said(int(one.times[0]), "n1", "gpu", "the driver does not answer for GPU 2: the others go on without it"),
        Said(int(one.times[1]), "n1", "fault", "xid-79 on 0000:3b:00: the GPU has fallen off the bus"),
        Said(int(one.times[1]), "n1", "seen", "ecc: corrected"),
        *(Said(int(one.times[2]), "n1", "gpu", f"GPU {number}: Not Found") for number in range(5, 11)),
    )
    whole = recorded(one, notes=notes, unseen=(("n1", Gpu(3, "GPU-3", is_mig=True)), ("n1", Gpu(4, ""))))
    assert facts(analyse(whole)) == [
        "xid-79 on 0000:3b:00: the GPU has fallen off the bus",  # however many newer words there are about sampling
        *(f"GPU {number}: Not Found" for number in range(7, 11)), "GPU 3 was not sampled: it is split by MIG",
        "GPU 4 was not sampled: the driver told nothing of it",
    ]  # fmt: skip


def test_bytes_are_drawn_as_rates() -> None:
    one = track({"pcie_sent": [0, 2 * 10**9, 4 * 10**9], "pcie_received": [0, 10**9, 2 * 10**9]})
    (chart, words), *_ = graphs_of(recorded(one)).charts
    assert (chart.title, chart.y, words) == ("PCIe", "MB/s", "Sent and received together.")
    assert [y for _, y in chart.lines[0].path] == [3000.0, 3000.0]
