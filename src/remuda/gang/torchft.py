"""The manager that torchft's `local_sgd.DiLoCo` takes, over an object store: no lighthouse, no process group.

    manager = Manager(ObjectStoreAllReduce(codec="int8"), [model], outer)
    with manager, DiLoCo(manager, [model], inner, outer, sync_every=500):
        ...

torch is imported by what needs it. The order of torchft's calls is written down in `fragment`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from remuda.base.errors import InputError
from remuda.gang.fragment import Fragments
from remuda.gang.models import TorchParameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from remuda.base.errors import RemudaError
    from remuda.gang.allreduce import ObjectStoreAllReduce
    from remuda.gang.objects.codec import Floats

_FRAGMENT: Final = "StreamingDiLoCoFragment_"
"""What the names begin with under which torchft registers its fragments, in their order."""
_PARAMETERS: Final = "parameters"
_WHOLE, _SCALAR = "outer.", "outer-scalar."


class Manager:
    """Takes the place of `torchft.Manager`. The run is joined when `DiLoCo` is made, which sets the parameters.

    A copy that is started again begins with the shared parameters and the outer optimizer of the last round; all else
    that is registered is left as it is. A round that fails (copies missing, the store away) is not committed: torchft
    goes back to the shared parameters, and what this copy gave is part of its next contribution.

    Args:
        store: the rounds; not open yet.
        model_fragments: those that `DiLoCo` is given, in the same order.
        outer_optimizer: the one, or the list of one a fragment, that `DiLoCo` is given.

    Raises:
        InputError: a parameter is sharded, or no array of floats, or there are not as many optimizers as fragments.
    """

    #: Read by torchft, which takes no manager that looks for others while a step goes on.
    _use_async_quorum = False

    def __init__(self, store: ObjectStoreAllReduce, model_fragments: Sequence[Any], outer_optimizer: Any) -> None:
        self._modules = list(model_fragments)
        several = isinstance(outer_optimizer, (list, tuple))
        self._optimizers = list(outer_optimizer) if several else [outer_optimizer] * len(self._modules)
        if not self._modules or len(self._optimizers) != len(self._modules):
            raise InputError(f"{len(self._optimizers)} outer optimizers for {len(self._modules)} fragments")
        for module in self._modules:
            _refuse_shards(module)
        self._fragments = Fragments(store, len(self._modules))

    def register_state_dict_fn(
        self, key: str, load_state_dict: Callable[[Any], None], state_dict: Callable[[], Any]
    ) -> None:
        """Note how the shared parameters of a fragment are read and set; with the last one the run is joined.

        Raises what `ObjectStoreAllReduce.allreduce` raises.
        """
        if key.startswith(_FRAGMENT):
            number = len(self._fragments.parts)
            if number == len(self._modules):
                raise InputError(f"{key} is one fragment more than the {number} that the manager was given")
            shared = _SharedParameters(self._modules[number], self._optimizers[number], load_state_dict, state_dict)
            self._fragments.add(shared)

    def allow_state_dict_read(self) -> None:
        """Nobody but this process reads its state."""

    def disallow_state_dict_read(self) -> None:
        """Nobody but this process reads its state."""

    def start_quorum(self, **_: Any) -> None:
        """Come to where the other copies are."""
        self._fragments.start_quorum()

    def current_step(self) -> int:
        """Rounds that were committed, of all fragments."""
        return self._fragments.current_step()

    def allreduce(self, tensor: Any, should_quantize: bool = False) -> Work:  # noqa: ARG002
        """Note a tensor of the fragment whose turn it is; the first `wait` makes one round for all of them.

        Args:
            tensor: becomes the mean.
            should_quantize: torchft's own; here the store's codec says how values travel.
        """
        part = self._fragments.turn()
        work = Work(tensor, lambda: self._fragments.finish(part))
        part.collect(_Tensor(tensor))
        return work

    def should_commit(self, timeout: Any = None) -> bool:  # noqa: ARG002
        """Whether the round came to its end, so that the outer optimizer may go on with its mean."""
        return self._fragments.should_commit()

    def errored(self) -> RemudaError | None:
        """Why the newest round did not."""
        return self._fragments.errored()

    def num_participants(self) -> int:
        """Copies in the newest round that this one knows of."""
        return self._fragments.num_participants()

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002
        """Leave the run: nobody waits for this copy any more."""
        self._fragments.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fragments.close(leave=error is None)


class Work:
    """What `allreduce` gives back; as much of torch's own as torchft uses."""

    def __init__(self, tensor: Any, finish: Callable[[], None]) -> None:
        self._tensor, self._finish = tensor, finish
        self._future: Any = None
        self._over = False

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002
        """Until the tensor is the mean. Raises what `ObjectStoreAllReduce.allreduce` raises of lasting mistakes."""
        self._finish()
        if self._future is not None and not self._over:
            self._future.set_result(self._tensor)
        self._over = True
        return True

    def get_future(self) -> Any:
        """A `torch.futures.Future` that has its result when `wait` returns."""
        if self._future is None:
            import torch

            self._future = torch.futures.Future()
        return self._future


