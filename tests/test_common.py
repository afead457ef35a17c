"""scikit-learn's own checks, over configurations that cover kernels, bandwidths and policies.

The full product of kernels, bandwidths, policies and jobs (the checks' data leave compact kernels
with queries outside, so with "nearest" only) takes minutes:
``SKATTN_ALL_CONFIGURATIONS=1 python -m pytest tests/test_common.py``.
"""

import importlib.util
import itertools
import os

import pytest
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_param_validation,
    parametrize_with_checks,
)

from skattn import Linear, NadarayaWatsonRegressor, ParametricAttentionRegressor
from skattn.kernels import KERNELS


class SquareRoot:
    """A kernel of one's own, whose name is the same in every process."""

    def __call__(self, squared):
        return -(squared**0.5)

    def __repr__(self):
        return "SquareRoot()"


# Their data repeat rows, and sample weights above one do.
pytestmark = pytest.mark.filterwarnings("ignore:.*copies of others:UserWarning")

BANDWIDTHS = ["loo", "scott", 0.7]
POLICIES = ["nearest", "raise"]
CHOICES = {
    "kernel": [*KERNELS, SquareRoot()],
    "bandwidth": ["loo", "gcv", "aicc", "scott", "silverman", 0.7],
    "extrapolation": ["nearest", "nan", "raise"],
    "n_jobs": [None, 2],
}


def covering():
    """Every kernel, and every value of the other parameters with many of them."""
    for i, kernel in enumerate(CHOICES["kernel"]):
        bounded = kernel in KERNELS and KERNELS[kernel].support < float("inf")
        yield NadarayaWatsonRegressor(
            kernel=kernel,
            bandwidth=BANDWIDTHS[i % 3],
            extrapolation="nearest" if bounded else POLICIES[i % 2],
            algorithm=("auto", "dense", "exact")[i % 3],
            n_jobs=(None, 2)[i // 2 % 2],
        )
    yield NadarayaWatsonRegressor(kernel="epanechnikov", bandwidth=4.0, extrapolation="raise")
    yield NadarayaWatsonRegressor(kernel="uniform", bandwidth=3.0, extrapolation="nan")
    yield NadarayaWatsonRegressor(kernel="laplace", bandwidth="silverman", extrapolation="nan")
    yield NadarayaWatsonRegressor(kernel="student", bandwidth="gcv", n_jobs=2)
    yield NadarayaWatsonRegressor(kernel="biweight", bandwidth="aicc", anisotropic=False)
    yield NadarayaWatsonRegressor(bandwidth="loo", anisotropic=False, max_queries=7)
    yield NadarayaWatsonRegressor(degree=1, max_queries=30)
    yield NadarayaWatsonRegressor(degree=1, bandwidth=0.7, kernel="tricube", n_jobs=2)
    yield NadarayaWatsonRegressor(degree=1, bandwidth="aicc", kernel="laplace", max_queries=9)
    yield NadarayaWatsonRegressor(
        adaptive="query", bandwidth=0.7, n_neighbors=4, kernel="epanechnikov"
    )
    yield NadarayaWatsonRegressor(adaptive="key", n_neighbors=2)
    yield NadarayaWatsonRegressor(
        adaptive="query", bandwidth="scott", n_neighbors=1, kernel="tricube"
    )
    yield NadarayaWatsonRegressor(adaptive="key", bandwidth="gcv", degree=1, max_queries=9)


def product():
    for values in itertools.product(*CHOICES.values()):
        parameters = dict(zip(CHOICES, values, strict=True))
        kernel = parameters["kernel"]
        bounded = kernel in KERNELS and KERNELS[kernel].support < float("inf")
        if not bounded or parameters["extrapolation"] == "nearest":
            yield NadarayaWatsonRegressor(**parameters)


CONFIGURATIONS = list(product() if os.environ.get("SKATTN_ALL_CONFIGURATIONS") else covering())


def learned():
    """Metrics, solvers and options of learned attention, where there is PyTorch to learn with."""
    if importlib.util.find_spec("torch") is None:
        return
    from skattn import solvers, variants

    yield ParametricAttentionRegressor()
    yield ParametricAttentionRegressor("scalar", degree=0, kernel="gaussian", algorithm="exact")
    yield ParametricAttentionRegressor("diagonal", kernel="tricube", validation_fraction=0.1)
    yield ParametricAttentionRegressor(Linear(n_components=2, ranks=True), degree=0)
    yield ParametricAttentionRegressor("diagonal", solver="lbfgs", kernel="laplace", n_jobs=2)
    yield ParametricAttentionRegressor(
        "diagonal", init=1.0, solver=solvers.GradientDescent(1e-3), degree=0, alpha=0.0
    )
    yield ParametricAttentionRegressor("diagonal", variant=variants.SampleReweighting())
    yield ParametricAttentionRegressor("diagonal", variant=variants.QueryScale(), degree=0)
    yield ParametricAttentionRegressor(variant=variants.RegionScale(), n_estimators=2)
    yield ParametricAttentionRegressor("diagonal", variant=variants.Mixture(), degree=0)
    quick = solvers.Adam(patience=2, tol=0.1)
    yield ParametricAttentionRegressor("scalar", variant=variants.FixedShare(), solver=quick)
    encoder = variants.Encoder(hidden_layer_sizes=(4,), dropout=0.2)
    yield ParametricAttentionRegressor("diagonal", variant=encoder, solver=quick)


LEARNED = list(learned())


@parametrize_with_checks([NadarayaWatsonRegressor(), *CONFIGURATIONS, *LEARNED])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "estimator", [NadarayaWatsonRegressor(), *CONFIGURATIONS[:3], *LEARNED[:1]], ids=str
)
def test_parameters_are_validated(estimator):
    check_param_validation(type(estimator).__name__, estimator)


@pytest.mark.parametrize("estimator", [NadarayaWatsonRegressor(), *LEARNED[:1]], ids=str)
def test_column_names_are_checked(estimator):
    check_dataframe_column_names_consistency(type(estimator).__name__, estimator)
