"""Variants of learned attention: what is read off them, and what they find."""

import pickle
import subprocess
import sys
import warnings
from functools import cache

import numpy as np
import pytest
from definitions import Told
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import r2_score

from skattn import Linear, ParametricAttentionRegressor
from skattn.kernels import KERNELS
from skattn.kernels.student import Student
from skattn.solvers import LBFGS, Adam, GaussNewton, GradientDescent
from skattn.variants import (
    Encoder,
    FixedShare,
    Mixture,
    QueryScale,
    RegionScale,
    SampleReweighting,
)

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*copies of others:UserWarning"),
    pytest.mark.filterwarnings("ignore:Training has not converged"),
]

N = 60
FEW = Adam(learning_rate=0.003, max_iter=8)
CONFIGURATIONS = {
    "sample": {"variant": SampleReweighting()},
    "query scale": {"variant": QueryScale()},
    "region scale": {"variant": RegionScale()},
    "mixture": {"variant": Mixture()},
    "three components": {"variant": Mixture(n_components=3), "metric": "diagonal"},
    "fixed share": {"variant": FixedShare()},
    "one coordinate": {"variant": FixedShare(), "metric": Linear(n_components=1, ranks=True)},
    "encoder": {"variant": Encoder((6, 4)), "solver": FEW},
    "dropout": {"variant": Encoder(4, dropout=0.3), "solver": FEW},
    "members": {"n_estimators": 3},
    "members of mixtures": {"n_estimators": 2, "variant": Mixture(), "metric": "diagonal"},
    "members of samples": {
        "n_estimators": 2,
        "variant": SampleReweighting(),
        "metric": "scalar",
    },
    "compact": {"variant": Mixture(), "kernel": "tricube", "metric": "diagonal"},
}
NAMES = list(CONFIGURATIONS)
ENSEMBLES = [name for name in NAMES if name.startswith("members")]
ENCODERS = ["encoder", "dropout"]
# of which everything is told by attributes
TOLD = [name for name in NAMES if name not in (*ENCODERS, *ENSEMBLES)]
# whose rows keep some weight when one is left out
REFITTED = [name for name in NAMES if name != "compact"]
PLAIN = {"degree": 0, "metric": "diagonal"}
# Runs code where importing torch fails, whoever tries.
WITHOUT_TORCH = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("no torch here")
sys.meta_path.insert(0, Blocker())
"""


def fitted(X, y, **parameters):
    return ParametricAttentionRegressor(**{"random_state": 0, **parameters}).fit(X, y)


def rows():
    """Sixty rows of two features of different units, and queries within and beyond them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (N, 2))
    y = np.where(X[:, 0] < 0.0, np.sin(6.0 * X[:, 1]), X[:, 0]) + 0.1 * rng.standard_normal(N)
    return X * [1.0, 10.0], y, rng.uniform(-1.2, 1.2, (9, 2)) * [1.0, 10.0]


@cache
def model_of(name, degree):
    X, y, _ = rows()
    return fitted(X, y, degree=degree, **CONFIGURATIONS[name])


def scored(model, X, truth):
    return np.mean((model.predict(X) - truth) ** 2)


# ---------------------------------------------------------------------------------------------
# The definition, from documented attributes


def ranks_by_definition(X, queries):
    ranks = []
    for column, training in zip(queries.T, X.T, strict=True):
        knots, counts = np.unique(training, return_counts=True)
        share = counts / len(X)
        level = share.cumsum() - 0.5 * share - 0.5
        ranks.append(np.interp(column, knots, level / np.sqrt(share @ level**2)))
    return np.column_stack(ranks)


def components_of(model):
    """Projection and rank weights of each component of each member."""
    for member in model.members_:
        yield from zip(member.projections, member.rank_weights, strict=True)


def distances_by_definition(model, X, queries):
    """Squared distances that each component sees."""
    for projection, rank_weights in components_of(model):
        z, at = (part @ projection for part in (X, queries))
        if rank_weights.any():
            z, at = (
                np.hstack([part, ranks_by_definition(X, of) * rank_weights])
                for part, of in ((z, X), (at, queries))
            )
        yield ((at[:, None] - z) ** 2).sum(axis=2)


def kernel_weights_by_definition(model, X, queries):
    """Weights of each component, (n_components, n_queries, n_rows)."""
    found = []
    for squared in distances_by_definition(model, X, queries):
        scaled = model.query_factors(queries)[:, None] ** 2 * squared
        weights = np.exp(KERNELS[model.kernel].log_profile(scaled))
        weights = weights * model.members_[0].sample_factors
        empty = weights.sum(axis=1) == 0.0
        weights[empty] = squared[empty] == squared[empty].min(axis=1, keepdims=True)
        found.append(weights / weights.sum(axis=1, keepdims=True))
    return np.array(found)


def lines_by_definition(X, queries, axis):
    """Where lines are fitted: standardised features and, where they bend, a standardised square."""
    center, unit = X.mean(axis=0), X.std(axis=0, ddof=1)
    standardised = (queries - center) / unit
    if not axis.any():
        return standardised
    training = (X - center) / unit @ axis
    along = np.clip(standardised @ axis, training.min(), training.max())
    return np.column_stack([standardised, along**2 / (training**2).std()])


