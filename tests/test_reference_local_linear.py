"""Lines, slopes and varying bandwidths as R and statsmodels have them: reference/README.rst."""

import csv
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from skattn import NadarayaWatsonRegressor
from skattn.kernels import KERNELS

REFERENCE = Path(__file__).parent / "reference"
SOURCES = ["np", "np_neighbors", "statsmodels", "sm", "loess", "locfit", "locpoly"]


@dataclass(frozen=True)
class Golden:
    """One row of a table of reference values."""

    source: str
    version: str
    data: str
    degree: str
    type: str
    kernel: str
    bandwidth: str
    kind: str
    values: str

    def __str__(self):
        bandwidth = self.bandwidth.replace(" ", ",")
        names = [self.source, self.data, f"degree{self.degree}", self.type, self.kernel]
        return "-".join([*names, bandwidth, self.kind])

    def numbers(self):
        """The values; NaN where there is none."""
        return np.array([np.nan if v == "NA" else float(v) for v in self.values.split()])


def _golden_rows(table):
    with open(REFERENCE / f"local_{table}.csv", newline="") as file:
        return [Golden(**row) for row in csv.DictReader(file)]


TABLES = {table: _golden_rows(table) for table in SOURCES}
GOLDEN = [row for table in SOURCES for row in TABLES[table] if table != "locpoly"]
BINNED = TABLES["locpoly"]
SELECTED = _golden_rows("selected")


@cache
def _table(name):
    return np.loadtxt(REFERENCE / f"{name}.csv", delimiter=",", skiprows=1, ndmin=2)


def _data(golden):
    table = _table(golden.data)
    return table[:, :-1], table[:, -1]


def _queries(golden):
    queries = _table(f"{golden.data}_query")
    if golden.kind != "inside":
        return queries
    X = _data(golden)[0]
    return queries[((queries >= X.min(axis=0)) & (queries <= X.max(axis=0))).all(axis=1)]


def _epanechnikov_of_np(squared):
    """Of unit variance: the support is √5 bandwidths either side."""
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(1.0 - squared / 5.0, 0.0))


def _gaussian_of_locfit(squared):
    """2.5 standard deviations in a bandwidth."""
    return -0.5 * 2.5**2 * squared


def _spread_of_loess(X):
    """Standard deviations with a tenth trimmed at either end; loess scales several features."""
    trim = int(np.ceil(0.1 * len(X)))
    return np.sort(X, axis=0)[trim:-trim].std(axis=0, ddof=1) if X.shape[1] > 1 else np.ones(1)


@dataclass(frozen=True)
class Ours:
    """Our parameters for those of a reference value.

    Training rows that are given as queries count themselves as neighbours; rows that stand for
    themselves (in leverages, criteria, leave-one-out) do not.
    """

    kernel: object
    bandwidth: object
    adaptive: str | None = None
    of_queries: int | None = None
    of_rows: int | None = None
    of_itself: int | None = None


def _ours(golden):
    numbers = np.array([float(number) for number in golden.bandwidth.split()])
    if golden.type == "fixed":
        peer = "np" if golden.source == "sm" else golden.source
        return Ours(golden.kernel, numbers * KERNELS[golden.kernel].peer_bandwidths[peer])
    if golden.type == "h":
        name, factor = {"gauss": ("gaussian", 0.4), "tcub": ("tricube", 1.0)}.get(
            golden.kernel, ("epanechnikov", 1.0)
        )
        return Ours(name, factor * numbers)
    if golden.source == "np":
        kernel = golden.kernel if golden.kernel == "gaussian" else _epanechnikov_of_np
        k = int(numbers[0])
        if golden.type == "adaptive_nn":
            return Ours(kernel, 1.0, "key", k, k, k)
        return Ours(kernel, 1.0, "query", k, k + 1, k)
    # loess and locfit count the point itself
    X = _data(golden)[0]
    k = int(np.floor(len(X) * numbers[0] + 1e-5))
    kernels = {"gauss": _gaussian_of_locfit, "tcub": "tricube", "epan": "epanechnikov"}
    kernel = kernels.get(golden.kernel, golden.kernel)
    return Ours(kernel, _spread_of_loess(X), "query", k, k, k - 1)


def _estimator(golden, n_neighbors, bandwidth_error=0.0, more_neighbors=0):
    ours = _ours(golden)
    if n_neighbors is not None:
        n_neighbors += more_neighbors
    return NadarayaWatsonRegressor(
        ours.bandwidth * (1.0 + bandwidth_error),
        kernel=ours.kernel,
        degree=int(golden.degree),
        adaptive=ours.adaptive,
        n_neighbors=n_neighbors,
        extrapolation="nan",
    )


