"""The steps of `make gpu`, each a process of its own: `python -m tests.live.gpu.steps NAME FOLDER LIMIT SETTINGS`.

A step writes its result to FOLDER/outcome.json. SETTINGS is JSON, see `Settings`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.live.gpu import measures, report, work
from tests.live.gpu.machine import Card, Counter, NotPossible, Recorder, Smi, cards, owners, recorded
from tests.live.gpu.products import Products
from tests.live.gpu.report import NOT_HERE, Numbers, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

OUTCOME = "outcome.json"
LEAD_S = 1.0
"""What of each half of the square wave is not looked at: the driver's figures follow within a second."""


@dataclass(frozen=True)
class Settings:
    """How much is done.

    Attributes:
        device: `cuda`; `cpu` in tests, beside a fake driver.
        seconds: of the recording; a whole number of periods.
        half: seconds of half a period of its square wave.
        pairs: of blocks of products, with a recorder and without.
        block: seconds of one block.
        driver: folder of a fake driver whose power follows the wave; empty for a real one.
    """

    device: str = "cuda"
    seconds: float = 60.0
    half: float = 3.0
    pairs: int = 20
    block: float = 0.8
    driver: str = ""


class Late(Exception):
    """The step's time is over."""


def cuda(_: Settings, card: Card, folder: Path) -> Outcome:
    """The test of the GPUs that runs before a script: memory is taken, filled, copied back and compared."""
    argv = [sys.executable, "-m", "remuda.node", "smoke", "--json", "--gpus", "1", "--timeout", "15"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    (folder / "smoke.json").write_text(done.stdout)
    found = json.loads(done.stdout)
    numbers: Numbers = {"outcome": found["outcome"], "driver": found["driver"], "GPUs": len(found["devices"])}
    wrong = [found["error"] or f"exit code {done.returncode}"] if done.returncode else []
    if not wrong:
        seen = found["devices"][0]["address"].lower()
        numbers |= {"name": found["devices"][0]["name"], "test_s": found["seconds"]}
        if not card.address.lower().endswith(seen[-len("0000:00:00.0") :]):
            wrong.append(f"CUDA's GPU is at {seen}, and nvidia-smi's at {card.address}")
    return report.judged("cuda", numbers, wrong, 0)


def recording(settings: Settings, card: Card, folder: Path) -> Outcome:
    """A recording at 10 Hz under a square wave, against the card's counter and nvidia-smi."""
    load, counter, count = Products(settings.device), Counter(card.uuid), round(settings.seconds / 2 / settings.half)
    with Recorder(folder / "spool", card.index) as recorder, Smi(card) as smi:
        recorder.wait(10)
        cpu, first, products = recorder.cpu_s(), counter.read(), 0
        begin = first[0]
        if settings.driver:
            pretend_wave(settings, begin)
        for number in range(count):
            products += load.until(begin + (2 * number + 1) * settings.half)
            time.sleep(max(0.0, begin + (2 * number + 2) * settings.half - time.monotonic()))
        last, cpu = counter.read(), recorder.cpu_s() - cpu
        time.sleep(0.3)  # A round after the end, between which and the one before it the counter is read off.
    spool = folder / "spool"
    numbers = {"products": products, **_compared(spool, smi, first, last, settings)}
    numbers["recorder_cpu_%"] = 100 * cpu / (last[0] - first[0])
    seen = owners(spool)
    numbers["own_process_seen"] = os.getpid() in seen
    numbers |= _analysed(spool)
    return report.judged("recording", numbers, report.wrong_with_recording(numbers), 0)


def _compared(
    spool: Path, smi: Smi, first: tuple[float, float], last: tuple[float, float], settings: Settings
) -> Numbers:
    """What the recorder has, what the card's counter says, and what `nvidia-smi` saw."""
    begin, end = first[0], last[0]
    energy, power = recorded(spool, "energy"), [(when, mw / 1000) for when, mw in recorded(spool, "power")]
    times = [when for when, _ in power if begin <= when <= end]
    if len(times) < 2:
        raise RuntimeError("the recording has no power")
    count = round(settings.seconds / 2 / settings.half)
    on, off = measures.spans(begin, settings.half, count, min(LEAD_S, settings.half / 2))
    used = last[1] - first[1]
    numbers: Numbers = {
        "expected_rounds": round((end - begin) / 0.1), "rounds": len(times),
        "longest_gap_ms": 1000 * max(b - a for a, b in pairwise(times)),
        "counter_J": used,
    }  # fmt: skip
    if energy:
        kept = (measures.at(energy, end) - measures.at(energy, begin)) / 1000
        numbers |= {"recorded_J": kept, "energy_off_%": measures.off(kept, used)}
    by_power = measures.mean(power, begin, end)
    numbers |= {
        "by_power_off_%": measures.off(by_power * (end - begin), used),
        "on_W": measures.mean_of(power, on), "off_W": measures.mean_of(power, off),
    }  # fmt: skip
    said = smi.samples()
    theirs = said["power.draw.instant"]
    numbers["smi_samples"] = len(theirs)
    if len(theirs) > settings.seconds:
        a, b = max(begin, theirs[0][0]), min(end, theirs[-1][0])
        both = (measures.mean(power, a, b), measures.mean(theirs, a, b))
        apart = [abs(measures.at(power, when) - value) for when, value in theirs if a <= when <= b]
        numbers |= {"smi_W": both[1], "smi_off_%": measures.off(*both), "smi_apart_W": median(apart)}
        busy = recorded(spool, "busy")
        for name, part in (("on", on), ("off", off)):
            pair = [round(measures.mean_of(one, part)) for one in (busy, said["utilization.gpu"])]
            numbers[f"busy_{name}_%"] = f"{pair[0]} (nvidia-smi {pair[1]})"
    else:
        numbers["smi_says"] = smi.last_line()[:60] or "nothing"
    return numbers


def _analysed(spool: Path) -> Numbers:
    """What `remuda profiler analyze` makes of it, where pyarrow is at hand; the rest of the step reads the spool."""
    if importlib.util.find_spec("pyarrow") is None:
        return {"analyze": "not asked, as pyarrow is not here"}
    argv = [sys.executable, "-m", "remuda", "profiler", "analyze", str(spool), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        return {"analyze": done.stderr.strip()[-60:]}
    spool.with_name("analysis.json").write_text(done.stdout)
    return {"analyze_J": sum(row.get("joules") or 0.0 for row in json.loads(done.stdout).get("gpus", []))}


def pretend_wave(settings: Settings, begin: float) -> None:
    """Make the fake driver draw more while products are computed."""
    import mmap

    from tests.fakes.nvml import Machine

    with (Path(settings.driver) / "nvml.state").open("r+b") as file:
        gpu = Machine.from_buffer(mmap.mmap(file.fileno(), 0)).gpu[0]
        gpu.waves(300_000, 90_000, 2 * settings.half)
        gpu.wave.start_ns = round(begin * 1e9)


def cost(settings: Settings, card: Card, folder: Path) -> Outcome:
    """How much longer the same products take beside a recorder, in pairs of blocks whose order changes each time.

    Before each block the card computes, too: one that has rested has other clocks.
    """
    load = Products(settings.device)
    count, ratios = load.count_for(settings.block), []
    for number in range(settings.pairs):
        plain = _plain(load, count, settings) if number % 2 else 0.0
        beside = _beside(load, count, folder / f"spool{number}", card)
        plain = plain or _plain(load, count, settings)
        ratios.append(100 * (beside / plain - 1))
    middle, low, high = measures.median_interval(ratios)
    numbers: Numbers = {
        "pairs": settings.pairs, "block_s": settings.block, "products": count,
        "median_%": middle, "low_%": low, "high_%": high, "least_%": min(ratios), "most_%": max(ratios),
    }  # fmt: skip
    return report.judged("cost", numbers, report.wrong_with_cost(numbers), 0)


def _plain(load: Products, count: int, settings: Settings) -> float:
    """Seconds of the products alone."""
    load.until(time.monotonic() + settings.block)
    return load.run(count)


def _beside(load: Products, count: int, folder: Path, card: Card) -> float:
    """Seconds of the products beside a recorder that has begun."""
    with Recorder(folder, card.index) as recorder:
        recorder.wait(3, lambda: load.until(time.monotonic() + 0.02))
        return load.run(count)


STEPS: dict[str, Callable[[Settings, Card, Path], Outcome]] = {
    "cuda": cuda, "recording": recording, "cost": cost, "run": work.run, "swarm": work.swarm, "gang": work.gang,
}  # fmt: skip


def main(name: str, folder: str, limit: str, said: str) -> None:
    """Do one step, within its time."""

    def late(*_: object) -> None:
        raise Late(f"it was not done within {float(limit):.0f} s")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, float(limit))
    settings, begin = Settings(**json.loads(said)), time.monotonic()
    try:
        outcome = STEPS[name](settings, cards()[0][0], Path(folder))
    except NotPossible as why:
        outcome = Outcome(name, NOT_HERE, words=str(why))
    except Exception as error:  # noqa: BLE001 - whatever it is, the other steps go on
        import traceback

        traceback.print_exc()
        outcome = Outcome(name, report.FAILED, words=f"{type(error).__name__}: {error}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    told: dict[str, Any] = {**outcome.to_json(), "seconds": round(time.monotonic() - begin, 1)}
    Path(folder, OUTCOME).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