def lines_of(model, X, queries):
    """Lines of rows and of queries, and a ridge, of each component of each member."""
    for member in model.members_:
        keys, at = (lines_by_definition(X, rows, member.curvature_axis) for rows in (X, queries))
        yield from [(keys, at, member.ridge)] * len(member.shares)


def smoother_by_components(model, X, queries, left_out=None):
    """Rows of the smoother matrix from weights and gates of components, each without one row."""
    told = model.attention_by_component(queries)
    weights = told.weights.copy()
    if left_out is not None:
        weights[:, np.arange(len(queries)), left_out] = 0.0
        weights /= weights.sum(axis=2, keepdims=True)
    found = np.zeros((len(queries), len(X)))
    lines = list(lines_of(model, X, queries)) if model.degree == 1 else [None] * len(weights)
    for component, line in zip(range(len(weights)), lines, strict=True):
        for i in range(len(queries)):
            row = weights[component, i]
            if line is not None:
                keys, at, ridge = line
                away = keys - row @ keys
                covariance = away.T @ (row[:, None] * away) + ridge * np.eye(keys.shape[1])
                arm = np.linalg.solve(covariance, at[i] - row @ keys)
                row = row * (1.0 + away @ arm)
            found[i] += told.gates[i, component] * row
    return found


# ---------------------------------------------------------------------------------------------
# What is read off the weights


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", TOLD)
def test_weights_of_components_are_those_of_the_attributes(name, degree):
    X, _, queries = rows()
    model = model_of(name, degree)
    told = model.attention_by_component(queries)
    n_components = len(list(components_of(model)))
    assert told.weights.shape == (n_components, 9, N)
    assert told.gates.shape == (9, n_components)
    assert_allclose(told.weights.sum(axis=2), 1.0, rtol=1e-12)
    assert_allclose(told.gates.sum(axis=1), 1.0, rtol=1e-12)
    if name == "one coordinate":  # ranks are projected too, by what no attribute tells
        return
    expected = kernel_weights_by_definition(model, X, queries)
    assert_allclose(told.weights, expected, atol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_mixed_from_components_by_gates(name, degree):
    X, y, queries = rows()
    model = model_of(name, degree)
    expected = smoother_by_components(model, X, queries)
    assert_allclose(model.attention_weights(queries), expected, atol=1e-9)
    assert_allclose(model.predict(queries), expected @ y, atol=1e-9)
    kernel = np.einsum(
        "qh,hqi->qi", *reversed(list(model.attention_by_component(queries).values()))
    )
    neighbors = 1.0 / (kernel**2).sum(axis=1)
    assert_allclose(model.effective_neighbors(queries), neighbors, rtol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", REFITTED)
def test_leave_one_out_is_a_refit_with_what_was_learned_held(name, degree):
    X, y, queries = rows()
    model = model_of(name, degree)
    without = smoother_by_components(model, X, X, left_out=np.arange(N))
    assert_allclose(model.attention_weights(None), without, atol=1e-9)
    assert_allclose(model.predict(None), without @ y, atol=1e-9)
    told = model.attention_by_component(None)
    assert_array_equal(told.weights[:, np.arange(N), np.arange(N)], 0.0)
    left = y - without @ y
    std = model.predict(queries, return_std=True)[1]
    smoother = model.attention_weights(queries)
    assert_allclose(std, np.sqrt(np.mean(left**2) * (smoother**2).sum(axis=1)), rtol=1e-7)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", REFITTED)
def test_intervals_are_the_jackknife_plus_of_refits(name, degree):
    X, y, queries = rows()
    model = model_of(name, degree)
    left = np.abs(y - smoother_by_components(model, X, X, left_out=np.arange(N)) @ y)
    rank, bounds = int(np.ceil(0.8 * (N + 1))), []
    for query in queries:
        at = smoother_by_components(model, X, np.tile(query, (N, 1)), left_out=np.arange(N)) @ y
        bounds.append([np.sort(at - left)[N - rank], np.sort(at + left)[rank - 1]])
    assert_allclose(model.predict_interval(queries, 0.8), bounds, atol=1e-7)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_attention_weights_times_targets_are_the_predictions(name, degree):
    X, y, queries = rows()
    model = model_of(name, degree)
    for at in (queries, None):
        weights = model.attention_weights(at)
        assert_allclose(weights @ y, model.predict(at), rtol=1e-9, atol=1e-9)
        assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
        assert_allclose(model.attention_weights(at, top_k=N).toarray(), weights, atol=1e-14)
        if degree == 0:
            assert (weights >= 0.0).all()
    assert_array_equal(np.diag(model.attention_weights(None)), 0.0)
    assert_allclose(model.leverage(), np.diag(model.attention_weights(X)), rtol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_everything_else_is_read_off_the_same_weights(name, degree):
    X, y, queries = rows()
    model = model_of(name, degree)
    told, weights = model.explain(queries, top_k=3), model.attention_weights(queries)
    assert_allclose(told.predictions, model.predict(queries))
    expected = np.take_along_axis(weights, told.rows, axis=1)
    there = told.rows >= 0  # compact kernels may weigh fewer
    assert there[:, 0].all()
    assert_allclose(told.weights, np.where(there, expected, 0.0), atol=1e-14)
    assert_array_equal(told.targets[there], y[told.rows[there]])
    assert_allclose(model.bandwidth_, 1.0 / model.w_)
    assert (model.w_ > 0.0).all()
    quantiles = model.predict_quantiles(queries, [0.1, 0.5, 0.9])
    assert (np.diff(quantiles, axis=1) >= 0.0).all()
    for local in (False, True):
        interval = model.predict_interval(queries, 0.8, local=local)
        assert (interval[:, 0] < interval[:, 1]).all()
    assert np.isfinite(model.predict(queries, return_std="local")[1]).all()
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", TOLD)
def test_score_is_that_of_the_leave_one_out_predictions(name, degree):
    _, y, _ = rows()
    model = model_of(name, degree)
    assert_allclose(model.loo_score_, r2_score(y, model.predict(None)), atol=1e-3)
    assert np.isnan(model.holdout_score_)


@pytest.mark.parametrize(
    "name", ["mixture", "three components", "fixed share", "sample", "region scale"]
)
def test_gradients_at_degree_one_are_mean_slopes_by_the_gates(name):
    X, y, queries = rows()
    model, step = model_of(name, 1), 1e-6
    told = model.attention_by_component(queries)
    lines, _, ridge = next(lines_of(model, X, queries))
    shifts = step * np.eye(2) * X.std(axis=0)
    for i, gradient in enumerate(model.predict_gradient(queries)):
        slope = np.zeros(lines.shape[1])
        for gate, weights in zip(told.gates[i], told.weights[:, i], strict=True):
            away = lines - weights @ lines
            covariance = away.T @ (weights[:, None] * away) + ridge * np.eye(len(slope))
            cross = away.T @ (weights * (y - weights @ y))
            slope += gate * np.linalg.solve(covariance, cross)
        axis = model.members_[0].curvature_axis
        after, before = (
            lines_by_definition(X, queries[i] + sign * shifts, axis) for sign in (1.0, -1.0)
        )
        expected = (after - before) @ slope / (2.0 * np.diag(shifts))
        assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


def test_gradients_of_means_hold_gates_and_factors():
    X, y, queries = rows()
    shifts = 1e-6 * np.eye(2) * X.std(axis=0)
    for name in ("sample", "encoder", "fixed share"):  # where there are none of the row: exact
        parameters = {**CONFIGURATIONS[name], "degree": 0, "metric": "linear"}
        model = fitted(X, y, **parameters)
        found = model.predict_gradient(queries)
        for j, shift in enumerate(shifts):
            moved = model.predict(queries + shift) - model.predict(queries - shift)
            assert_allclose(found[:, j], moved / (2.0 * shift[j]), rtol=1e-4, atol=1e-6)
    model = fitted(X, y, variant=Mixture(), degree=0, metric="linear")
    gates = model.attention_by_component(queries).gates
    for j, shift in enumerate(shifts):
        after, before = (
            model.attention_by_component(queries + sign * shift).weights @ y for sign in (1.0, -1.0)
        )
        expected = np.einsum("qh,hq->q", gates, (after - before) / (2.0 * shift[j]))
        found = model.predict_gradient(queries)[:, j]
        assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_query_factors_are_one_where_nothing_depends_on_the_query(name):
    X, _, queries = rows()
    factors = model_of(name, 1).query_factors(queries)
    assert factors.shape == (9,)
    if name in ("query scale", "region scale"):
        assert (factors > 0.0).all()
        assert np.ptp(np.log(factors)) > 0.1
        lengths = np.linalg.norm(model_of(name, 1).members_[0].projections[0], axis=1)
        mean = np.sqrt(np.mean(model_of(name, 1).query_factors(X) ** 2))
        assert_allclose(model_of(name, 1).w_, lengths * mean, rtol=1e-9)
    else:
        assert_array_equal(factors, 1.0)


def test_query_factors_of_members_are_their_geometric_mean():
    X, y, queries = rows()
    model = fitted(X, y, variant=QueryScale(), n_estimators=2, degree=0, metric="linear")
    at = model.attention_by_component(queries).weights
    # each member's weights tell its own factor, under its own metric
    logs = []
    for weights, (projection, _) in zip(at, components_of(model), strict=True):
        squared = (((queries[:, None] - X) @ projection) ** 2).sum(axis=2)
        profile = np.exp(-np.log(weights / weights.max(axis=1, keepdims=True)) / 4.0)
        i = np.arange(9)
        near, far = squared.argmin(axis=1), squared.argmax(axis=1)
        # (1 + s D_far / 7) / (1 + s D_near / 7) = ratio
        ratio = profile[i, far] / profile[i, near]
        scale = 7.0 * (ratio - 1.0) / (squared[i, far] - ratio * squared[i, near])
        logs.append(0.5 * np.log(scale))
    assert_allclose(model.query_factors(queries), np.exp(np.mean(logs, axis=0)), rtol=1e-6)


@pytest.mark.parametrize("degree", [0, 1])
def test_members_tell_what_each_variant_learned(degree):
    X, _, queries = rows()
    (member,) = model_of("sample", degree).members_
    assert member.sample_factors.shape == (N,)
    assert member.sample_factors.max() == 1.0
    assert (member.sample_factors > 0.0).all()
    assert np.ptp(member.sample_factors) > 0.1
    model = model_of("fixed share", degree)
    (member,) = model.members_
    assert 0.0 <= member.shares[1] < 1.0
    gates = model.attention_by_component(queries).gates
    assert_allclose(gates, np.tile(member.shares, (9, 1)), rtol=1e-12)
    fixed = member.projections[1] * X.std(axis=0, ddof=1)[:, None]
    size = fixed[0, 0]  # one factor of all standardised features, and ranks
    assert_allclose(fixed[:, :2], size * np.eye(2), rtol=1e-6, atol=1e-9)
    assert_allclose(member.rank_weights[1], size, rtol=1e-6)
    model = model_of("mixture", degree)
    (member,) = model.members_
    assert len(member.projections) == len(member.rank_weights) == 2
    assert_allclose(member.shares, model.attention_by_component(X).gates.mean(axis=0), rtol=1e-9)
    lengths = np.array([np.linalg.norm(matrix, axis=1) for matrix in member.projections])
    assert_allclose(model.w_, np.sqrt(member.shares @ lengths**2), rtol=1e-9)
    for name in NAMES:
        for member in model_of(name, degree).members_:
            assert (member.sample_factors != 1.0).any() == ("sample" in name)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_loss_curves_are_counted_and_fall(name, degree):
    model = model_of(name, degree)
    assert np.isfinite(model.loss_curve_).all()
    assert all(isinstance(loss, float) for loss in model.loss_curve_)
    if name not in ENSEMBLES:
        assert len(model.loss_curve_) == model.n_iter_ + 1
    assert (model.validation_scores_ != []) == (name in ENCODERS)
    assert np.isfinite(model.validation_scores_).all()


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", ["sample", "query scale", "region scale", "mixture"])
def test_the_loss_is_at_most_that_of_the_metric_alone(name, degree):
    X, y, _ = rows()
    parameters = {**CONFIGURATIONS[name], "variant": None}
    plain = fitted(X, y, degree=degree, **parameters)
    model = model_of(name, degree)
    assert_allclose(model.loss_curve_[: plain.n_iter_ + 1], plain.loss_curve_)
    assert model.loss_curve_[-1] <= plain.loss_curve_[-1] + 1e-9
    # once the penalty on what was learned before is gone, losses of L-BFGS fall
    assert (np.diff(model.loss_curve_[plain.n_iter_ + 1 :]) <= 1e-9).all()


# ---------------------------------------------------------------------------------------------
# Ensembles


@pytest.mark.parametrize("degree", [0, 1])
def test_members_are_averaged(degree):
    X, y, queries = rows()
    model = model_of("members", degree)
    told = model.attention_by_component(queries)
    assert_allclose(told.gates, 1.0 / 3.0)
    assert_allclose(told.weights, kernel_weights_by_definition(model, X, queries), atol=1e-9)
    if degree == 0:
        assert_allclose(told.weights.mean(axis=0) @ y, model.predict(queries), atol=1e-12)
    assert len(model.members_) == 3
    lengths = np.array([np.linalg.norm(matrix, axis=1) for matrix, _ in components_of(model)])
    assert_allclose(model.w_, np.sqrt((lengths**2).mean(axis=0)), rtol=1e-9)
    assert (lengths[0] != lengths[1]).any()


@pytest.mark.parametrize("degree", [0, 1])
def test_members_may_have_components(degree):
    _, y, queries = rows()
    model = model_of("members of mixtures", degree)
    told = model.attention_by_component(queries)
    assert told.weights.shape == (4, 9, N)
    assert_allclose(told.gates.sum(axis=1), 1.0)
    assert_allclose(told.gates[:, :2].sum(axis=1), 0.5)
    assert [len(member.projections) for member in model.members_] == [2, 2]
    if degree == 0:
        mean = np.einsum("qh,hqi->qi", told.gates, told.weights)
        assert_allclose(model.attention_weights(queries), mean, atol=1e-12)
        assert_allclose(model.predict(queries), mean @ y, atol=1e-12)


def wavy(seed, n=120):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    return X, np.sin(4.0 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.standard_normal(n)


@pytest.mark.parametrize("degree", [0, 1])
def test_out_of_bag_scores_are_finite_and_lower(degree):
    gaps = []
    for seed in range(6):
        model = fitted(*wavy(seed), n_estimators=4, degree=degree, random_state=seed)
        assert np.isfinite(model.holdout_score_)
        assert model.holdout_score_ < 1.0
        gaps.append(model.loo_score_ - model.holdout_score_)
    assert np.mean(gaps) > 0.0


def test_random_state_chooses_the_queries_of_members():
    X, y, queries = rows()
    parameters = {"n_estimators": 2, "metric": "diagonal", "degree": 0}
    models = [fitted(X, y, **parameters, random_state=seed) for seed in (3, 3, 4)]
    assert_array_equal(models[0].predict(queries), models[1].predict(queries))
    assert (models[0].predict(queries) != models[2].predict(queries)).any()
    state = np.random.RandomState(3)
    again = fitted(X, y, **parameters, random_state=state)
    assert_array_equal(again.predict(queries), models[0].predict(queries))


# ---------------------------------------------------------------------------------------------
# What does not matter


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bits_whatever_the_order_of_rows(name, degree):
    X, y, queries = rows()
    model = model_of(name, degree)
    again = clone(model).fit(X, y)
    assert again.loss_curve_ == model.loss_curve_
    assert_array_equal(again.predict(queries), model.predict(queries))
    order = np.random.default_rng(1).permutation(N)
    other = clone(model).fit(X[order], y[order])
    assert other.loss_curve_ == model.loss_curve_
    assert_array_equal(other.predict(queries), model.predict(queries))
    assert_array_equal(other.predict(None), model.predict(None)[order])
    for found, expected in zip(other.members_, model.members_, strict=True):
        assert_array_equal(found.sample_factors, expected.sample_factors[order])


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_weights_are_repetitions_and_zero_is_no_row(name, degree):
    X, y, queries = rows()
    counts = np.random.default_rng(2).integers(0, 3, N)
    model = ParametricAttentionRegressor(degree=degree, random_state=0, **CONFIGURATIONS[name])
    weighted = clone(model).fit(X, y, sample_weight=counts)
    expected = weighted.predict(queries)
    repeated = np.repeat(np.arange(N), counts)
    expanded = clone(model).fit(X[repeated], y[repeated])
    assert_allclose(expanded.predict(queries), expected, rtol=1e-8)
    assert_allclose(expanded.predict(None), weighted.predict(None)[repeated], rtol=1e-7, atol=1e-9)
    present = counts > 0
    fewer = clone(model).fit(X[present], y[present], sample_weight=counts[present])
    assert_allclose(fewer.predict(queries), expected, rtol=1e-8)
    if name == "sample":
        factors = weighted.members_[0].sample_factors
        assert_allclose(expanded.members_[0].sample_factors, factors[repeated], rtol=1e-8)
        assert_array_equal(factors[~present], 1.0)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_units_do_not_matter(name, degree):
    X, y, queries = rows()
    model, unit = model_of(name, degree), np.array([1e4, 1e-3])
    other = clone(model).fit(X * unit + [0.0, 5.0], 1e3 * y + 7.0)
    found = (other.predict(queries * unit + [0.0, 5.0]) - 7.0) / 1e3
    assert_allclose(found, model.predict(queries), rtol=1e-5, atol=1e-6)
    assert_allclose(other.w_ * unit, model.w_, rtol=1e-4)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_groups_are_left_out_together(name, degree):
    X, y, _ = rows()
    groups = np.arange(N) // 4
    model = ParametricAttentionRegressor(degree=degree, random_state=0, **CONFIGURATIONS[name])
    model.fit(X, y, groups=groups)
    weights = model.attention_weights(None)
    assert_array_equal(weights[groups[:, None] == groups], 0.0)
    assert_allclose(weights @ y, model.predict(None), atol=1e-9)
    again = clone(model).fit(X, y, groups=groups[::-1] * 7)
    assert_array_equal(again.w_, clone(model).fit(X, y, groups=groups[::-1]).w_)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_outputs_share_what_is_learned(name, degree):
    X, y, queries = rows()
    Y = np.column_stack([y, 100.0 * np.cos(3.0 * X[:, 0]), np.full(N, 3.0)])
    model = ParametricAttentionRegressor(degree=degree, random_state=0, **CONFIGURATIONS[name])
    predicted = model.fit(X, Y).predict(queries)
    assert_allclose(predicted[:, 2], 3.0)
    weights = model.attention_weights(queries)
    assert_allclose(weights @ Y, predicted, rtol=1e-9, atol=1e-9)
    assert model.predict_interval(queries, 0.8).shape == (9, 2, 3)
    assert model.predict_gradient(queries).shape == (9, 2, 3)
    twice = clone(model).fit(X, np.column_stack([y, -5.0 * y])).predict(queries)
    assert_allclose(twice[:, 0], -twice[:, 1] / 5.0, rtol=1e-7, atol=1e-9)
    if name not in (*ENCODERS, "compact"):  # where rounding is carried along
        assert_allclose(twice[:, 0], model_of(name, degree).predict(queries), atol=0.02)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ENSEMBLES])
def test_variants_change_predictions(name):
    X, y, queries = rows()
    plain = {**CONFIGURATIONS[name], "variant": None, "solver": "auto"}
    assert (model_of(name, 1).predict(queries) != fitted(X, y, **plain).predict(queries)).any()


@pytest.mark.parametrize("degree", [0, 1])
def test_dropout_learns_another_network(degree):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (250, 2))
    y = np.sin(6.0 * X[:, 0]) * np.sin(6.0 * X[:, 1]) + 0.05 * rng.standard_normal(250)
    solver = Adam(learning_rate=0.02, batch_size=50, max_iter=30)
    networks = [Encoder(8, dropout) for dropout in (0.0, 0.5, 0.9)]
    models = [fitted(X, y, degree=degree, variant=each, solver=solver) for each in networks]
    first = models[0].predict(X)
    assert min(np.abs(other.predict(X) - first).max() for other in models[1:]) > 0.01


def test_the_best_fixed_share_may_be_none_at_all():
    shares = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1.0, 1.0, (150, 3))
        y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(150)  # where two features mislead
        model = fitted(X, y, variant=FixedShare(), degree=0, metric="diagonal")
        shares.append(model.members_[0].shares[1])
        plain = fitted(X, y, degree=0, metric="diagonal")
        assert model.loo_score_ >= plain.loo_score_ - 1e-4
    assert np.mean(np.array(shares) == 0.0) >= 0.5