def _criterion(golden, y, fitted, trace):
    """gcv and aicc of residuals and the trace of the smoother matrix."""
    n, square = len(y), np.mean((y - fitted) ** 2)
    if golden.kind == "gcv":
        return square / (1.0 - trace / n) ** 2
    return np.log(square) + (1.0 + trace / n) / (1.0 - (trace + 2.0) / n)


def _computed(golden, **change):
    """What we compute for a reference value."""
    (X, y), queries, ours = _data(golden), _queries(golden), _ours(golden)
    of_queries = _estimator(golden, ours.of_queries, **change).fit(X, y)
    of_rows = _estimator(golden, ours.of_rows, **change).fit(X, y)
    of_itself = _estimator(golden, ours.of_itself, **change).fit(X, y)
    match golden.kind:
        case "query" | "inside":
            return of_queries.predict(queries)
        case "train":
            return of_rows.predict(X)
        case "slope_x1" | "slope_x2":
            return of_queries.predict_gradient(queries)[:, int(golden.kind[-1]) - 1]
        case "slope_se_x1" | "slope_se_x2":
            rows = _slope_rows(of_queries, X, queries)[:, :, int(golden.kind[-1]) - 1]
            return np.sqrt(_variance_of_np(golden) * np.sum(rows**2, axis=0))
        case "se" if golden.source == "np":
            norms = np.sum(of_queries.attention_weights(queries) ** 2, axis=1)
            return np.sqrt(_variance_of_np(golden) * norms)
        case "loo":
            return np.mean((y - of_itself.predict(None)) ** 2)
        case "aicc" | "gcv":
            return _criterion(golden, y, of_rows.predict(X), of_itself.effective_dof_)
        case "leverage":
            return of_itself.leverage()
        case "trace":
            return of_itself.effective_dof_
    return _of_smoother_matrix(golden, of_queries, of_rows)


def _of_smoother_matrix(golden, of_queries, of_rows):
    """Norms and traces that loess and locfit read off the smoother matrix."""
    (X, y), queries = _data(golden), _queries(golden)
    S = of_rows.attention_weights(X)
    n, residuals = len(y), y - S @ y
    rest = (np.eye(n) - S).T @ (np.eye(n) - S)
    match golden.kind:
        case "norm":
            return np.sqrt(np.sum(S**2, axis=1))
        case "trace_squared":
            return np.sum(S**2)
        case "delta1":
            return np.trace(rest)
        case "delta2":
            return np.sum(rest**2)
        case "sigma2":
            return residuals @ residuals / (n - 2.0 * np.trace(S) + np.sum(S**2))
    sigma = np.sqrt(residuals @ residuals / np.trace(rest))
    if golden.kind == "sigma":
        return sigma
    assert golden.kind == "se"
    return sigma * np.sqrt(np.sum(of_queries.attention_weights(queries) ** 2, axis=1))


def _slope_rows(model, X, queries):
    """What the slopes at the queries are of each target: they are linear in the targets."""
    return np.array([model.fit(X, unit).predict_gradient(queries) for unit in np.eye(len(X))])


def _variance_of_np(golden):
    """The variance np takes for its standard errors: around the weighted mean, at any degree."""
    (X, y), queries, ours = _data(golden), _queries(golden), _ours(golden)
    scale = np.broadcast_to(np.asarray(ours.bandwidth), X.shape[1])
    distances = np.linalg.norm((queries[:, None] - X) / scale, axis=2)
    if ours.adaptive == "query":
        distances /= np.sort(distances, axis=1)[:, [ours.of_queries - 1]]
    radii = np.ones(len(X))
    if ours.adaptive == "key":
        between = np.linalg.norm((X[:, None] - X) / scale, axis=2)
        radii = np.sort(between, axis=1)[:, ours.of_queries]  # the nearest is the key itself
    squared = (distances / radii) ** 2
    if golden.kernel == "gaussian":
        weights = np.exp(-0.5 * squared) / radii
    else:
        support = 1.0 if ours.adaptive is None else 5.0
        weights = np.maximum(1.0 - squared / support, 0.0) / radii
    weights /= weights.sum(axis=1, keepdims=True)
    return weights @ y**2 - (weights @ y) ** 2


