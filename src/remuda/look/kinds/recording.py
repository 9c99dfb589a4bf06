"""Recordings of this machine's GPUs; they have no document."""

from __future__ import annotations

from remuda.look.kinds import WorkKind
from remuda.plan.recording import compile_recording

KIND = WorkKind(compile_recording)