# ---------------------------------------------------------------------------------------------
# Many rows


def many(n):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(5.0 * X[:, 0]) + 0.3 * rng.standard_normal(n)


@pytest.mark.parametrize(
    "name", ["sample", "query scale", "region scale", "mixture", "fixed share"]
)
def test_what_is_learned_in_single_precision_predicts_as_well(name):
    X, y = many(520)
    model = fitted(X, y, **CONFIGURATIONS[name])
    assert_allclose(model.loo_score_, r2_score(y, model.predict(None)), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["sample", "query scale", "mixture", "fixed share", "encoder", "members"]
)
def test_holdout_scores_are_of_rows_that_were_no_queries(name):
    X, y = many(1150)
    model = fitted(X, y, **{**CONFIGURATIONS[name], **PLAIN})
    best = 1.0 - 0.3**2 / y.var()
    assert abs(model.holdout_score_ - best) < 0.1
    assert abs(model.loo_score_ - best) < 0.05
    order = np.random.default_rng(0).permutation(len(X))
    again = clone(model).fit(X[order], y[order])
    assert_array_equal(again.w_, model.w_)
    assert again.loss_curve_ == model.loss_curve_


# ---------------------------------------------------------------------------------------------
# Edges


@pytest.mark.parametrize("name", NAMES)
def test_few_rows_constant_targets_and_far_queries_are_finite(name):
    X, y, queries = rows()
    parameters = {"random_state": 0, **CONFIGURATIONS[name]}
    for n in (3, 4, 7):
        model = ParametricAttentionRegressor(**parameters).fit(X[:n], y[:n])
        assert np.isfinite(model.predict(queries)).all()
        assert np.isfinite(model.predict(None)).all()
    model = ParametricAttentionRegressor(**parameters).fit(X, np.full(N, 0.1))
    assert_array_equal(model.predict(queries), 0.1)
    assert_array_equal(model.w_, 0.0)
    far = model_of(name, 1)
    for distance in (1e3, 1e30, 1e200):
        at = distance * np.array([[1.0, 1.0], [-1.0, 0.0]])
        assert np.isfinite(far.predict(at)).all()
        assert np.isfinite(far.query_factors(at)).all()
        assert np.isfinite(far.attention_by_component(at).weights).all()


