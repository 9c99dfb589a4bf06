"""Parameters of a model as one float32 vector: numpy arrays, or a torch module (then torch is there already)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from remuda.base.errors import InputError
from remuda.gang.objects.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from remuda.gang.objects.codec import Floats


class Parameters(Protocol):
    """What is averaged of a model."""

    layout: Layout
    speaks: bool
    """Whether this process speaks to the store; vectors of others are empty."""

    def read(self, out: Floats) -> None:
        """Copy all parameters into (elements,) float32."""
        ...

    def write(self, vector: Floats) -> None:
        """Set all parameters, in place, in their own types."""
        ...

    def share(self, act: Callable[[], int]) -> int:
        """Do `act` in the process that speaks, and give all processes of the copy its number, or its error."""
        ...


class Alone:
    """A copy of one process."""

    speaks = True

    def share(self, act: Callable[[], int]) -> int:
        """Do `act`."""
        return act()


def parameters_of(model: Any) -> Parameters:
    """The parameters of a torch module, or of a mapping or list of numpy arrays.

    Raises:
        InputError: it is none of these, or a parameter is no array of floats.
    """
    if hasattr(model, "named_parameters"):
        from remuda.gang import torchmodels

        return torchmodels.SharedParameters(model) if torchmodels.is_one_of_several() else TorchParameters(model)
    if isinstance(model, Mapping):
        return ArrayParameters({str(name): array for name, array in model.items()})
    if isinstance(model, Sequence):
        return ArrayParameters({str(index): array for index, array in enumerate(model)})
    raise InputError(
        f"a model is a torch module, or a mapping or list of numpy arrays, not {type(model).__name__}",
        hint="pass the parameters as {'name': array}; they are changed in place",
    )


class ArrayParameters(Alone):
    """Numpy arrays by name, changed in place."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray) or not np.issubdtype(array.dtype, np.floating):
                raise InputError(f"parameter {name} is not a numpy array of floats")
            if not array.flags.writeable:
                raise InputError(f"parameter {name} cannot be written")
        self._arrays = dict(arrays)
        self.layout = Layout(tuple((name, array.shape) for name, array in arrays.items()))

    def read(self, out: Floats) -> None:
        """Copy all parameters into (elements,) float32."""
        for name, place, shape in self.layout.places():
            out[place].reshape(shape)[...] = self._arrays[name]

    def write(self, vector: Floats) -> None:
        """Set all parameters, in place, in their own types."""
        for name, place, shape in self.layout.places():
            self._arrays[name][...] = vector[place].reshape(shape)


class TorchParameters(Alone):
    """Parameters of a torch module, wherever they are. Buffers are not averaged; tied parameters count once."""

    def __init__(self, module: Any) -> None:
        self._parameters = dict(module.named_parameters())
        for name, parameter in self._parameters.items():
            if not parameter.is_floating_point():
                raise InputError(f"parameter {name} is of {parameter.dtype}; floats are averaged")
        self.layout = Layout(tuple((name, tuple(one.shape)) for name, one in self._parameters.items()))

    def read(self, out: Floats) -> None:
        """Copy all parameters into (elements,) float32."""
        import torch

        for name, place, shape in self.layout.places():
            torch.from_numpy(out[place]).view(shape).copy_(self._parameters[name].detach())

    def write(self, vector: Floats) -> None:
        """Set all parameters, in place, in their own types."""
        import torch

        with torch.no_grad():
            for name, place, shape in self.layout.places():
                self._parameters[name].copy_(torch.from_numpy(vector[place]).view(shape))
