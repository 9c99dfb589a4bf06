"""Recordings of this machine's GPUs; they have no document."""

from __future__ import annotations

from remuda.control.kinds import Kind
from remuda.plan.recording import compile_recording

KIND = Kind(compile_recording)