@pytest.mark.parametrize("name", NAMES)
def test_constant_features_change_nothing(name):
    X, y, queries = rows()
    wider = fitted(np.insert(X, 1, 4.0, axis=1), y, **CONFIGURATIONS[name])
    at = np.insert(queries, 1, 9.0, axis=1)
    assert_allclose(wider.predict(at), model_of(name, 1).predict(queries), rtol=1e-9)
    assert wider.w_[1] == 0.0
    assert_array_equal(wider.predict_gradient(at)[:, 1], 0.0)
    assert_allclose(wider.query_factors(at), model_of(name, 1).query_factors(queries), rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_importances_may_be_scaled(name):
    X, y, queries = rows()
    weights = np.random.default_rng(3).uniform(0.2, 1.7, N)
    model = ParametricAttentionRegressor(random_state=0, **CONFIGURATIONS[name])
    one = model.fit(X, y, sample_weight=weights).predict(queries)
    two = model.fit(X, y, sample_weight=0.37 * weights).predict(queries)
    # steps of L-BFGS carry rounding along, over the edges of compact kernels most
    assert_allclose(two, one, atol=0.1 if name == "compact" else 1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_extreme_units_and_exact_targets_are_finite(name):
    X, y, queries = rows()
    unit = 1.0 if name in ENSEMBLES else 1e300
    model = fitted(X * 1e250, unit * y, **CONFIGURATIONS[name])
    expected = model_of(name, 1).predict(queries)
    assert_allclose(model.predict(queries * 1e250) / unit, expected, rtol=1e-5, atol=1e-6)
    exact = X @ [1.0, -0.2]
    line = fitted(X, exact, **CONFIGURATIONS[name])
    assert line.score(X, exact) > 0.9999
    assert np.isfinite(line.loss_curve_).all()


@pytest.mark.parametrize("name", ["sample", "mixture", "encoder", "members"])
def test_an_interrupted_fit_leaves_the_estimator_as_it_was(name, monkeypatch):
    X, y, queries = rows()
    parameters = {**CONFIGURATIONS[name], "metric": "diagonal"}
    model = fitted(X, y, **parameters)
    before, predicted = dict(vars(model)), model.predict(queries)
    calls, most, weights = [], [np.inf], Student.tensor_weights

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) > most[0]:
            raise KeyboardInterrupt
        return weights(*arguments)

    monkeypatch.setattr(Student, "tensor_weights", interrupted)
    clone(model).fit(X[:50, :1], y[:50])
    most[0] = int(1.8 * len(calls))  # at four fifths of the next fit
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:50, :1], y[:50])
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[key] is value for key, value in before.items())
    assert_array_equal(model.predict(queries), predicted)