def _tolerance(golden):
    """Rounding, and the ridge of local lines, far from the rows of compact kernels above all."""
    if golden.degree == "0":
        return 1e-11 if golden.kind.startswith("slope") else 1e-12
    is_anywhere = golden.kind in ("query", "se", "slope_x1", "slope_x2")
    return 1e-8 if golden.source == "np" and is_anywhere else 1e-10


# One window holds no row: predictions are NaN with a warning, tested in test_errors.py.
pytestmark = pytest.mark.filterwarnings("ignore:.*queries have no training row:UserWarning")


@pytest.mark.parametrize("golden", GOLDEN, ids=str)
def test_agrees_with(golden):
    tolerance = _tolerance(golden)
    computed = np.atleast_1d(_computed(golden))
    np.testing.assert_allclose(computed, golden.numbers(), rtol=tolerance, atol=tolerance)


CRITERIA = [row for row in GOLDEN + SELECTED if row.kind in ("loo", "gcv", "aicc")]


@pytest.mark.parametrize("golden", [row for row in CRITERIA if row.values != "NA"], ids=str)
def test_criterion_curve_agrees_with(golden):
    rtol = 1e-11 if golden.degree == "0" else 1e-10
    np.testing.assert_allclose([_curve(golden)], golden.numbers(), rtol=rtol)


def _curve(golden):
    """The criterion at the bandwidth, or number of neighbours, of a reference value."""
    ours = _ours(golden)
    model = _estimator(golden, ours.of_itself).fit(*_data(golden))
    chosen = ours.bandwidth if ours.adaptive is None else ours.of_itself
    return model.criterion_curve([chosen], criterion=golden.kind)[0]


