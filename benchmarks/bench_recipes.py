"""Recipes: 500 of them read, resolved and planned in one process, and one dry run as it is typed; CPU seconds.

The baseline is PyYAML alone on the same texts: nobody can read a recipe without parsing it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from remuda.plan.deployment import DeploymentSite, plan_deployment
from remuda.plan.model import Command, Group, Role
from remuda.specs.reading.document import parse
from remuda.specs.recipe.load import build

COUNT = 500
LIMIT_S, DRY_RUN_LIMIT_S = 30.0, 0.5
CASES = Path(__file__).parents[1] / "tests/cases/deployments"
FRONT = Group(name="frontend", role=Role.ROUTER, count=1, command=Command(argv=("frontend",)))
SITE = DeploymentSite(name="d", uid="u", run_dir="/run/d", python="/env/bin/python")


def main() -> int:
    """Print the figures; 1 where a limit is missed."""
    texts = [file.read_text() for file in sorted(CASES.glob("*.yaml"))]
    texts = (texts * COUNT)[:COUNT]
    begin = time.process_time()
    for text in texts:
        yaml.safe_load(text)
    baseline_s = time.process_time() - begin
    begin = time.process_time()
    tasks = 0
    for number, text in enumerate(texts):
        spec = build(parse(text, f"{number}.yaml"))[0].loaded.spec
        plan = plan_deployment(spec, None if spec.frontend.type == "none" else FRONT, SITE)
        tasks += sum(group.count for group in plan.workload.groups)
        plan.workload.model_dump_json()
    all_s = time.process_time() - begin
    dry_s = dry_run()
    print(json.dumps({"recipes": COUNT, "tasks": tasks, "cpu_s": round(all_s, 2), "yaml_cpu_s": round(baseline_s, 2),
                      "ratio": round(all_s / baseline_s, 1), "dry_run_cpu_s": round(dry_s, 3)}))  # fmt: skip
    return int(all_s > LIMIT_S or dry_s > DRY_RUN_LIMIT_S)


def dry_run() -> float:
    """CPU seconds of `remuda apply --dry-run`, the best of five."""
    words = [sys.executable, "-m", "remuda", "apply", str(CASES / "mocker-here.yaml"), "--dry-run"]
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "REMUDA_HOME": home}
        found = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(words, env=env, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


if __name__ == "__main__":
    sys.exit(main())
