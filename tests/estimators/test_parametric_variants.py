"""Learned attention that depends on the rows: what is read off it, and what it finds."""

import pickle
import subprocess
import sys
import warnings
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import r2_score

from skattn import ParametricAttentionRegressor
from skattn.kernels import KERNELS

torch = pytest.importorskip("torch")

from skattn._learning import _objective  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*copies of others:UserWarning"),
    pytest.mark.filterwarnings("ignore:Training has not converged"),
]

N = 60
CONFIGURATIONS = {
    "sample": {"modifier": "sample"},
    "dynamic": {"modifier": "dynamic"},
    "hierarchical": {"modifier": "hierarchical"},
    "heads": {"n_heads": 2},
    "three heads": {"n_heads": 3, "parametrization": "feature", "rank_features": False},
    "mixture": {"mixture": True},
    "one component": {"mixture": True, "parametrization": "projection", "n_components": 1},
    "encoder": {"hidden_layer_sizes": (6, 4), "max_iter": 8},
    "dropout": {"dropout": 0.3, "max_iter": 8},
    "members": {"n_estimators": 3},
    "members of heads": {"n_estimators": 2, "n_heads": 2, "parametrization": "feature"},
    "members of samples": {"n_estimators": 2, "modifier": "sample", "parametrization": "scalar"},
    "compact": {"n_heads": 2, "kernel": "tricube", "parametrization": "feature"},
}
NAMES = list(CONFIGURATIONS)
ENSEMBLES = [name for name in NAMES if name.startswith("members")]
# of which everything is told by attributes
TOLD = [name for name in NAMES if name not in ("encoder", "members of heads", *ENSEMBLES)]
# whose rows keep some weight when one is left out
REFITTED = [name for name in NAMES if name not in ("members of heads", "compact")]
NEEDED = {"sample": {"modifier": "sample"}, "heads": {"n_heads": 2}, "mixture": {"mixture": True},
          "encoder": {"hidden_layer_sizes": (3,)}}  # fmt: skip
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


def listed(value):
    return value if isinstance(value, list) else [value]


def ranks_by_definition(X, queries):
    ranks = []
    for column, training in zip(queries.T, X.T, strict=True):
        knots, counts = np.unique(training, return_counts=True)
        share = counts / len(X)
        level = share.cumsum() - 0.5 * share - 0.5
        ranks.append(np.interp(column, knots, level / np.sqrt(share @ level**2)))
    return np.column_stack(ranks)


def distances_by_definition(model, X, queries):
    """Squared distances that each head sees; those of ranks of a projection of few components too.

    None where attributes do not tell all: ranks in a projection of fewer coordinates, and the fixed
    metric of a mixture.
    """
    for projection, rank_w in zip(listed(model.projection_), listed(model.rank_w_), strict=True):
        z, at = (part @ projection for part in (X, queries))
        if rank_w is not None:
            z, at = (
                np.hstack([part, ranks_by_definition(X, of) * rank_w])
                for part, of in ((z, X), (at, queries))
            )
        yield ((at[:, None] - z) ** 2).sum(axis=2)


def kernel_weights_by_definition(model, X, queries):
    """Weights of each head, (n_heads, n_queries, n_rows)."""
    found = []
    for squared in distances_by_definition(model, X, queries):
        scaled = model.query_factors(queries)[:, None] ** 2 * squared
        weights = np.exp(KERNELS[model.kernel].log_profile(scaled))
        weights = weights * getattr(model, "sample_factors_", 1.0)
        empty = weights.sum(axis=1) == 0.0
        weights[empty] = squared[empty] == squared[empty].min(axis=1, keepdims=True)
        found.append(weights / weights.sum(axis=1, keepdims=True))
    return np.array(found)


def lines_by_definition(X, queries, axis):
    """Where lines are fitted: standardised features and, where they bend, a standardised square."""
    center, unit = X.mean(axis=0), X.std(axis=0, ddof=1)
    standardised = (queries - center) / unit
    if axis is None:
        return standardised
    training = (X - center) / unit @ axis
    along = np.clip(standardised @ axis, training.min(), training.max())
    return np.column_stack([standardised, along**2 / (training**2).std()])


