"""Torch modules in place of arrays, and torchft's own DiLoCo over the store; `make gang-torch` runs it."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import torch
from torchft.local_sgd import DiLoCo as TheirDiLoCo

from remuda.gang import DiLoCo, ObjectStoreAllReduce
from remuda.gang.outer import Momentum
from remuda.gang.torchft import Manager

EVERY = 4


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


class Copy:
    """One copy, trained by torchft's DiLoCo, or by ours."""

    def __init__(self, url: str, rank: int, parts: int = 1, copies: int = 2, **options: Any) -> None:
        torch.nn.init.constant_((first := torch.nn.Linear(6, 8)).bias, 0.1)
        for number, layer in enumerate([first, second := torch.nn.Linear(8, 1)]):
            torch.nn.init.trunc_normal_(layer.weight, generator=torch.Generator().manual_seed(number))
        torch.nn.init.zeros_(second.bias)
        self.model = torch.nn.Sequential(first, torch.nn.Tanh(), second)
        self.fragments = [self.model] if parts == 1 else [first, second]
        self.inner = torch.optim.SGD(self.model.parameters(), lr=1e-2)
        self.store = ObjectStoreAllReduce(
            url, run_id="run", rank=rank, world_size=copies,
            **{"sleep": lambda seconds: time.sleep(seconds / 100), "timeout": 60, **options},
        )  # fmt: skip
        self._data = torch.Generator().manual_seed(rank)

    def step(self) -> None:
        x = torch.randn(16, 6, generator=self._data)
        self.inner.zero_grad()
        ((self.model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
        self.inner.step()

    def theirs(self, rounds: int, **options: Any) -> Copy:
        outer = [torch.optim.SGD(one.parameters(), lr=0.7, momentum=0.9, nesterov=True) for one in self.fragments]
        self.manager = Manager(self.store, self.fragments, outer)
        every = EVERY * len(self.fragments)
        diloco = TheirDiLoCo(self.manager, self.fragments, self.inner, outer, sync_every=every, **options)
        with diloco:
            while self.manager.current_step() < rounds:
                self.step()
        self.shared = [one for part in diloco._fragments for one in part.original_parameters.values()]
        return self

    def ours(self, rounds: int) -> Copy:
        diloco = DiLoCo(self.model, self.inner, self.store, sync_every=EVERY)
        diloco.start()
        while self.store.round < rounds:
            self.step()
            diloco.step()
        self.shared = [one.detach() for one in self.model.parameters()]
        return self


def together(*acts: Any) -> list[Any]:
    """Results of all, called at the same time."""
    results: list[Any] = [None] * len(acts)
    errors: list[BaseException] = []

    def one(number: int) -> None:
        try:
            results[number] = acts[number]()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    if errors:
        raise errors[0]
    return results


def flat(copy: Copy) -> torch.Tensor:
    return torch.cat([one.flatten() for one in copy.shared])


def torchft_does_what_our_own_does() -> None:
    ours = together(*(lambda rank=rank: Copy("memory://ours", rank).ours(6) for rank in range(2)))
    theirs = together(*(lambda rank=rank: Copy("memory://theirs", rank).theirs(6) for rank in range(2)))
    assert torch.equal(flat(theirs[0]), flat(theirs[1]))
    torch.testing.assert_close(flat(theirs[0]), flat(ours[0]), rtol=1e-5, atol=1e-5)
    assert theirs[0].manager.num_participants() == 2
    buckets = together(
        *(lambda rank=rank: Copy("memory://buckets", rank).theirs(6, use_bucketization=True) for rank in range(2))
    )
    assert torch.equal(flat(buckets[0]), flat(theirs[0]))
    # A round is one contribution of each, not one a tensor: the run's own, members and its state beside.
    assert theirs[0].store.counts.puts < 6 * 4 + 12, theirs[0].store.counts


def fragments_late_waits_and_merging() -> None:
    options = {"fragment_sync_delay": 2, "fragment_update_alpha": 0.5, "should_quantize": True}
    both = together(
        *(lambda rank=rank: Copy("memory://parts", rank, 2, codec="int8").theirs(6, **options) for rank in range(2))
    )
    assert torch.equal(flat(both[0]), flat(both[1]))


def a_copy_that_is_started_again_is_where_the_others_are(parts: int) -> None:
    def copy(url: str, rank: int) -> Copy:
        return Copy(f"memory://{url}-{parts}", rank, parts, state_every=2)

    before = together(*(lambda rank=rank: copy("all", rank).theirs(5) for rank in range(2)))
    after = together(*(lambda rank=rank: copy("all", rank).theirs(5) for rank in range(2)))
    assert torch.equal(flat(before[0]), flat(after[0])), parts
    assert torch.equal(flat(after[0]), flat(after[1]))

    # One goes on and one is new: both do the same from there, so momentum, too, was brought to there.
    def is_new_after_five() -> Copy:
        copy("one", 1).theirs(5)
        return copy("one", 1).theirs(8)

    on = together(lambda: copy("one", 0).theirs(8), is_new_after_five)
    assert torch.equal(flat(on[0]), flat(on[1]))


def what_fails_is_not_committed_and_comes_later() -> None:
    early = Copy("memory://late", 0, timeout=0.05)
    outer = torch.optim.SGD(early.model.parameters(), lr=1.0)
    manager = Manager(early.store, early.fragments, outer)
    given = []
    with TheirDiLoCo(manager, early.fragments, early.inner, outer, sync_every=EVERY) as diloco:
        start = [one.clone() for one in early.model.parameters()]
        for _ in range(2):
            for _ in range(EVERY - 1):
                early.step()
            with torch.no_grad():  # The last step of a round, and what it comes to, known from outside.
                early.inner.zero_grad()
                for one in early.model.parameters():
                    one.grad = torch.ones_like(one)
            given.append([a - (b.detach() - 0.01) for a, b in zip(start, early.model.parameters(), strict=True)])
            early.inner.step()
            assert manager.errored() is not None
            assert manager.current_step() == 0
            assert all(torch.equal(a, b) for a, b in zip(start, early.model.parameters(), strict=True))
        # Rank 1 leaves: nobody is waited for. The next round gives what both failed ones had.
        other = ObjectStoreAllReduce("memory://late", run_id="run", rank=1, world_size=2)
        other.open(manager._fragments.parts[0]._shared.layout)
        other.close()
        manager.start_quorum()
        assert manager.errored() is None
        assert manager.current_step() == 1
        owed = manager._fragments.parts[0].store.residual
        moved = [a - b for a, b in zip(start, diloco._fragments[0].original_parameters.values(), strict=True)]
        total = torch.cat([one.flatten() for one in moved]) + torch.from_numpy(owed)
        expected = sum(torch.cat([one.detach().flatten() for one in update]) for update in given)
        torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    steps_of_the_optimizer_are_counted()
    momentum_is_torchs()
    print("torch: as with numpy")
    torchft_does_what_our_own_does()
    fragments_late_waits_and_merging()
    a_copy_that_is_started_again_is_where_the_others_are(1)
    a_copy_that_is_started_again_is_where_the_others_are(2)
    what_fails_is_not_committed_and_comes_later()
    print("torchft's DiLoCo: as our own")