class _Tensor:
    """A tensor of torch as a piece of the vector."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.size = int(tensor.numel())

    def read(self, out: Floats) -> None:
        import torch

        torch.from_numpy(out).view(self._tensor.shape).copy_(self._tensor.detach())

    def write(self, values: Floats) -> None:
        import torch

        with torch.no_grad():
            self._tensor.copy_(torch.from_numpy(values).view(self._tensor.shape))


class _SharedParameters:
    """A fragment's shared parameters, which torchft keeps, and the optimizer that moves them."""

    def __init__(
        self, module: Any, optimizer: Any, load: Callable[[Any], None], save: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._parameters = dict(module.named_parameters())
        self._optimizer, self._load_state_dict, self._state_dict = optimizer, load, save
        self.layout = TorchParameters(module).layout

    def step(self, mean: Floats) -> None:
        import torch

        ahead = self._ahead()
        outside = [one for group in self._optimizer.param_groups for one in group["params"]]
        grads = [one.grad for one in outside]
        with torch.no_grad():
            for one in outside:
                one.grad = None
            shared = self._state_dict()["original_parameters"]
            for name, place, shape in self.layout.places():
                parameter = self._parameters[name]
                parameter.copy_(shared[name])
                parameter.grad = torch.from_numpy(mean[place]).view(shape).to(parameter, copy=True)
            self._optimizer.step()
            for one, grad in zip(outside, grads, strict=True):
                one.grad = grad
        self._set({name: one.detach().clone() for name, one in self._parameters.items()}, ahead)

    def state(self) -> Mapping[str, Floats]:
        shared = self._state_dict()["original_parameters"]
        arrays = {_PARAMETERS: np.empty(self.layout.elements, np.float32)}
        for name, place, _ in self.layout.places():
            _Tensor(shared[name]).read(arrays[_PARAMETERS][place])
            for key, value in self._optimizer.state.get(self._parameters[name], {}).items():
                if value is None:
                    continue
                is_whole = getattr(value, "shape", ()) == self._parameters[name].shape
                array = arrays.setdefault(
                    (_WHOLE if is_whole else _SCALAR) + key, np.zeros(self.layout.elements, np.float32)
                )
                if is_whole:
                    _Tensor(value).read(array[place])
                else:
                    array[place] = float(value)
        return arrays

    def load(self, arrays: Mapping[str, Floats]) -> None:
        import torch

        ahead = self._ahead()
        shared = {}
        for name, place, shape in self.layout.places():
            parameter = self._parameters[name]
            shared[name] = torch.from_numpy(arrays[_PARAMETERS][place]).view(shape).to(parameter, copy=True)
            said = self._optimizer.state[parameter]
            said.clear()
            for key, array in arrays.items():
                if key.startswith(_WHOLE):
                    said[key.removeprefix(_WHOLE)] = torch.from_numpy(array[place]).view(shape).to(parameter, copy=True)
                elif key.startswith(_SCALAR) and place.stop > place.start:
                    said[key.removeprefix(_SCALAR)] = torch.tensor(float(array[place.start]))
        self._set(shared, ahead)

    def _ahead(self) -> dict[str, Any]:
        """How far this copy came from the shared parameters."""
        shared = self._state_dict()["original_parameters"]
        return {name: one.detach() - shared[name].to(one.device) for name, one in self._parameters.items()}

    def _set(self, shared: Mapping[str, Any], ahead: Mapping[str, Any]) -> None:
        import torch

        self._load_state_dict({"original_parameters": shared, "outer_optimizer": self._optimizer.state_dict()})
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(shared[name] + ahead[name])


def _refuse_shards(module: Any) -> None:
    for name, parameter in module.named_parameters():
        if hasattr(parameter, "placements"):
            raise InputError(
                f"parameter {name} is a DTensor, of which torchft gives each process its part",
                hint="use remuda.gang.DiLoCo for a copy of several processes",
            )
