"""CPU seconds for a month of 10,000 nodes, beside the same supervisor that is asked every minute of it."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from harness import Figure, finish
from remuda.rehearsal.ours import live_ours
from remuda.rehearsal.rates import PUBLISHED
from remuda.rehearsal.rules import Throws
from remuda.rehearsal.simulate import POLICIES, draw, simulate
from remuda.rehearsal.study import StudyOptions, plan, read_assumptions, read_run

BOUND_S = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = []
    for name in ("llama3", "rsc"):
        rates = PUBLISHED[name]
        asked = StudyOptions(nodes=options.nodes, days=options.days, failures=name)
        scenario = plan(read_run(asked), asked, replace(read_assumptions([], rates), named_share=1.0))
        begin = time.process_time()
        strikes = draw(scenario, rates, 1)
        outcomes = {policy: simulate(scenario, strikes, policy, 1) for policy in POLICIES}
        took = time.process_time() - begin
        attempts = outcomes["remuda"].attempts
        begin = time.process_time()
        ours = live_ours(scenario, strikes, Throws(1))
        alone = time.process_time() - begin
        begin = time.process_time()
        ticked = live_ours(scenario, strikes, Throws(1), tick_s=60.0)
        naive = time.process_time() - begin
        if not ours == ticked == outcomes["remuda"]:
            raise SystemExit("jumping and ticking came to different outcomes")
        what = f"{options.nodes} nodes x {options.days:g} days, {name}"
        figures += [
            Figure(f"{what}: three policies ({attempts} attempts of ours)", took, "CPU s", BOUND_S),
            Figure(f"{what}: ours", alone, "CPU s", BOUND_S, naive, "asking every minute"),
        ]
    return finish(figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