def test_global_state_is_left_alone():
    X, y, queries = rows()

    def state():
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()  # noqa: NPY002

    before = state()
    for name in ("query scale", "region scale", "encoder", "dropout", "members"):
        model = ParametricAttentionRegressor(**CONFIGURATIONS[name]).fit(X, y)
        assert np.isfinite(model.predict(queries)).all()
    assert state() == before


def test_out_of_bag_scores_do_not_depend_on_the_unit_of_targets():
    X, y, _ = rows()
    model, unit = model_of("members", 1), 1e200
    other = clone(model).fit(X, unit * y)
    assert_allclose(other.holdout_score_, model.holdout_score_, rtol=1e-6)


@pytest.mark.parametrize("variant", [RegionScale(), Mixture(4), Mixture(2)], ids=str)
def test_features_of_few_values_can_be_learned_from(variant):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (200, 1)).astype(float)
    if repr(variant) == "Mixture()":  # three rows in one place, or so
        X = np.where(np.arange(200)[:, None] < 198, 0.0, 1.0)
    y = X[:, 0] + 0.1 * rng.standard_normal(200)
    model = fitted(X, y, variant=variant)
    assert np.isfinite(model.predict(X)).all()


def test_more_components_than_rows_are_refused_or_learned():
    X, y, queries = rows()
    model = fitted(X[:4], y[:4], variant=Mixture(6))
    assert np.isfinite(model.predict(queries)).all()


