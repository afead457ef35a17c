"""Where tensors live."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def limited_threads(n_threads: int) -> Iterator[None]:
    """Keep libraries to some threads meanwhile: many for small tensors wait for each other."""
    with threadpool_limits(limits=n_threads):
        yield


def resolve_device(device: str | None) -> torch.device:
    """The device a parameter names: None and "cpu" are the CPU, "auto" is CUDA where there is one.

    Raises ValueError if the device does not exist here.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rule = f"device must be None, 'cpu', 'cuda', 'cuda:<number>' or 'auto'; got {device!r}."
    try:
        named = torch.device(device or "cpu")
    except RuntimeError as error:
        raise ValueError(rule) from error
    if named.type not in ("cpu", "cuda"):
        raise ValueError(rule)
    if named.type == "cuda" and (named.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device={device!r} is not available: {torch.cuda.device_count()} CUDA devices are "
            "there. Use device='cpu', or 'auto' for a CUDA device where there is one."
        )
    return named
