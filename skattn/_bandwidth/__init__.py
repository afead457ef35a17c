"""Choosing the bandwidth."""

from skattn._bandwidth._criteria import CRITERIA
from skattn._bandwidth._neighbors import neighbors_curve, select_neighbors
from skattn._bandwidth.rules import RULES, rule_of_thumb
from skattn._bandwidth._selection import (
    Criterion,
    criterion_curve,
    select_bandwidth,
    share_of_copies,
)

__all__ = [
    "CRITERIA",
    "RULES",
    "Criterion",
    "criterion_curve",
    "neighbors_curve",
    "rule_of_thumb",
    "select_bandwidth",
    "select_neighbors",
    "share_of_copies",
]