def lines_of(model, X, queries):
    """A pair of lines of rows and of queries, and a ridge, of each member of an ensemble."""
    ridges, axes = listed(model.ridge_), listed(model.curvature_axis_)
    for ridge, axis in zip(ridges, axes, strict=True):
        yield lines_by_definition(X, X, axis), lines_by_definition(X, queries, axis), ridge


def smoother_by_heads(model, X, queries, left_out=None):
    """Rows of the smoother matrix from the weights and gates of heads, each without one row."""
    told = model.attention_by_head(queries)
    weights = told.weights.copy()
    if left_out is not None:
        weights[:, np.arange(len(queries)), left_out] = 0.0
        weights /= weights.sum(axis=2, keepdims=True)
    found = np.zeros((len(queries), len(X)))
    lines = list(lines_of(model, X, queries)) if model.degree == 1 else [None]
    lines = lines * (len(weights) // len(lines))
    for head, line in zip(range(len(weights)), lines, strict=True):
        for i in range(len(queries)):
            row = weights[head, i]
            if line is not None:
                keys, at, ridge = line
                away = keys - row @ keys
                covariance = away.T @ (row[:, None] * away) + ridge * np.eye(keys.shape[1])
                arm = np.linalg.solve(covariance, at[i] - row @ keys)
                row = row * (1.0 + away @ arm)
            found[i] += told.gates[i, head] * row
    return found


# ---------------------------------------------------------------------------------------------
# What is read off the weights


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", TOLD)
def test_weights_of_heads_are_those_of_the_attributes(name, degree):
    X, _, queries = rows()
    model = model_of(name, degree)
    told = model.attention_by_head(queries)
    n_heads = len(listed(model.projection_))
    assert told.weights.shape == (n_heads, 9, N)
    assert told.gates.shape == (9, n_heads)
    assert_allclose(told.weights.sum(axis=2), 1.0, rtol=1e-12)
    assert_allclose(told.gates.sum(axis=1), 1.0, rtol=1e-12)
    if name == "one component":  # ranks are projected too, by what no attribute tells
        return
    expected = kernel_weights_by_definition(model, X, queries)
    assert_allclose(told.weights, expected, atol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "members of heads"])