def test_query_factors_of_members_of_a_constant_target_are_one():
    X, _, queries = rows()
    model = fitted(X, np.ones(N), n_estimators=2)
    assert_array_equal(model.query_factors(queries), np.ones(9))


# ---------------------------------------------------------------------------------------------
# Trial steps that cannot be evaluated


def test_singular_lines_are_bad_steps_of_a_mixture():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (600, 2))
    y = np.where(X[:, 0] < 0.0, np.sin(2.0 * X[:, 1]), np.sin(20.0 * X[:, 1]))
    y += 0.1 * rng.standard_normal(600)
    model = fitted(X, y, variant=Mixture(4), solver=LBFGS(40))
    assert np.isfinite(model.loss_curve_).all()
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("kernel", [name for name in KERNELS if KERNELS[name].has_slope])
@pytest.mark.parametrize("degree", [0, 1])
def test_encoders_of_two_rows_are_finite(kernel, degree):
    variant, solver = Encoder(4), Adam(learning_rate=0.003, max_iter=3)
    model = fitted(
        [[0.0], [1.0]], [0.0, 1.0], kernel=kernel, degree=degree, variant=variant, solver=solver
    )
    assert np.isfinite(model.predict([[0.5]])).all()
    assert np.isfinite(model.w_).all()


@pytest.mark.parametrize("variant", [None, QueryScale(), Encoder(4)], ids=str)
def test_losses_that_are_no_number_are_never_the_best(variant, monkeypatch):
    X, y, queries = rows()
    calls, weights = [], Student.tensor_weights

    def sometimes(self, squared):
        calls.append(None)
        found = weights(self, squared)
        return tuple(part * np.nan for part in found) if len(calls) % 5 == 0 else found

    monkeypatch.setattr(Student, "tensor_weights", sometimes)
    model = fitted(X, y, variant=variant)
    monkeypatch.undo()
    assert np.isfinite(model.w_).all()
    assert np.isfinite(model.predict(queries)).all()


