"""Jobs: drivers of work against an endpoint; they have no document."""

from __future__ import annotations

from remuda.control.kinds import Kind
from remuda.plan.job import compile_job

KIND = Kind(compile_job)
