"""A torch module that several processes hold together (torchrun): DDP, or DTensors as FSDP2's `fully_shard` makes them.

Process 0 has all parameters as one vector and is the only one that speaks to the store; the others wait for it.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError, RemudaError
from remuda.gang.objects.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.gang.objects.codec import Floats

_HINT: Final = "shard it with fully_shard (FSDP2) over all processes of the copy, or wrap the module with DDP"
_PATIENCE: Final = timedelta(days=7)
"""For others while process 0 takes part in a round: that one has its own limit."""


def is_one_of_several() -> bool:
    """Whether this process is one of several of its copy."""
    import torch.distributed as dist

    return bool(dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


class SharedParameters:
    """Parameters of a module of several processes. All of them make and call it, in the same order.

    Raises:
        InputError: a parameter is held in a way that is not known; all processes raise it.
    """

    def __init__(self, module: Any) -> None:
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        if isinstance(module, DistributedDataParallel):
            module = module.module
        self._parameters = dict(module.named_parameters())
        self.layout = Layout(tuple((name, tuple(one.shape)) for name, one in self._parameters.items()))
        self.speaks = dist.get_rank() == 0
        # Others wait for the round of process 0 in this one; the limits of the training's own group are shorter.
        self._waiting = dist.new_group(backend="gloo", timeout=_PATIENCE)
        told = {name: _told(one) for name, one in self._parameters.items()}
        all_told: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(all_told, told, group=self._waiting)
        refuse_different(all_told)

    def read(self, out: Floats) -> None:
        """Copy all parameters into (elements,) float32 in the process that speaks; the others take part."""
        import torch

        with torch.no_grad():
            for name, place, shape in self.layout.places():
                one = self._parameters[name].detach()
                whole = one.full_tensor() if _is_sharded(one) else one
                if self.speaks:
                    torch.from_numpy(out[place]).view(shape).copy_(whole)

    def write(self, vector: Floats) -> None:
        """Set all parameters, in place, in their own types, from the vector of the process that speaks."""
        import torch
        import torch.distributed as dist
        from torch.distributed.tensor import distribute_tensor

        with torch.no_grad():
            for name, place, shape in self.layout.places():
                one = self._parameters[name]
                local = one.to_local() if _is_sharded(one) else one
                whole = torch.empty(shape, dtype=one.dtype, device=local.device)
                if self.speaks:
                    whole.copy_(torch.from_numpy(vector[place]).view(shape))
                dist.broadcast(whole, 0)
                if _is_sharded(one):
                    # All have the whole: each takes its part without asking anybody.
                    part = distribute_tensor(whole, one.device_mesh, one.placements, src_data_rank=None)
                    local.copy_(part.to_local())
                else:
                    local.copy_(whole)

    def share(self, act: Callable[[], int]) -> int:
        """Do `act` in the process that speaks, and give all processes its number, or its error."""
        import torch.distributed as dist

        said: list[Any] = [None]
        error: RemudaError | None = None
        if self.speaks:
            try:
                said[0] = act()
            except RemudaError as caught:
                error, said[0] = caught, (caught.message, caught.hint, caught.exit_code)
            except BaseException as caught:
                said[0] = (f"{type(caught).__name__}: {caught}", "", RemudaError.exit_code)
                dist.broadcast_object_list(said, 0, group=self._waiting)
                raise
        dist.broadcast_object_list(said, 0, group=self._waiting)
        if error is not None:
            raise error
        if isinstance(said[0], tuple):
            raise Elsewhere(*said[0])
        return int(said[0])


class Elsewhere(RemudaError):
    """What process 0 of this copy raised. `exit_code` is that of its error."""

    def __init__(self, message: str, hint: str, exit_code: int) -> None:
        super().__init__(f"process 0 of this copy: {message}", hint=hint)
        self.exit_code = exit_code  # type: ignore[misc]


def refuse_different(told: list[dict[str, str]]) -> None:
    """Look whether all processes hold the same parameters, and in a way that is known. Pure.

    Args:
        told: by process, what `_told` says of each parameter.

    Raises:
        InputError: they do not; names the first parameter.
    """
    for name in dict.fromkeys(name for one in told for name in one):
        said = [one.get(name) for one in told]
        refused = next((text for text in said if text and text.startswith("!")), None)
        if refused:
            raise InputError(f"parameter {name} {refused[1:]}", hint=_HINT)
        if None in said:
            raise InputError(f"parameter {name} is not in all processes of the copy", hint=_HINT)
        if len(set(said)) > 1:
            raise InputError(f"parameter {name} is not a DTensor and differs between processes of the copy", hint=_HINT)


def _told(parameter: Any) -> str:
    """What has to be the same in all processes; what begins with `!` is refused."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import Replicate, Shard

    if not parameter.is_floating_point():
        return f"!is of {parameter.dtype}; floats are averaged"
    if parameter.is_meta:
        return "!has no values yet: it is on the meta device"
    if _is_sharded(parameter):
        strange = [one for one in parameter.placements if type(one) not in (Shard, Replicate)]
        if strange:
            return f"!is placed as {strange[0]}, and only Shard and Replicate are known"
        if parameter.device_mesh.size() != dist.get_world_size():
            return f"!lies on {parameter.device_mesh.size()} of the {dist.get_world_size()} processes of the copy"
        return f"{tuple(parameter.shape)} {parameter.dtype} {parameter.placements}"
    values = parameter.detach().to("cpu", torch.float32).contiguous().numpy().tobytes()
    return f"{tuple(parameter.shape)} {parameter.dtype} {hashlib.sha256(values).hexdigest()}"


def _is_sharded(parameter: Any) -> bool:
    return hasattr(parameter, "placements")