# ---------------------------------------------------------------------------------------------
# Parameters


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"variant": Encoder(())}, r"positive whole numbers.*got \(\)"),
        ({"variant": Encoder((0,))}, r"positive whole numbers.*got \(0,\)"),
        ({"variant": Encoder((4, 2.5))}, r"positive whole numbers.*got \(4, 2\.5\)"),
        ({"variant": Encoder((True,))}, "positive whole numbers"),
        ({"variant": Encoder(0)}, "hidden_layer_sizes.*Encoder"),
        ({"variant": Encoder("ab")}, "hidden_layer_sizes.*Encoder"),
        ({"variant": Encoder(dropout=1.0)}, "dropout.*Encoder"),
        ({"variant": Encoder(dropout=-0.1)}, "dropout.*Encoder"),
        ({"variant": Mixture(1)}, "n_components.*Mixture"),
        ({"variant": QueryScale(0)}, "n_hidden.*QueryScale"),
        ({"variant": RegionScale(1)}, "n_regions.*RegionScale"),
        ({"variant": Mixture}, "variant"),
        ({"variant": Mixture(), "solver": "gauss-newton"}, "solver='gauss-newton'.*Mixture"),
        ({"variant": Mixture(), "solver": GaussNewton()}, r"GaussNewton\(\).*'lbfgs' or 'adam'"),
        ({"variant": Encoder(), "solver": "lbfgs"}, "solver='lbfgs'.*Encoder.*'adam'"),
        ({"variant": Mixture(), "solver": GradientDescent()}, "textbook"),
        ({"n_estimators": 0}, "n_estimators"),
    ],
)
def test_what_cannot_be_combined_is_refused(parameters, message):
    X, y, _ = rows()
    model = ParametricAttentionRegressor(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "n_features_in_")


@pytest.mark.parametrize("name", NAMES)
def test_there_is_no_nadaraya_watson_of_it(name):
    X, y, _ = rows()
    model = fitted(X, y, **{**CONFIGURATIONS[name], **PLAIN})
    with pytest.raises(ValueError, match=r"needs.*variant=None and n_estimators=1.*Fit"):
        model.to_nadaraya_watson()


def test_another_fit_leaves_nothing_of_the_last_one():
    X, y, _ = rows()
    model = fitted(X, y, degree=0)
    expected = model.predict(X)
    for variant in (SampleReweighting(), FixedShare(), Mixture()):
        model.set_params(variant=variant).fit(X, y)
    model.set_params(variant=None).fit(X, y)
    assert set(vars(model)) == set(vars(fitted(X, y, degree=0)))
    assert_array_equal(model.predict(X), expected)


