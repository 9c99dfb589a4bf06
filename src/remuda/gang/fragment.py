"""Parts of a model that are averaged in turn, for an optimizer that moves the parameters itself, as torchft's does.

The order of its calls: `start_quorum`, `current_step`, `collect` for each tensor of the part whose turn it is, perhaps
some inner steps, `finish`, `should_commit`, and where that is true its own outer step. Each part is a run of its own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import numpy as np

from remuda.base.errors import InputError, RemudaError, TimedOut, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.gang.allreduce import ObjectStoreAllReduce
    from remuda.gang.objects.codec import Floats
    from remuda.gang.objects.layout import Layout

log = logging.getLogger(__name__)


class Piece(Protocol):
    """A tensor that becomes the mean of those of all copies."""

    size: int

    def read(self, out: Floats) -> None:
        """Copy its values into (size,) float32."""
        ...

    def write(self, values: Floats) -> None:
        """Set it from (size,) float32."""
        ...


class Shared(Protocol):
    """The shared parameters of a part, and the outer optimizer that moves them."""

    layout: Layout

    def step(self, mean: Floats) -> None:
        """Move by the mean of a round: what the outer optimizer does with it as the gradient.

        The copy's own parameters move along, so that how far it came from the shared ones stays as it is.
        """
        ...

    def state(self) -> Mapping[str, Floats]:
        """Copies of all that `load` needs, arrays of (elements,) float32."""
        ...

    def load(self, arrays: Mapping[str, Floats]) -> None:
        """Go on from a state; the copy's own parameters move along."""
        ...


class Fragment:
    """One part, and its rounds.

    The mean of the newest round is held back until it is known who applies it: the outer optimizer in its own step, or
    `Shared.step` where this copy only comes to where the others are.

    Args:
        store: the rounds of this part; not open yet.
        shared: the part.
    """

    def __init__(self, store: ObjectStoreAllReduce, shared: Shared) -> None:
        self.store, self._shared = store, shared
        self._pieces: list[Piece] = []
        self._mean: Floats | None = None

    def join(self) -> None:
        """Come into the run. Raises what `ObjectStoreAllReduce.allreduce` raises."""
        self.store.open(self._shared.layout, self)
        self.catch_up()

    def catch_up(self) -> None:
        """Finish the round that an error or this copy's death interrupted, and apply what others finished."""
        if self.store.has_open_round:
            self.store.reduce(None)
        self.store.catch_up()
        self._settle()

    def collect(self, piece: Piece) -> None:
        """Note a tensor for the next round."""
        self._pieces.append(piece)

    @property
    def is_waited_for(self) -> bool:
        """Whether there is something that no round was made for."""
        return bool(self._pieces)

    def average(self) -> None:
        """Make one round for all that was collected, and set it to the mean."""
        pieces, update = self._pieces, self._take()
        self.store.reduce(update)
        assert self._mean is not None
        mean, self._mean, start = self._mean, None, 0
        for piece in pieces:
            piece.write(mean[start : start + piece.size])
            start += piece.size

    def keep(self) -> None:
        """Owe what was collected: it is part of this copy's next contribution."""
        self.store.owe(self._take())

    def _take(self) -> Floats:
        pieces, self._pieces = self._pieces, []
        update = np.empty(self._shared.layout.elements, np.float32)
        size = sum(piece.size for piece in pieces)
        if size != len(update):
            raise InputError(f"{size:,} values were given of a part that has {len(update):,}")
        start = 0
        for piece in pieces:
            piece.read(update[start : start + piece.size])
            start += piece.size
        return update

    def apply(self, number: int, mean: Floats) -> None:  # noqa: ARG002
        """Take the mean of a round."""
        self._settle()
        self._mean = mean

    def state(self) -> Mapping[str, Floats]:
        """As it is after the newest round, also where the outer optimizer has still to apply that."""
        before = self._shared.state()
        if self._mean is None:
            return before
        self._shared.step(self._mean)
        after = self._shared.state()
        self._shared.load(before)
        return after

    def load(self, arrays: Mapping[str, Floats]) -> None:
        """Go on from a state."""
        self._mean = None
        self._shared.load(arrays)

    def _settle(self) -> None:
        mean, self._mean = self._mean, None
        if mean is not None:
            self._shared.step(mean)


class Fragments:
    """All parts of a model, whose turns go round.

    Args:
        store: of the run; a model of several parts has a run for each, `RUN_ID.0`, `RUN_ID.1`, and so on.
        count: of the parts.
    """

    def __init__(self, store: ObjectStoreAllReduce, count: int) -> None:
        self._stores = [store] if count == 1 else [store.part(str(number)) for number in range(count)]
        self._store = store
        self.parts: list[Fragment] = []
        self._error: RemudaError | None = None

    def add(self, shared: Shared) -> None:
        """The next part. With the last one the run is joined: raises what `ObjectStoreAllReduce.allreduce` raises."""
        self.parts.append(Fragment(self._stores[len(self.parts)], shared))
        if len(self.parts) == len(self._stores):
            for part in self.parts:
                part.join()

    def start_quorum(self) -> None:
        """Come to where the others are, before the turn of a part is asked for."""
        self._error = None
        try:
            for part in self.parts:
                part.store.weight = self._store.weight
                part.catch_up()
        except (TimedOut, Unavailable) as error:
            self._fail(error)

    def current_step(self) -> int:
        """Rounds since the beginning of the run, of all parts."""
        return sum(part.store.round for part in self.parts)

    def turn(self) -> Fragment:
        """The part whose turn it is."""
        if len(self.parts) < len(self._stores):
            raise InputError(
                f"{len(self.parts)} of {len(self._stores)} fragments were registered: the run is not joined",
                hint="torchft's DiLoCo registers each fragment, its LocalSGD none",
            )
        return self.parts[self.current_step() % len(self.parts)]

    def finish(self, part: Fragment) -> None:
        """Make the round of a part if there is none yet. What is not sent stays owed.

        Raises:
            InputError: a value is NaN or infinite.
            AnotherRun: another run has this name, or another process this rank.
        """
        if not part.is_waited_for:
            return
        if self._error is not None:
            part.keep()
            return
        try:
            part.average()
        except (TimedOut, Unavailable) as error:
            self._fail(error)

    def should_commit(self) -> bool:
        """Whether the outer optimizer may use what was averaged."""
        return self._error is None

    def errored(self) -> RemudaError | None:
        """Why not."""
        return self._error

    def num_participants(self) -> int:
        """Copies in the newest round that this one knows of."""
        return max((part.store.participants for part in self.parts), default=0)

    def close(self, *, leave: bool = True) -> None:
        """End. `leave`: nobody waits for this copy any more."""
        for part in self.parts:
            part.store.close(leave=leave)

    def _fail(self, error: RemudaError) -> None:
        self._error = error
        log.warning("not committed, and kept for the next round: %s", error.message)
