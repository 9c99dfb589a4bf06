"""How long to wait before trying again. Pure; Python 3.9, standard library only."""

from __future__ import annotations

import binascii


def backoff_s(failures: int, initial_s: float, maximum_s: float, *, key: str = "", jitter: float = 0.2) -> float:
    """Seconds before try number `failures` + 1: exponential, bounded, spread.

    Args:
        failures: consecutive failures so far, 1 or more.
        initial_s: wait after the first failure.
        maximum_s: bound, before jitter.
        key: what waits; equal keys and counts get equal jitter, so that a decision made twice is the same decision.
        jitter: largest share taken off, so that many that failed together do not return together.
    """
    if failures <= 0 or initial_s <= 0:
        return 0.0
    bound = min(maximum_s, initial_s * 2.0 ** min(failures - 1, 60))
    # A checksum spreads well enough and spares the node a crypto library; the factor mixes its low bits up.
    share = (binascii.crc32(f"{key}:{failures}".encode()) * 2654435761 % 2**32) / 2**32
    return bound * (1.0 - jitter * share)
