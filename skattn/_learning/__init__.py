"""Learning what earns weight: everything that trains, on tensors of any device."""

from skattn._learning._device import limited_threads, resolve_device
from skattn._learning._learn import Learned, Settings, descend, leading_axis, learn, rough, score
from skattn._learning._modify import Modified, Modifier, modify
from skattn._learning._objective import Problem

__all__ = [
    "Learned",
    "Modified",
    "Modifier",
    "Problem",
    "Settings",
    "descend",
    "leading_axis",
    "learn",
    "limited_threads",
    "modify",
    "resolve_device",
    "rough",
    "score",
]
