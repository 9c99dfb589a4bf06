"""The outer optimizer of DiLoCo: SGD with momentum on the averaged update, as torch computes it, on numpy vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from remuda.gang.objects.codec import PIECE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.gang.objects.codec import Floats


class OuterOptimizer(Protocol):
    """Moves the shared parameters. Must give the same bits on every rank for the same input."""

    def step(self, parameters: Floats, gradient: Floats) -> None:
        """Change `parameters`, (n,) float32, in place; leave `gradient` unchanged."""
        ...

    def state(self) -> Mapping[str, Floats]:
        """What it remembers, arrays of (n,) float32 by name; none before the first step is fine."""
        ...

    def load(self, arrays: Mapping[str, Floats]) -> None:
        """Go on from what `state` gave."""
        ...


class Momentum:
    """v ← μ·v + g; θ ← θ - lr·(g + μ·v) with Nesterov, else θ ← θ - lr·v.

    Args:
        lr: learning rate.
        momentum: μ.
        nesterov: whether to look ahead.
    """

    def __init__(self, lr: float = 0.7, momentum: float = 0.9, *, nesterov: bool = True) -> None:
        self._lr, self._momentum, self._nesterov = np.float32(lr), np.float32(momentum), nesterov
        self._velocity: Floats | None = None

    def step(self, parameters: Floats, gradient: Floats) -> None:
        """Change `parameters`, (n,) float32, in place."""
        if self._velocity is None:
            self._velocity = np.zeros(len(parameters), np.float32)
        for start in range(0, len(parameters), PIECE):
            place = slice(start, start + PIECE)
            velocity, slope = self._velocity[place], gradient[place]
            velocity *= self._momentum
            velocity += slope
            move = slope + self._momentum * velocity if self._nesterov else velocity
            parameters[place] -= self._lr * move

    def state(self) -> Mapping[str, Floats]:
        """The velocity."""
        return {} if self._velocity is None else {"momentum": self._velocity}

    def load(self, arrays: Mapping[str, Floats]) -> None:
        """Go on from a velocity; without one it is zero."""
        self._velocity = arrays.get("momentum")
