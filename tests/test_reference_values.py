"""Agreement with R np, statsmodels, kerneljax, ksmooth and sm: reference/README.rst."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from definitions import objective

from skattn import NadarayaWatsonRegressor
from skattn._geometry.scaling import spread
from skattn._geometry.training_set import Exclusion
from skattn.kernels import KERNELS

REFERENCE = Path(__file__).parent / "reference"
SOURCES = ["np", "statsmodels", "kerneljax", "ksmooth", "sm"]


@dataclass(frozen=True)
class Golden:
    """One row of a table of reference values."""

    source: str
    version: str
    data: str
    kernel: str
    bandwidth: str
    kind: str
    values: str

    def __str__(self):
        bandwidth = self.bandwidth.replace(" ", ",")
        return f"{self.source}-{self.data}-{self.kernel}-h={bandwidth}-{self.kind}"

    def numbers(self):
        """The values; NaN where the window is empty, which np writes as 0."""
        values = np.array([np.nan if v == "NA" else float(v) for v in self.values.split()])
        return np.where(values == 0.0, np.nan, values) if self.source == "np" else values


def _golden_rows(source):
    with open(REFERENCE / f"{source}.csv", newline="") as file:
        return [Golden(**row) for row in csv.DictReader(file)]


GOLDEN = [row for source in SOURCES for row in _golden_rows(source)]
SELECTED = _golden_rows("selected")


def _table(name):
    return np.loadtxt(REFERENCE / f"{name}.csv", delimiter=",", skiprows=1, ndmin=2)


def _normal_cut_at_four(squared):
    return np.where(squared <= 16.0, -0.5 * squared, -np.inf)


def _kernel_and_bandwidth(golden):
    """Ours for those of a reference value."""
    kernel = golden.kernel
    if golden.source == "ksmooth":
        factor, kernel = {
            "normal": (0.3706506, _normal_cut_at_four),
            "box": (0.5, "uniform"),
        }[kernel]
    else:
        # kerneljax and sm write the Gaussian as np does
        peer = golden.source if golden.source == "statsmodels" else "np"
        factor = KERNELS[kernel].peer_bandwidths[peer]
    return kernel, factor * np.array([float(h) for h in golden.bandwidth.split()])


def _model(golden, bandwidth_error=0.0):
    """Our estimator of a reference value, in the bandwidths of its source."""
    kernel, bandwidth = _kernel_and_bandwidth(golden)
    return NadarayaWatsonRegressor(
        bandwidth * (1.0 + bandwidth_error), kernel=kernel, extrapolation="nan"
    )


def _computed(golden, bandwidth_error=0.0):
    """What we compute for a reference value."""
    table = _table(golden.data)
    X, y = table[:, :-1], table[:, -1]
    model = _model(golden, bandwidth_error).fit(X, y)
    if golden.kind == "query":
        return model.predict(_table(f"{golden.data}_query"))
    if golden.kind == "train":
        return model.predict(X)
    if golden.kind.endswith("_gradient"):
        return _gradient(X, y, model.bandwidth_, golden.kind.removesuffix("_gradient"))
    if golden.kind == "loo":
        return np.array([np.mean((y - model.predict(None)) ** 2)])
    n, trace = len(y), model.effective_dof_
    penalty = (1.0 + trace / n) / (1.0 - (trace + 2.0) / n)
    return np.array([np.log(np.mean((y - model.predict(X)) ** 2)) + penalty])


def _gradient(X, y, bandwidth, criterion):
    """The slope of a criterion in every bandwidth: ours is in their logarithms, in spreads."""
    rows, unit = np.arange(len(y)), y.std()
    scale = spread(X, np.ones(len(y)))
    judged = objective(
        (X - X.mean(axis=0)) / scale,
        (y - y.mean())[:, None] / unit,
        np.ones(len(y)),
        Exclusion(rows, rows + 1, np.full(len(y), float(criterion != "loo"))),
        criterion,
        KERNELS["gaussian"],
    )
    gradient = judged.linearize(np.log(bandwidth / scale)[None])[1][0] / bandwidth
    return gradient if criterion == "aicc" else gradient * unit**2


# Some windows hold no row: predictions are NaN with a warning, tested in test_errors.py.
pytestmark = pytest.mark.filterwarnings("ignore:.*queries have no training row:UserWarning")


@pytest.mark.parametrize("golden", GOLDEN, ids=str)
def test_agrees_with(golden):
    np.testing.assert_allclose(_computed(golden), golden.numbers(), rtol=1e-12, atol=1e-12)


CRITERIA = [row for row in GOLDEN + SELECTED if row.kind in ("loo", "aicc")]


@pytest.mark.parametrize("golden", [row for row in CRITERIA if row.values != "NA"], ids=str)
def test_criterion_curve_agrees_with(golden):
    np.testing.assert_allclose(_curve(golden), golden.numbers(), rtol=1e-11)


def _curve(golden):
    """The criterion at the bandwidth of a reference value."""
    table, (kernel, bandwidth) = _table(golden.data), _kernel_and_bandwidth(golden)
    model = NadarayaWatsonRegressor(1.0, kernel=kernel).fit(table[:, :-1], table[:, -1])
    return model.criterion_curve([bandwidth], criterion=golden.kind)


@pytest.mark.parametrize("golden", SELECTED, ids=str)
def test_selected_bandwidth_is_as_good_as_that_of(golden):
    table, (kernel, theirs) = _table(golden.data), _kernel_and_bandwidth(golden)
    model = NadarayaWatsonRegressor(golden.kind, kernel=kernel)
    model.fit(table[:, :-1], table[:, -1])
    value = model.criterion_curve([theirs], criterion=golden.kind)[0]
    # the minima of compact kernels are kinks, found as sharply as their bandwidth
    rtol = 1e-9 if kernel == "gaussian" else 1e-5
    assert model.criterion_ <= value + rtol * abs(value)
    # all of theirs are global minima, found as sharply as their searches stop
    np.testing.assert_allclose(model.criterion_, value, rtol=1e-6 if kernel == "gaussian" else 1e-5)


def test_reference_tables_are_complete():
    kinds = {source: {} for source in SOURCES}
    for golden in GOLDEN:
        kinds[golden.source].setdefault(golden.kind, []).append(golden)
    counts = {source: {kind: len(rows) for kind, rows in k.items()} for source, k in kinds.items()}
    assert counts == {
        "np": {"query": 8, "train": 8, "loo": 8, "aicc": 8},
        "statsmodels": {"query": 5, "train": 5, "loo": 5, "aicc": 5},
        "kerneljax": {"loo": 5, "aicc": 5, "loo_gradient": 5, "aicc_gradient": 5},
        "ksmooth": {"query": 4},
        "sm": {"query": 1},
    }
    lengths = {("d1", "query"): 23, ("d1", "train"): 50, ("d2", "query"): 20, ("d2", "train"): 100}
    for golden in GOLDEN:
        n_features = len(golden.bandwidth.split())
        default = n_features if golden.kind.endswith("_gradient") else 1
        assert len(golden.numbers()) == lengths.get((golden.data, golden.kind), default)
    sources = [golden.source for golden in SELECTED]
    assert {source: sources.count(source) for source in sources} == {
        "np": 6,
        "statsmodels": 4,
        "sm": 2,
    }


@pytest.mark.parametrize(
    "golden", [row for row in GOLDEN if row.source in ("np", "statsmodels")], ids=str
)
def test_a_bandwidth_one_percent_off_is_told_apart(golden):
    error = np.abs(_computed(golden, bandwidth_error=0.01) - golden.numbers())
    assert np.nanmax(error) > 1e-4


def test_another_kernel_is_told_apart():
    golden = next(row for row in GOLDEN if row.kernel == "epanechnikov" and row.kind == "query")
    table = _table(golden.data)
    model = _model(golden).set_params(kernel="biweight").fit(table[:, :-1], table[:, -1])
    error = np.abs(model.predict(_table(f"{golden.data}_query")) - golden.numbers())
    assert np.nanmax(error) > 0.01


def test_windows_empty_in_r_are_nan_here():
    tables = [row for row in GOLDEN if np.isnan(row.numbers()).any()]
    assert {row.source for row in tables} == {"np", "ksmooth"}
    for golden in tables:
        missing = np.isnan(golden.numbers())
        np.testing.assert_array_equal(np.isnan(_computed(golden)), missing)
