"""A torch module in place of arrays; for an environment with torch: `python -m tests.live.run_gang_torch`."""

from __future__ import annotations

import numpy as np
import torch

from remuda.gang import DiLoCo, ObjectStoreAllReduce
from remuda.gang.outer import Momentum


def steps_of_the_optimizer_are_counted() -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    store = ObjectStoreAllReduce("memory://torch", run_id="run", rank=0, world_size=1)
    with DiLoCo(model, optimizer, store, sync_every=2) as diloco:
        before = model.weight.detach().clone()
        for _ in range(5):
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
        assert (diloco.store.round, diloco.steps) == (2, 5)
        assert not torch.equal(before, model.weight)


def momentum_is_torchs() -> None:
    theirs = torch.nn.Parameter(torch.linspace(-1, 1, 1000))
    sgd = torch.optim.SGD([theirs], lr=0.7, momentum=0.9, nesterov=True)
    ours, momentum = theirs.detach().numpy().copy(), Momentum(0.7, 0.9)
    for number in range(20):
        slope = np.random.default_rng(number).standard_normal(1000).astype(np.float32)
        theirs.grad = torch.from_numpy(slope)
        sgd.step()
        momentum.step(ours, slope)
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-6, atol=1e-5)


if __name__ == "__main__":
    steps_of_the_optimizer_are_counted()
    momentum_is_torchs()
    print("torch: as with numpy")
