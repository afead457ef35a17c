"""Choosing the bandwidth."""

from skattn._bandwidth.criteria import CRITERIA, Criterion
from skattn._bandwidth.neighbors import neighbors_curve, select_neighbors
from skattn._bandwidth.objective import SelectionSettings
from skattn._bandwidth.rules import RULES, rule_of_thumb
from skattn._bandwidth.selection import (
    Selected,
    criterion_curve,
    select_bandwidth,
    share_of_copies,
)

__all__ = [
    "CRITERIA",
    "RULES",
    "Criterion",
    "Selected",
    "SelectionSettings",
    "criterion_curve",
    "neighbors_curve",
    "rule_of_thumb",
    "select_bandwidth",
    "select_neighbors",
    "share_of_copies",
]
