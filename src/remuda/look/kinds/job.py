"""Jobs: drivers of work against an endpoint; they have no document."""

from __future__ import annotations

from remuda.look.kinds import WorkKind
from remuda.plan.job import compile_job

KIND = WorkKind(compile_job)
