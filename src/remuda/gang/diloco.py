"""DiLoCo: copies train alone for some hundred steps, then average how far they came, and move on from there together.

Source: arXiv:2311.08105. Per round: Δ = θ_shared - θ_local, its mean over the copies is the gradient of the outer
optimizer, whose result is the new θ of all copies. Parameters are averaged; buffers and what the inner optimizer
remembers stay with each copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from remuda.base.errors import InputError
from remuda.gang.models import parameters_of
from remuda.gang.outer import Momentum

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from remuda.gang.allreduce import ObjectStoreAllReduce
    from remuda.gang.objects.codec import Floats
    from remuda.gang.outer import OuterOptimizer

_PARAMETERS: Final = "parameters"


class DiLoCo:
    """Keeps the copies of a model together, a round every `sync_every` inner steps.

    As a context manager it joins the run, counts the steps of a torch optimizer by itself, and leaves the run. Without
    one, or with an optimizer that has no `register_step_post_hook`, call `step()` after each inner step.

    A copy that is started again begins from the shared parameters of the last round, with `steps` where the others are.

    Args:
        model: a torch module, or a mapping or list of numpy arrays; changed in place. In a copy of several processes
            (torch.distributed) all of them have a `DiLoCo`, and process 0 speaks to the store for all.
        inner_optimizer: the copy's own; None where the training loop has none that is an object.
        store: the rounds; not open yet.
        sync_every: inner steps of a round.
        outer_lr: learning rate of the outer optimizer.
        outer_momentum: its momentum.
        nesterov: whether it looks ahead.
        outer_optimizer: another one, instead of these three.

    Raises:
        InputError: the model is none, or `sync_every` is less than 1.
    """

    def __init__(
        self,
        model: Any,
        inner_optimizer: Any,
        store: ObjectStoreAllReduce,
        sync_every: int = 500,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        nesterov: bool = True,
        outer_optimizer: OuterOptimizer | None = None,
    ) -> None:
        if sync_every < 1:
            raise InputError(f"sync_every is {sync_every}, and must be at least 1")
        self.store, self.sync_every = store, sync_every
        self._parameters = parameters_of(model)
        self._inner = inner_optimizer
        self._outer: OuterOptimizer = outer_optimizer or Momentum(outer_lr, outer_momentum, nesterov=nesterov)
        self._shared: Floats | None = None
        self._since = 0
        self._hook: Any = None

    @property
    def steps(self) -> int:
        """Inner steps of this copy since the beginning of the run, those before it was started again included."""
        return self.store.round * self.sync_every + self._since

    def start(self) -> None:
        """Join the run: take its parameters, and finish the round that this copy died in.

        Raises what `ObjectStoreAllReduce.allreduce` raises.
        """
        rank = self._parameters.share(lambda: self.store.rank)
        if rank != self.store.rank:
            raise InputError(
                f"processes of one copy have the ranks {rank} and {self.store.rank}",
                hint="set REPLICA_RANK and REPLICA_COUNT: RANK and WORLD_SIZE are those of the processes",
            )
        self._shared = self._vector()
        self._parameters.read(self._shared)
        self.store.round = self._parameters.share(self._join)
        self._parameters.write(self._shared)

    def _vector(self) -> Floats:
        return np.empty(self._parameters.layout.elements if self._parameters.speaks else 0, np.float32)

    def _join(self) -> int:
        self.store.open(self._parameters.layout, self)
        if self.store.has_open_round:
            self.store.reduce(None)
        return self.store.round

    def step(self) -> bool:
        """Count an inner step; whether the copies averaged after it.

        Raises what `ObjectStoreAllReduce.allreduce` raises.
        """
        if self._shared is None:
            self.start()
        self._since += 1
        if self._since < self.sync_every:
            return False
        self.sync()
        return True

    def sync(self) -> None:
        """A round: give how far this copy came, and go on from where all are.

        Raises what `ObjectStoreAllReduce.allreduce` raises; the copy's own parameters are then as they were, and
        another call goes on with the same round.
        """
        if self._shared is None:
            raise InputError("the run is not joined", hint="use `with`, or call start() before the first step")
        update = self._vector()
        self._parameters.read(update)
        np.subtract(self._shared, update, out=update)
        self.store.round = self._parameters.share(lambda: self._give(update))
        self._since = 0
        self._parameters.write(self._shared)

    def _give(self, update: Floats) -> int:
        self.store.reduce(None if self.store.has_open_round else update)
        return self.store.round

    def apply(self, number: int, mean: Floats) -> None:  # noqa: ARG002
        """Move the shared parameters by the mean of a round."""
        assert self._shared is not None
        self._outer.step(self._shared, mean)

    def state(self) -> Mapping[str, Floats]:
        """The shared parameters, and what the outer optimizer remembers."""
        assert self._shared is not None
        return {_PARAMETERS: self._shared, **self._outer.state()}

    def load(self, arrays: Mapping[str, Floats]) -> None:
        """Go on from a state."""
        self._shared = arrays[_PARAMETERS]
        self._outer.load({name: array for name, array in arrays.items() if name != _PARAMETERS})

    def __enter__(self) -> Self:
        self.start()
        if hasattr(self._inner, "register_step_post_hook"):
            self._hook = self._inner.register_step_post_hook(lambda *_: self.step() and None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hook is not None:
            self._hook.remove()
        # A copy that fails is expected back; one that has ended is waited for by nobody.
        self.store.close(leave=error is None)