@pytest.mark.parametrize("name", ["sample", "mixture", "fixed share", "encoder", "members"])
def test_the_best_step_at_validation_rows_is_kept(name):
    X, y, queries = rows()
    model = fitted(X, y, **CONFIGURATIONS[name], validation_fraction=0.3)
    scores = model.validation_scores_
    assert np.isfinite(scores).all()
    assert len(scores) == len(model.loss_curve_)
    assert model.predict(None).shape == (N,)
    again = clone(model).fit(X, y)
    assert_array_equal(again.predict(queries), model.predict(queries))
    other = clone(model).set_params(random_state=1).fit(X, y)
    assert (other.predict(queries) != model.predict(queries)).any()


@pytest.mark.parametrize("variant", [SampleReweighting(), Mixture(), QueryScale()], ids=str)
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_names_of_solvers_suit_the_variant(variant, solver):
    X, y, _ = rows()
    model = fitted(X, y, variant=variant, solver=solver, metric="diagonal")
    plain = fitted(X, y, metric="diagonal")
    assert_allclose(model.loss_curve_[: plain.n_iter_ + 1], plain.loss_curve_)
    assert model.loss_curve_[-1] < plain.loss_curve_[-1] + 0.02
    automatic = fitted(X, y, variant=variant, metric="diagonal")
    assert (automatic.loss_curve_ == model.loss_curve_) == (solver == "lbfgs")


@pytest.mark.parametrize(
    "name", ["sample", "query scale", "mixture", "fixed share", "encoder", "dropout"]
)
def test_callbacks_are_told_of_every_step_of_all_stages(name):
    pytest.importorskip("sklearn.callback")
    X, y, _ = rows()
    solver = {"solver": FEW if name in ENCODERS else LBFGS(4)}
    told = Told()
    parameters = {**CONFIGURATIONS[name], "metric": "linear", **solver}
    model = ParametricAttentionRegressor(**parameters, random_state=0).set_callbacks(told)
    model.fit(X, y)
    # the starts of all three stages are told too, and only the first is in the curve
    assert len(told.predictions) == model.n_iter_ + 3
    if name not in ENCODERS:  # whose last step need not be the best
        assert_allclose(told.predictions[-1], model.predict(X), rtol=1e-9)


def test_callbacks_are_told_of_the_steps_of_all_members():
    pytest.importorskip("sklearn.callback")
    X, y, _ = rows()
    told = Told()
    model = ParametricAttentionRegressor("diagonal", n_estimators=3, random_state=0)
    model.set_callbacks(told).fit(X, y)
    assert len(told.predictions) == sum(len(member.loss_curve) for member in model.members_)


@pytest.mark.parametrize("name", ["sample", "mixture", "encoder", "members"])
def test_callbacks_can_stop_training(name):
    pytest.importorskip("sklearn.callback")
    X, y, _ = rows()
    parameters = {**CONFIGURATIONS[name], "metric": "diagonal"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # stopped on purpose
        model = ParametricAttentionRegressor(**parameters, random_state=0)
        model.set_callbacks(Told(most=3)).fit(X, y)
    assert model.n_iter_ <= 3
    assert len(model.members_) == 1


# ---------------------------------------------------------------------------------------------
# Without PyTorch


def test_pickles_predict_where_there_is_no_torch(tmp_path):
    _, _, queries = rows()
    models = {(name, degree): model_of(name, degree) for name in NAMES for degree in (0, 1)}
    (tmp_path / "models.pkl").write_bytes(pickle.dumps((models, queries)))
    code = (
        WITHOUT_TORCH
        + """
import pickle
models, queries = pickle.load(open(sys.argv[1], "rb"))
found = {key: (m.predict(queries).tolist(), m.predict(None).tolist()) for key, m in models.items()}
for model in models.values():
    model.predict_interval(queries, 0.8)
    model.attention_by_component(queries)
    model.query_factors(queries)
assert not any(name.partition(".")[0] == "torch" for name in sys.modules)
print(repr(found))
"""
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "models.pkl")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found = eval(result.stdout)
    for key, model in models.items():
        assert_array_equal(found[key][0], model.predict(queries))
        assert_array_equal(found[key][1], model.predict(None))


# ---------------------------------------------------------------------------------------------
# Outside the support of a component


@pytest.mark.parametrize("degree", [0, 1])
def test_gradients_are_missing_where_predictions_are(degree):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (80, 2))
    y = np.where(X[:, 0] < 0.0, np.sin(4.0 * X[:, 1]), X[:, 0])
    model = ParametricAttentionRegressor(
        "diagonal",
        degree=degree,
        kernel="epanechnikov",
        variant=Mixture(),
        extrapolation="nan",
    ).fit(X, y)
    queries = rng.uniform(-1.6, 1.6, (300, 2))
    with pytest.warns(UserWarning, match="no training row within"):
        missing = np.isnan(model.predict(queries))
    with pytest.warns(UserWarning, match="no training row within"):
        slopes = model.predict_gradient(queries)
    assert 0 < missing.sum() < 300
    assert_array_equal(np.isnan(slopes).all(axis=1), missing)
