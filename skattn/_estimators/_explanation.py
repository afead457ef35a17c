"""What `explain` returns."""

from __future__ import annotations

import numpy as np
from sklearn.utils import Bunch


class Explanation(Bunch):
    """Training rows that made predictions, as arrays; see `explain`."""

    def to_frame(self):
        """All of it as a data frame.

        Returns
        -------
        frame : pandas.DataFrame
            A line for each query and training row, rows of a query by weight, with columns
            "query", "row", "weight", "target" (or "target_0", ... for several outputs) and
            "difference_" followed by the name of each feature.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "explain(...).to_frame() needs pandas, which is not installed: "
                "pip install pandas. The arrays of the explanation are there without it."
            ) from error
        queries, ranks = np.nonzero(self.rows >= 0)
        columns = {
            "query": queries,
            "row": self.rows[queries, ranks],
            "weight": self.weights[queries, ranks],
        }
        targets = self.targets[queries, ranks]
        if targets.ndim == 1:
            columns["target"] = targets
        else:
            columns |= {f"target_{k}": target for k, target in enumerate(targets.T)}
        for j, name in enumerate(self.feature_names):
            columns[f"difference_{name}"] = self.differences[queries, ranks, j]
        return pd.DataFrame(columns)
