"""The plan: which engine computes what."""

from __future__ import annotations

from skattn._attention._attention import Attention, Products
from skattn._attention._moments import Want
from skattn._attention.engines.dense import Dense
from skattn._attention.engines.engine import Engine
from skattn._attention.engines.exact import Exact

__all__ = ["ENGINES", "choose_engine"]

# A new engine is one entry.
ENGINES: dict[str, Engine] = {engine.name: engine for engine in (Dense(), Exact())}


def choose_engine(attention: Attention, products: Products, want: Want, algorithm: str) -> Engine:
    """The engine of least predicted cost, or the one that is named.

    Parameters
    ----------
    attention : Attention
        What weight each key has.
    products : Products
        Columns to be summed.
    want : Want
        Sums of squares, or slopes, besides.
    algorithm : str
        "auto" or the name of an engine.

    Raises
    ------
    ValueError
        If the engine that is named cannot compute what is wanted.
    """
    if algorithm != "auto":
        engine = ENGINES[algorithm]
        if reason := engine.supports(attention, products, want):
            raise ValueError(
                f"algorithm={algorithm!r} cannot compute this: {reason}. Use algorithm='auto'."
            )
        return engine
    able = [each for each in ENGINES.values() if each.supports(attention, products, want) is None]
    return min(able, key=lambda each: each.cost(attention, products, want))
