"""What the vector is made of: named parameters one behind the other, and the shards that it is cut into."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from remuda.base.errors import InputError
from remuda.gang.objects.codec import BLOCK, PIECE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.gang.objects.codec import Floats


#: Float32, in which sums are made, has room for no more beside the values themselves.
LEAST_WEIGHT, MOST_WEIGHT = 1e-12, 1e12
#: A quarter of the largest float32, as what a rank still owes comes on top.
_LARGEST_SUM: Final = float(np.finfo(np.float32).max) / 4


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the parameters, in the order in which they lie in the vector."""

    parameters: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def elements(self) -> int:
        """Values of the vector."""
        return sum(math.prod(shape) for _, shape in self.parameters)

    @property
    def digest(self) -> str:
        """The same for the same names, shapes and order; hexadecimal SHA-256."""
        told = json.dumps([[name, list(shape)] for name, shape in self.parameters], separators=(",", ":"))
        return hashlib.sha256(told.encode()).hexdigest()

    def places(self) -> Iterable[tuple[str, slice, tuple[int, ...]]]:
        """Each parameter's name, place in the vector and shape."""
        start = 0
        for name, shape in self.parameters:
            stop = start + math.prod(shape)
            yield name, slice(start, stop), shape
            start = stop

    def name_of(self, element: int) -> str:
        """Where a value belongs, `parameter[index]`."""
        for name, place, shape in self.places():
            if place.start <= element < place.stop:
                index = np.unravel_index(element - place.start, shape) if shape else ()
                return f"{name}[{', '.join(str(int(part)) for part in index)}]"
        return f"element {element}"


def of_vector(elements: int) -> Layout:
    """A vector without names."""
    return Layout((("vector", (elements,)),))


def bounds(elements: int, shards: int) -> list[tuple[int, int]]:
    """Where each shard begins and ends. All but the last are equal and whole blocks; the last may be empty.

    A worker in another language needs the formula: `step = ceil(elements / shards / 256) * 256`.
    """
    step = -(-elements // (shards * BLOCK)) * BLOCK
    return [(min(shard * step, elements), min((shard + 1) * step, elements)) for shard in range(shards)]


def refuse_non_finite(vector: Floats, layout: Layout, what: str, offset: int = 0) -> None:
    """Look for NaN and infinity in `vector`, which begins at `offset` of the layout.

    Raises:
        InputError: there is one; names the parameter.
    """
    for start in range(0, len(vector), PIECE):
        finite = np.isfinite(vector[start : start + PIECE])
        if not finite.all():
            at = start + int(np.argmin(finite))
            raise InputError(
                f"{what} is not finite: {layout.name_of(offset + at)} is {vector[at]}",
                hint="nothing of this round was sent; lower the learning rate or clip the gradients",
            )


def refuse_overflow(vector: Floats, weight: float, ranks: int) -> None:
    """See that the weighted sum over so many ranks stays finite, whoever of them has as large values.

    Raises:
        InputError: it may not, or the weight is none.
    """
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise InputError(
            f"the weight of a contribution is {weight}, and must be from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}",
            hint="nothing of this round was sent; give, for example, the number of samples",
        )
    largest = max(float(vector.max(initial=0.0)), -float(vector.min(initial=0.0)))
    if largest * max(weight, 1.0) * ranks > _LARGEST_SUM:
        raise InputError(
            f"the update has values up to {largest:g}: with the weight {weight:g}, the sum of {ranks} ranks overflows",
            hint="nothing of this round was sent; lower the learning rate or clip the gradients",
        )
