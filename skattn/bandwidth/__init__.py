"""Choosing the bandwidth."""

from skattn.bandwidth._criteria import CRITERIA
from skattn.bandwidth._neighbors import neighbors_curve, select_neighbors
from skattn.bandwidth._rules import RULES, deviation, rule_of_thumb, spread
from skattn.bandwidth._selection import (
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
    "deviation",
    "neighbors_curve",
    "rule_of_thumb",
    "select_bandwidth",
    "select_neighbors",
    "share_of_copies",
    "spread",
]
