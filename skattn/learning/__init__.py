"""Learning what earns weight: everything that trains, on tensors of any device."""

from skattn.learning._device import limited_threads, resolve_device
from skattn.learning._learn import Learned, Settings, descend, leading_axis, learn, rough, score
from skattn.learning._modify import Modified, Modifier, modify
from skattn.learning._objective import Problem

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
