"""The optimisers of the package."""

from skattn._optimize.levenberg_marquardt import (
    EarlyAbandonment,
    LevenbergMarquardt,
    Minima,
)
from skattn._optimize.monitor import Monitor

__all__ = ["EarlyAbandonment", "LevenbergMarquardt", "Minima", "Monitor"]