def test_predictions_are_mixed_from_heads_by_gates(name, degree):
    X, y, queries = rows()
    model = model_of(name, degree)
    expected = smoother_by_heads(model, X, queries)
    assert_allclose(model.attention_weights(queries), expected, atol=1e-9)
    assert_allclose(model.predict(queries), expected @ y, atol=1e-9)
    kernel = np.einsum("qh,hqi->qi", *reversed(list(model.attention_by_head(queries).values())))
    neighbors = 1.0 / (kernel**2).sum(axis=1)
    assert_allclose(model.effective_neighbors(queries), neighbors, rtol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", REFITTED)
def test_leave_one_out_is_a_refit_with_what_was_learned_held(name, degree):
    X, y, queries = rows()
    model = model_of(name, degree)
    without = smoother_by_heads(model, X, X, left_out=np.arange(N))
    assert_allclose(model.attention_weights(None), without, atol=1e-9)
    assert_allclose(model.predict(None), without @ y, atol=1e-9)
    heads = model.attention_by_head(None)
    assert_array_equal(heads.weights[:, np.arange(N), np.arange(N)], 0.0)
    left = y - without @ y
    std = model.predict(queries, return_std=True)[1]
    smoother = model.attention_weights(queries)
    assert_allclose(std, np.sqrt(np.mean(left**2) * (smoother**2).sum(axis=1)), rtol=1e-7)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", REFITTED)
def test_intervals_are_the_jackknife_plus_of_refits(name, degree):
    X, y, queries = rows()
    model = model_of(name, degree)
    left = np.abs(y - smoother_by_heads(model, X, X, left_out=np.arange(N)) @ y)
    rank, bounds = int(np.ceil(0.8 * (N + 1))), []
    for query in queries:
        at = smoother_by_heads(model, X, np.tile(query, (N, 1)), left_out=np.arange(N)) @ y
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
@pytest.mark.parametrize("name", [n for n in TOLD if not n.startswith("encoder")])
def test_score_is_that_of_the_leave_one_out_predictions(name, degree):
    _, y, _ = rows()
    model = model_of(name, degree)
    assert_allclose(model.loo_score_, r2_score(y, model.predict(None)), atol=1e-3)
    assert model.honest_loo_score_ is None


@pytest.mark.parametrize("name", ["heads", "three heads", "mixture", "sample", "hierarchical"])
def test_gradients_at_degree_one_are_mean_slopes_by_the_gates(name):
    X, y, queries = rows()
    model, step = model_of(name, 1), 1e-6
    told = model.attention_by_head(queries)
    ((lines, _, ridge),) = lines_of(model, X, queries)
    shifts = step * np.eye(2) * X.std(axis=0)
    for i, gradient in enumerate(model.predict_gradient(queries)):
        slope = np.zeros(lines.shape[1])
        for gate, weights in zip(told.gates[i], told.weights[:, i], strict=True):
            away = lines - weights @ lines
            covariance = away.T @ (weights[:, None] * away) + ridge * np.eye(len(slope))
            cross = away.T @ (weights * (y - weights @ y))
            slope += gate * np.linalg.solve(covariance, cross)
        axis = model.curvature_axis_
        after, before = (
            lines_by_definition(X, queries[i] + sign * shifts, axis) for sign in (1.0, -1.0)
        )
        expected = (after - before) @ slope / (2.0 * np.diag(shifts))
        assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


def test_gradients_of_means_hold_gates_and_factors():
    X, y, queries = rows()
    shifts = 1e-6 * np.eye(2) * X.std(axis=0)
    for name in ("sample", "encoder", "mixture"):  # where there are none of the row: exact
        parameters = {**CONFIGURATIONS[name], "degree": 0, "rank_features": False}
        model = fitted(X, y, **parameters)
        found = model.predict_gradient(queries)
        for j, shift in enumerate(shifts):
            moved = model.predict(queries + shift) - model.predict(queries - shift)
            assert_allclose(found[:, j], moved / (2.0 * shift[j]), rtol=1e-4, atol=1e-6)
    model = fitted(X, y, n_heads=2, degree=0, rank_features=False)
    gates = model.attention_by_head(queries).gates
    for j, shift in enumerate(shifts):
        after, before = (
            model.attention_by_head(queries + sign * shift).weights @ y for sign in (1.0, -1.0)
        )
        expected = np.einsum("qh,hq->q", gates, (after - before) / (2.0 * shift[j]))
        found = model.predict_gradient(queries)[:, j]
        assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_query_factors_are_one_where_nothing_depends_on_the_query(name):
    X, _, queries = rows()
    factors = model_of(name, 1).query_factors(queries)
    assert factors.shape == (9,)
    if name in ("dynamic", "hierarchical"):
        assert (factors > 0.0).all()
        assert np.ptp(np.log(factors)) > 0.1
        lengths = np.linalg.norm(model_of(name, 1).projection_, axis=1)
        mean = np.sqrt(np.mean(model_of(name, 1).query_factors(X) ** 2))
        assert_allclose(model_of(name, 1).w_, lengths * mean, rtol=1e-9)
    else:
        assert_array_equal(factors, 1.0)


def test_query_factors_of_members_are_their_geometric_mean():
    X, y, queries = rows()
    model = fitted(X, y, modifier="dynamic", n_estimators=2, degree=0, rank_features=False)
    at = model.attention_by_head(queries).weights
    # each member's weights tell its own factor, under its own metric
    logs = []
    for weights, projection in zip(at, model.projection_, strict=True):
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
def test_attributes_of_each_kind(degree):
    X, _, queries = rows()
    model = model_of("sample", degree)
    assert model.sample_factors_.shape == (N,)
    assert model.sample_factors_.max() == 1.0
    assert (model.sample_factors_ > 0.0).all()
    mixture = model_of("mixture", degree)
    assert 0.0 < mixture.mixture_weight_ < 1.0
    gates = mixture.attention_by_head(queries).gates
    share = mixture.mixture_weight_
    assert_allclose(gates, np.tile([share, 1.0 - share], (9, 1)), rtol=1e-12)
    fixed = mixture.projection_[1] * X.std(axis=0, ddof=1)[:, None]
    size = fixed[0, 0]  # one factor of all standardised features, and ranks
    assert_allclose(fixed[:, :2], size * np.eye(2), rtol=1e-6, atol=1e-9)
    assert_allclose(mixture.rank_w_[1], size, rtol=1e-6)
    heads = model_of("heads", degree)
    assert isinstance(heads.projection_, list)
    assert len(heads.projection_) == len(heads.rank_w_) == 2
    shares = heads.attention_by_head(X).gates.mean(axis=0)
    lengths = np.array([np.linalg.norm(matrix, axis=1) for matrix in heads.projection_])
    assert_allclose(heads.w_, np.sqrt(shares @ lengths**2), rtol=1e-9)
    for name in NAMES:
        assert hasattr(model_of(name, degree), "sample_factors_") == ("sample" in name)
        has_mixture = name in ("mixture", "one component")
        assert hasattr(model_of(name, degree), "mixture_weight_") == has_mixture


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_loss_curves_are_counted_and_fall(name, degree):
    model = model_of(name, degree)
    assert np.isfinite(model.loss_curve_).all()
    assert all(isinstance(loss, float) for loss in model.loss_curve_)
    if name not in ENSEMBLES:
        assert len(model.loss_curve_) == model.n_iter_ + 1
    has_scores = name == "encoder"
    assert (model.validation_scores_ is not None) == has_scores
    if has_scores:
        assert np.isfinite(model.validation_scores_).all()


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", ["sample", "dynamic", "hierarchical", "heads"])
def test_the_loss_is_at_most_that_of_the_metric_alone(name, degree):
    X, y, _ = rows()
    parameters = {**CONFIGURATIONS[name], "n_heads": 1, "modifier": None}
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
    told = model.attention_by_head(queries)
    assert_allclose(told.gates, 1.0 / 3.0)
    assert_allclose(told.weights, kernel_weights_by_definition(model, X, queries), atol=1e-9)
    if degree == 0:
        assert_allclose(told.weights.mean(axis=0) @ y, model.predict(queries), atol=1e-12)
    for attribute in (model.projection_, model.rank_w_):
        assert isinstance(attribute, list)
        assert len(attribute) == 3
    lengths = np.array([np.linalg.norm(matrix, axis=1) for matrix in model.projection_])
    assert_allclose(model.w_, np.sqrt((lengths**2).mean(axis=0)), rtol=1e-9)
    assert (lengths[0] != lengths[1]).any()


@pytest.mark.parametrize("degree", [0, 1])
def test_members_may_have_heads(degree):
    _, y, queries = rows()
    model = model_of("members of heads", degree)
    told = model.attention_by_head(queries)
    assert told.weights.shape == (2, 9, N)
    assert_allclose(told.gates, 0.5)
    assert [len(each) for each in model.projection_] == [2, 2]
    if degree == 0:
        mean = told.weights.mean(axis=0)
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
        assert np.isfinite(model.honest_loo_score_)
        assert model.honest_loo_score_ < 1.0
        gaps.append(model.loo_score_ - model.honest_loo_score_)
    assert np.mean(gaps) > 0.0


def test_random_state_chooses_the_queries_of_members():
    X, y, queries = rows()
    parameters = {"n_estimators": 2, "parametrization": "feature", "degree": 0}
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
    if hasattr(model, "sample_factors_"):
        pairs = zip(listed(other.sample_factors_), listed(model.sample_factors_), strict=True)
        for found, expected in pairs:
            assert_array_equal(found, expected[order])


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
        factors = weighted.sample_factors_
        assert_allclose(expanded.sample_factors_, factors[repeated], rtol=1e-8)
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
    if name not in ("encoder", "dropout", "compact"):  # where rounding is carried along
        assert_allclose(twice[:, 0], model_of(name, degree).predict(queries), atol=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_one_head_and_no_modifier_are_the_plain_model(name):
    X, y, queries = rows()
    parameters = {"degree": 1, "parametrization": CONFIGURATIONS[name].get("parametrization")}
    parameters["parametrization"] = parameters["parametrization"] or "auto"
    expected = fitted(X, y, **parameters)
    neutral = {
        "modifier": None, "n_heads": 1, "mixture": False, "hidden_layer_sizes": [],
        "dropout": 0.0, "n_estimators": 1,
    }  # fmt: skip
    found = fitted(X, y, **parameters, **neutral)
    assert_array_equal(found.predict(queries), expected.predict(queries))
    assert found.loss_curve_ == expected.loss_curve_
    if name != "dropout":
        assert (model_of(name, 1).predict(queries) != expected.predict(queries)).any()


@pytest.mark.parametrize("degree", [0, 1])
def test_dropout_learns_another_metric(degree):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (150, 2))
    y = np.sin(4.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(150)
    ratios = []
    for dropout in (0.0, 0.5, 0.9):
        ratios.append(fitted(X, y, degree=degree, dropout=dropout, rank_features=False).w_)
    # fewer rows are seen at a time, unless the start is best under dropout too
    assert max(np.abs(np.log(other / ratios[0])).max() for other in ratios[1:]) > 0.02


# ---------------------------------------------------------------------------------------------
# Many rows


def many(n):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(5.0 * X[:, 0]) + 0.3 * rng.standard_normal(n)


@pytest.mark.parametrize("name", ["sample", "dynamic", "hierarchical", "heads", "mixture"])
def test_what_is_learned_in_single_precision_predicts_as_well(name):
    X, y = many(520)
    model = fitted(X, y, **CONFIGURATIONS[name])
    assert_allclose(model.loo_score_, r2_score(y, model.predict(None)), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sample", "dynamic", "heads", "mixture", "encoder", "members"])
def test_honest_scores_are_of_rows_that_were_no_queries(name):
    X, y = many(1150)
    parameters = {**CONFIGURATIONS[name], "degree": 0, "rank_features": False}
    model = fitted(X, y, **parameters, parametrization="feature")
    best = 1.0 - 0.3**2 / y.var()
    assert abs(model.honest_loo_score_ - best) < 0.1
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
    parameters = {"random_state": 0, **CONFIGURATIONS[name], "max_iter": 5}
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
        assert np.isfinite(far.attention_by_head(at).weights).all()


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


@pytest.mark.parametrize("name", ["sample", "heads", "encoder", "members"])
def test_an_interrupted_fit_leaves_the_estimator_as_it_was(name, monkeypatch):
    X, y, queries = rows()
    parameters = {**CONFIGURATIONS[name], "parametrization": "feature"}
    model = fitted(X, y, **parameters)
    before, predicted = dict(vars(model)), model.predict(queries)
    calls, most, weights = [], [np.inf], _objective.kernel_weights

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) > most[0]:
            raise KeyboardInterrupt
        return weights(*arguments)

    monkeypatch.setattr(_objective, "kernel_weights", interrupted)
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
    for name in ("dynamic", "hierarchical", "encoder", "dropout", "members"):
        model = ParametricAttentionRegressor(**CONFIGURATIONS[name]).fit(X, y)
        assert np.isfinite(model.predict(queries)).all()
    assert state() == before


def test_out_of_bag_scores_do_not_depend_on_the_unit_of_targets():
    X, y, _ = rows()
    model, unit = model_of("members", 1), 1e200
    other = clone(model).fit(X, unit * y)
    assert_allclose(other.honest_loo_score_, model.honest_loo_score_, rtol=1e-6)


@pytest.mark.parametrize(
    "parameters", [{"modifier": "hierarchical"}, {"n_heads": 4}, {"n_heads": 2}], ids=str
)
def test_features_of_few_values_can_be_learned_from(parameters):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (200, 1)).astype(float)
    if parameters == {"n_heads": 2}:  # three rows in one place, or so
        X = np.where(np.arange(200)[:, None] < 198, 0.0, 1.0)
    y = X[:, 0] + 0.1 * rng.standard_normal(200)
    model = fitted(X, y, **parameters)
    assert np.isfinite(model.predict(X)).all()


def test_more_heads_than_rows_are_refused_or_learned():
    X, y, queries = rows()
    model = fitted(X[:4], y[:4], n_heads=6)
    assert np.isfinite(model.predict(queries)).all()


def test_query_factors_of_members_of_a_constant_target_are_one():
    X, _, queries = rows()
    model = fitted(X, np.ones(N), n_estimators=2)
    assert_array_equal(model.query_factors(queries), np.ones(9))


@pytest.mark.parametrize(
    ("parameters", "attribute"),
    [({"modifier": "sample"}, "sample_factors_"), ({"mixture": True}, "mixture_weight_")],
)
def test_attributes_are_there_for_constant_targets_too(parameters, attribute):
    X, _, _ = rows()
    assert hasattr(fitted(X, np.ones(N), **parameters), attribute)


# ---------------------------------------------------------------------------------------------
# Parameters


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({**NEEDED["sample"], **NEEDED["heads"]}, "modifier='sample', n_heads=2"),
        ({**NEEDED["sample"], **NEEDED["mixture"]}, "modifier='sample', mixture=True"),
        ({**NEEDED["sample"], **NEEDED["encoder"]}, r"modifier=.*hidden_layer_sizes=\(3,\)"),
        ({**NEEDED["heads"], **NEEDED["mixture"]}, "n_heads=2, mixture=True"),
        ({**NEEDED["heads"], **NEEDED["encoder"]}, r"n_heads=2, hidden_layer_sizes=\(3,\)"),
        ({**NEEDED["mixture"], **NEEDED["encoder"]}, r"mixture=True, hidden_layer_sizes=\(3,\)"),
        ({"hidden_layer_sizes": (0,)}, r"positive whole numbers.*got \(0,\)"),
        ({"hidden_layer_sizes": (4, 2.5)}, r"positive whole numbers.*got \(4, 2\.5\)"),
        ({"hidden_layer_sizes": (True,)}, "positive whole numbers"),
        ({"hidden_layer_sizes": 5}, "hidden_layer_sizes"),
        ({"modifier": "none"}, "modifier"),
        ({"n_heads": 0}, "n_heads"),
        ({"mixture": "yes"}, "mixture"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": -0.1}, "dropout"),
        ({"n_estimators": 0}, "n_estimators"),
    ],
)
def test_what_cannot_be_combined_is_refused(parameters, message):
    X, y, _ = rows()
    model = ParametricAttentionRegressor(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "n_features_in_")


