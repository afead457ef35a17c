"""The contract of engines."""

from __future__ import annotations

from typing import Protocol

from skattn._attention._attention import Attention, Products
from skattn._attention._moments import Moments, Want
from skattn._attention._resources import Resources

__all__ = ["Engine", "Prepared", "reason_against_slopes"]


class Prepared(Protocol):
    """Sums that are ready to be computed, block by block."""

    @property
    def blocks(self) -> list[slice]:
        """Blocks of queries, each computed by one call."""
        ...

    def moments(self, queries: slice) -> Moments:
        """Moments of a block of queries."""
        ...


class Engine:
    """A way to compute sums over keys.

    A new engine sets `name`, says what it `supports` at which `cost`, and defines `moments`; one
    that works block by block overrides `prepare` instead. The plan knows it once its instance is in
    ``skattn._attention._plan.ENGINES``.

    Attributes
    ----------
    name : str
        What users write as `algorithm`.
    """

    name: str

    def supports(self, attention: Attention, products: Products, want: Want) -> str | None:
        """None if the engine can compute what is wanted, else the reason why not.

        Parameters
        ----------
        attention : Attention
            Queries, keys, kernel, and scales if bandwidths vary.
        products : Products
            Columns to be summed.
        want : Want
            Sums of squares, or slopes, besides.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it supports.")

    def cost(self, attention: Attention, products: Products, want: Want) -> float:
        """Predicted time in nanoseconds; parameters as for `supports`."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it costs.")

    def moments(
        self, attention: Attention, products: Products, want: Want, resources: Resources
    ) -> Moments:
        """Moments of all queries.

        Parameters
        ----------
        attention, products, want
            As for `supports`.
        resources : Resources
            Threads, memory and precision allowed.

        Returns
        -------
        Moments
            With `error` where some queries are not as exact as rounding allows: those whose error
            is above the tolerance of `attend` are computed again by the exact engine.
        """
        raise NotImplementedError(f"{type(self).__name__} computes no moments.")

    def prepare(
        self, attention: Attention, products: Products, want: Want, resources: Resources
    ) -> Prepared:
        """Prepare to compute moments: sorts, trees, copies; parameters as for `moments`."""
        return _Whole(self, attention, products, want, resources)


def reason_against_slopes(attention: Attention, products: Products, want: Want) -> str | None:
    """Reason why slopes that are wanted cannot be summed here; None if they can, or are not."""
    if want & Want.SLOPES and (attention.has_scales or products.degree > 0):
        return "slopes are those of weighted means at fixed bandwidths"
    return None


class _Whole:
    """All queries as one block."""

    def __init__(
        self,
        engine: Engine,
        attention: Attention,
        products: Products,
        want: Want,
        resources: Resources,
    ) -> None:
        self.blocks = [slice(0, len(attention.queries))]
        self.compute = lambda: engine.moments(attention, products, want, resources)

    def moments(self, queries: slice) -> Moments:
        """Moments of all queries."""
        return self.compute()