@pytest.mark.parametrize(
    "golden", [row for row in GOLDEN if row.kind in ("query", "inside")], ids=str
)
def test_smoother_matrix_gives_the_predictions_of(golden):
    (X, y), ours = _data(golden), _ours(golden)
    S = _estimator(golden, ours.of_queries).fit(X, y).attention_weights(_queries(golden))
    tolerance = _tolerance(golden)
    np.testing.assert_allclose(S @ y, golden.numbers(), rtol=tolerance, atol=tolerance)
    absolute = np.abs(S).sum(axis=1)
    np.testing.assert_allclose(S.sum(axis=1) / absolute, 1.0 / absolute, rtol=0.0, atol=1e-12)
    if golden.degree == "1":  # the smoother matrix reproduces lines
        np.testing.assert_allclose(S @ X, _queries(golden), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("golden", SELECTED, ids=str)
def test_selected_is_as_good_as_that_of(golden):
    ours = _ours(golden)
    model = NadarayaWatsonRegressor(
        golden.kind, kernel=ours.kernel, degree=int(golden.degree), adaptive=ours.adaptive
    )
    model.fit(*_data(golden))
    theirs = _curve(golden)
    assert model.criterion_ <= theirs + 1e-8 * abs(theirs)
    if ours.adaptive is not None:  # a whole number, chosen of all
        assert model.n_neighbors_ == ours.of_itself


CHANGES = {"fixed": {"bandwidth_error": 0.01}, "h": {"bandwidth_error": 0.01}}


@pytest.mark.parametrize(
    "golden", [row for row in GOLDEN if row.kind in ("query", "inside", "loo", "slope_x1")], ids=str
)
def test_one_percent_or_one_neighbour_off_is_told_apart(golden):
    change = CHANGES.get(golden.type, {"more_neighbors": 1})
    error = np.abs(_computed(golden, **change) - golden.numbers())
    assert np.nanmax(error) > 1e-4


# locpoly bins the rows onto a grid and drops cells beyond four bandwidths.


@dataclass(frozen=True)
class Binned:
    """Rows shared out between the two points of a grid either side."""

    points: np.ndarray
    weights: np.ndarray
    sums: np.ndarray
    queries: np.ndarray
    bandwidth: float
    reach: float

    @classmethod
    def of(cls, golden):
        (X, y), bandwidth = _data(golden), float(golden.bandwidth)
        size = int(golden.type.removeprefix("gridsize="))
        step = 5.0 / (size - 1)
        left, right_share = np.divmod(X[:, 0] / step, 1.0)
        weights, sums = np.zeros(size), np.zeros(size)
        for shift, share in ((0, 1.0 - right_share), (1, right_share)):
            np.add.at(weights, left.astype(int) + shift, share)
            np.add.at(sums, left.astype(int) + shift, share * y)
        points = np.linspace(0.0, 5.0, size)
        reach = (np.floor(4.0 * bandwidth / step) + 0.5) * step
        return cls(points, weights, sums, np.arange(51) * ((size - 1) // 50), bandwidth, reach)

    def kernel(self, squared):
        """Gaussian, no weight beyond the reach."""
        return np.where(squared <= (self.reach / self.bandwidth) ** 2, -0.5 * squared, -np.inf)


@pytest.mark.parametrize("golden", BINNED, ids=str)
def test_binned_definition_is_that_of(golden):
    binned = Binned.of(golden)
    fits = []
    for query in binned.points[binned.queries]:
        offsets = binned.points - query
        profile = np.exp(binned.kernel((offsets / binned.bandwidth) ** 2))
        powers = offsets ** np.arange(int(golden.degree) + 1)[:, None]
        gram = (powers * profile * binned.weights) @ powers.T
        fits.append(np.linalg.solve(gram, (powers * profile) @ binned.sums))
    computed = np.array(fits)[:, int(golden.kind == "slope_x1")]
    np.testing.assert_allclose(computed, golden.numbers(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("golden", BINNED, ids=str)
def test_weighted_grid_agrees_with(golden):
    binned = Binned.of(golden)
    kept = binned.weights > 0.0
    targets = binned.sums[kept] / binned.weights[kept]
    model = NadarayaWatsonRegressor(
        binned.bandwidth, kernel=binned.kernel, degree=int(golden.degree)
    )
    model.fit(binned.points[kept, None], targets, sample_weight=binned.weights[kept])
    queries = binned.points[binned.queries, None]
    if golden.kind == "slope_x1":
        computed = model.predict_gradient(queries)[:, 0]
    else:
        computed = model.predict(queries)
    tolerance = 1e-12 if golden.degree == "0" else 1e-10
    np.testing.assert_allclose(computed, golden.numbers(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("golden", [row for row in BINNED if row.bandwidth == "0.3"], ids=str)
def test_fine_grid_is_near(golden):
    queries = np.linspace(0.0, 5.0, 51)[:, None]
    model = NadarayaWatsonRegressor(float(golden.bandwidth), degree=int(golden.degree))
    error = np.abs(model.fit(*_data(golden)).predict(queries) - golden.numbers())
    assert error.max() < 1e-3


def test_reference_tables_are_complete():
    counts = {table: dict(Counter(row.kind for row in rows)) for table, rows in TABLES.items()}
    assert counts == {
        "np": {
            **{"query": 7, "train": 8, "loo": 7, "aicc": 8, "slope_x1": 15, "slope_x2": 4},
            **{"se": 7, "slope_se_x1": 2, "slope_se_x2": 1},
        },
        "np_neighbors": {"query": 16, "train": 8, "loo": 16, "aicc": 16, "slope_x1": 12, "se": 8},
        "statsmodels": {"query": 5, "train": 5, "loo": 5, "slope_x1": 5, "slope_x2": 2},
        "sm": {"query": 1},
        "loess": {
            **{"query": 5, "train": 4, "se": 5, "trace": 5, "trace_squared": 5},
            **{"delta1": 5, "delta2": 5, "sigma": 5},
        },
        "locfit": {
            **{"inside": 12, "train": 12, "norm": 12, "leverage": 12},
            **{"trace": 12, "trace_squared": 12, "sigma2": 12, "gcv": 12},
        },
        "locpoly": {"query": 8, "slope_x1": 2},
    }
    lengths = {
        **{("d1", kind): 23 for kind in ("query", "se", "slope_x1", "slope_se_x1")},
        **{("d1", kind): 50 for kind in ("train", "norm", "leverage")},
        **{("d2", kind): 20 for kind in ("query", "se", "slope_x1", "slope_x2", "slope_se_x2")},
        ("d1", "inside"): 19,
        ("d2", "train"): 100,
    }
    for golden in GOLDEN:
        assert golden.numbers().shape == (lengths.get((golden.data, golden.kind), 1),)
    assert all(golden.numbers().shape == (51,) for golden in BINNED)
    chosen = Counter((row.source, row.data, row.type) for row in SELECTED)
    assert chosen == {
        ("np", "d1", "fixed"): 4,
        ("np", "d1", "generalized_nn"): 4,
        ("np", "d1", "adaptive_nn"): 4,
        ("np", "d2", "fixed"): 2,
        ("statsmodels", "d1", "fixed"): 2,
        ("statsmodels", "d2", "fixed"): 2,
        ("sm", "d1", "fixed"): 2,
    }