@pytest.mark.parametrize("more", [*NEEDED.values(), {"dropout": 0.2}, {"n_estimators": 2}], ids=str)
def test_the_textbooks_recipe_learns_one_metric_only(more):
    X, y, _ = rows()
    textbook = {"parametrization": "scalar", "degree": 0, "rank_features": False, "solver": "sgd"}
    (name,) = more
    with pytest.raises(ValueError, match=f"solver='sgd'.*{name}.*Use solver='auto'"):
        fitted(X, y, **textbook, **more)


@pytest.mark.parametrize("name", NAMES)
def test_there_is_no_nadaraya_watson_of_it(name):
    X, y, _ = rows()
    plain = {"degree": 0, "rank_features": False, "parametrization": "feature"}
    if name == "dropout":  # a metric alone, however it was learned
        model = fitted(X, y, **{**CONFIGURATIONS[name], **plain})
        assert_allclose(model.to_nadaraya_watson().predict(X), model.predict(X), rtol=1e-6)
        return
    parameters = {**CONFIGURATIONS[name], **plain}
    parameters.pop("n_components", None)
    with pytest.raises(ValueError, match=r"needs.*nothing beside the metric.*Fit"):
        fitted(X, y, **parameters).to_nadaraya_watson()


def test_another_fit_leaves_nothing_of_the_last_one():
    X, y, _ = rows()
    model = fitted(X, y, modifier="sample", degree=0)
    assert hasattr(model, "sample_factors_")
    model.set_params(modifier=None, mixture=True).fit(X, y)
    assert not hasattr(model, "sample_factors_")
    assert hasattr(model, "mixture_weight_")
    model.set_params(mixture=False, n_heads=2).fit(X, y)
    assert not hasattr(model, "mixture_weight_")
    assert isinstance(model.projection_, list)
    model.set_params(n_heads=1, hidden_layer_sizes=(3,), max_iter=3).fit(X, y)
    assert model.validation_scores_ is not None
    model.set_params(hidden_layer_sizes=(), max_iter=100).fit(X, y)
    fresh = fitted(X, y, degree=0)
    assert set(vars(model)) == set(vars(fresh))
    assert_array_equal(model.predict(X), fresh.predict(X))


@pytest.mark.parametrize("name", ["sample", "heads", "mixture", "dynamic", "members", "encoder"])
def test_warm_start_begins_where_the_metric_was(name):
    X, y, queries = rows()
    parameters = {**CONFIGURATIONS[name], "parametrization": "feature"}
    model = ParametricAttentionRegressor(**parameters, warm_start=True, random_state=0)
    cold = model.fit(X, y).loss_curve_
    expected = model.predict(queries)
    warm = model.fit(X, y).loss_curve_
    assert warm[0] <= cold[0]
    assert_allclose(warm[-1], cold[-1], atol=0.25)
    assert np.corrcoef(model.predict(queries), expected)[0, 1] > 0.9
    model.set_params(n_estimators=2 if name != "members" else 1).fit(X, y)  # another number of them
    assert np.isfinite(model.predict(queries)).all()
    other = fitted(X, y, **{**parameters, "n_estimators": model.n_estimators})
    assert_allclose(model.loss_curve_, other.loss_curve_)


@pytest.mark.parametrize("name", ["sample", "heads", "mixture", "encoder", "dropout", "members"])
def test_early_stopping_keeps_the_best_step(name):
    X, y, queries = rows()
    parameters = {**CONFIGURATIONS[name], "max_iter": 30, "n_iter_no_change": 4}
    model = fitted(X, y, **parameters, early_stopping=True, validation_fraction=0.3)
    scores = model.validation_scores_
    assert np.isfinite(scores).all()
    assert len(scores) == len(model.loss_curve_)
    assert model.predict(None).shape == (N,)
    again = clone(model).fit(X, y)
    assert_array_equal(again.predict(queries), model.predict(queries))
    other = clone(model).set_params(random_state=1).fit(X, y)
    assert (other.predict(queries) != model.predict(queries)).any()


class Told:
    """A callback that keeps the predictions of every step, and may stop training."""

    def __init__(self, most=9999):
        self.most, self.predictions = most, []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X, fitted_estimator):
        if context.task_name == "step":
            self.predictions.append(fitted_estimator.predict(X))
        return len(self.predictions) >= self.most


@pytest.mark.parametrize("name", ["sample", "dynamic", "heads", "mixture", "encoder", "dropout"])
def test_callbacks_are_told_of_every_step_of_all_stages(name):
    pytest.importorskip("sklearn.callback")
    X, y, _ = rows()
    parameters = {**CONFIGURATIONS[name], "max_iter": 4, "parametrization": "projection"}
    told = Told()
    model = ParametricAttentionRegressor(**parameters, random_state=0).set_callbacks(told)
    model.fit(X, y)
    # the starts of all three stages are told too, and only the first is in the curve
    assert len(told.predictions) == model.n_iter_ + 3
    if name not in ("encoder", "dropout"):  # whose last step need not be the best
        assert_allclose(told.predictions[-1], model.predict(X), rtol=1e-9)


@pytest.mark.parametrize("more", [{"modifier": "dynamic"}, {"n_estimators": 3}], ids=str)
def test_callbacks_may_be_told_of_the_steps_of_all_stages_and_members(more):
    pytest.importorskip("sklearn.callback")
    X, y, _ = rows()
    told = Told()
    model = ParametricAttentionRegressor("feature", max_iter=4, tol=0.0, random_state=0, **more)
    model.set_callbacks(told).fit(X, y)
    assert len(told.predictions) > model.n_iter_


@pytest.mark.parametrize("name", ["sample", "heads", "encoder"])
def test_callbacks_can_stop_training(name):
    pytest.importorskip("sklearn.callback")
    X, y, _ = rows()
    parameters = {**CONFIGURATIONS[name], "max_iter": 50, "tol": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # stopped on purpose
        model = ParametricAttentionRegressor("feature", **parameters, random_state=0)
        model.set_callbacks(Told(most=3)).fit(X, y)
    assert model.n_iter_ <= 3


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
    model.attention_by_head(queries)
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
# Outside the support of a head


@pytest.mark.parametrize("degree", [0, 1])
def test_gradients_are_missing_where_predictions_are(degree):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (80, 2))
    y = np.where(X[:, 0] < 0.0, np.sin(4.0 * X[:, 1]), X[:, 0])
    model = ParametricAttentionRegressor(
        "feature",
        degree=degree,
        kernel="epanechnikov",
        n_heads=2,
        rank_features=False,
        extrapolation="nan",
    ).fit(X, y)
    queries = rng.uniform(-1.6, 1.6, (300, 2))
    with pytest.warns(UserWarning, match="no training row within"):
        missing = np.isnan(model.predict(queries))
    with pytest.warns(UserWarning, match="no training row within"):
        slopes = model.predict_gradient(queries)
    assert 0 < missing.sum() < 300
    assert_array_equal(np.isnan(slopes).all(axis=1), missing)
