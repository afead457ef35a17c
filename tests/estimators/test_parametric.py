"""Learned attention: what is found, how it is trained, and what is read off it."""

import pickle
import pickletools
import subprocess
import sys
import warnings

import numpy as np
import pytest
from definitions import Told
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score

from skattn import Linear, NadarayaWatsonRegressor, ParametricAttentionRegressor
from skattn.datasets import make_power_sine
from skattn.kernels import KERNELS
from skattn.kernels.student import Student
from skattn.solvers import LBFGS, Adam, GaussNewton, GradientDescent
from skattn.variants import Mixture, SampleReweighting

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:.*copies of others:UserWarning")

SLOPED = [name for name, kernel in KERNELS.items() if kernel.has_slope]
SOLVERS = ["gauss-newton", "lbfgs", "adam"]
TEXTBOOK = {"metric": "scalar", "degree": 0, "kernel": "gaussian"}
CONFIGURATIONS = {
    "default": {},
    "lines": {"metric": "diagonal", "curvature": True},
    "means": {"degree": 0},
    "plain means": {"metric": "diagonal", "degree": 0, "kernel": "gaussian"},
    "scalar": {"metric": "scalar"},
    "linear": {"metric": "linear", "curvature": True},
    "linear of ranks": {"metric": Linear(ranks=True), "degree": 0},
    "one component": {"metric": Linear(n_components=1, ranks=True), "degree": 0},
    "compact": {"metric": "diagonal", "kernel": "tricube", "curvature": True},
    "straight lines": {"curvature": False},
}
# Runs code where importing torch fails, whoever tries.
WITHOUT_TORCH = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("no torch here")
sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture(params=CONFIGURATIONS, ids=str)
def configuration(request):
    return CONFIGURATIONS[request.param]


@pytest.fixture
def plane(rng):
    """Forty rows of two features of different units, and queries within and beyond them."""
    X = rng.uniform(-1.0, 1.0, (40, 2))
    y = np.sin(3.0 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(40)
    return X * [1.0, 10.0], y, rng.uniform(-1.2, 1.2, (9, 2)) * [1.0, 10.0]


def mean_square(model, X, y):
    return np.mean((model.predict(X) - y) ** 2)


def fitted(X, y, **parameters):
    return ParametricAttentionRegressor(**parameters).fit(X, y)


# ---------------------------------------------------------------------------------------------
# What is found


@pytest.mark.parametrize(
    "parameters",
    [
        {"degree": 0},
        {},  # with curvature, kernels need not be as narrow in what is relevant
    ],
)
def test_a_factor_for_each_feature_finds_the_irrelevant_ones(parameters):
    n, ratios, gains = 250, [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1.0, 1.0, (n + 150, 3))
        truth = np.sin(7.0 * X[:, 0])
        y = truth + 0.1 * rng.standard_normal(len(X))
        scalar, feature = (
            fitted(X[:n], y[:n], metric=name, **parameters) for name in ("scalar", "diagonal")
        )
        factors = feature.w_ * X[:n].std(axis=0)
        ratios.append(factors[1:].max() / factors[0])
        gains.append(mean_square(feature, X[n:], y[n:]) / mean_square(scalar, X[n:], y[n:]))
    assert np.median(ratios) <= 0.05
    assert max(ratios) <= 0.05
    assert max(gains) <= 0.9


@pytest.mark.parametrize("degree", [0, 1])
def test_a_projection_finds_a_rotated_metric(degree):
    angles, gains = [], []
    direction = np.array([np.cos(0.6), np.sin(0.6)])
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1.0, 1.0, (300, 2))
        y = np.sin(6.0 * X @ direction) + 0.1 * rng.standard_normal(300)
        feature, projection = (
            fitted(X[:150], y[:150], metric=name, degree=degree) for name in ("diagonal", "linear")
        )
        axis = np.linalg.svd(projection.members_[0].projections[0])[0][:, 0]
        angles.append(np.degrees(np.arccos(min(abs(axis @ direction), 1.0))))
        gains.append(
            mean_square(projection, X[150:], y[150:]) / mean_square(feature, X[150:], y[150:])
        )
    assert np.median(angles) <= 10.0
    assert max(gains) <= 0.9


def test_lines_bend_along_the_direction_that_curves():
    angles, gains = [], []
    direction = np.array([0.0, 1.0, 0.0])
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1.0, 1.0, (350, 3))
        truth = 4.0 * (X @ direction) ** 2 + X[:, 2]
        y = truth[:100] + 0.1 * rng.standard_normal(100)
        straight, bent = (fitted(X[:100], y, curvature=bends) for bends in (False, True))
        assert_array_equal(straight.members_[0].curvature_axis, 0.0)
        axis = bent.members_[0].curvature_axis / X[:100].std(axis=0, ddof=1)
        angles.append(np.degrees(np.arccos(abs(axis @ direction) / np.linalg.norm(axis))))
        gains.append(
            mean_square(bent, X[100:], truth[100:]) / mean_square(straight, X[100:], truth[100:])
        )
    assert np.median(angles) <= 10.0
    assert np.mean(gains) <= 0.5
    assert max(gains) < 1.0


def test_beyond_the_training_rows_only_lines_are_extrapolated():
    x = np.linspace(-1.0, 1.0, 60)[:, None]
    model = fitted(x, x[:, 0] ** 2, metric="linear", curvature=True)
    far = model.predict([[50.0], [100.0], [200.0]])
    assert abs(far[2] - far[1]) < 3.0 * abs(far[1] - far[0]) + 1.0
    assert np.abs(far).max() < 200.0


def test_one_component_finds_the_only_direction_that_matters():
    angles, direction = [], np.array([2.0, -1.0, 0.5]) / np.sqrt(5.25)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1.0, 1.0, (150, 3))
        y = np.sin(3.0 * X @ direction) + 0.1 * rng.standard_normal(150)
        (projection,) = (
            fitted(X, y, metric=Linear(n_components=1), degree=0).members_[0].projections
        )
        assert projection.shape == (3, 1)
        axis = projection[:, 0] / np.linalg.norm(projection)
        angles.append(np.degrees(np.arccos(min(abs(axis @ direction), 1.0))))
    assert np.median(angles) <= 10.0


@pytest.mark.parametrize("seed", range(3))
def test_default_at_degree_zero_is_within_one_percent_of_the_best_factor(seed):
    X, y = make_power_sine(random_state=seed)
    model = fitted(X, y, **TEXTBOOK)
    best = min(loss_of_one_factor(X[:, 0], y, w) for w in np.geomspace(0.1, 100.0, 2000))
    assert loss_of_one_factor(X[:, 0], y, model.w_[0]) <= 1.01 * best
    assert_allclose(
        np.sum((y - model.predict(None)) ** 2),
        loss_of_one_factor(X[:, 0], y, model.w_[0]),
        rtol=1e-9,
    )


def loss_of_one_factor(x, y, w):
    """Summed squared leave-one-out error of a Gaussian kernel's means."""
    logits = -0.5 * (w * (x[:, None] - x)) ** 2
    np.fill_diagonal(logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.sum((y - weights @ y / weights.sum(axis=1)) ** 2)


def test_factor_is_canonical_and_that_of_the_closed_form(wave):
    X, y = wave
    for state in range(5):
        model = fitted(
            X, y, **TEXTBOOK, alpha=0.0, solver=GaussNewton(tol=1e-10), random_state=state
        )
        assert_allclose(model.w_, 17.88, rtol=0.01)
        assert_allclose(model.bandwidth_, 1.0 / model.w_)
    closed = NadarayaWatsonRegressor().fit(X, y)
    assert_allclose(model.bandwidth_, closed.bandwidth_, rtol=0.01)


# ---------------------------------------------------------------------------------------------
# The textbook's recipe


def textbook(X, y, w, rate, n_epochs, alpha=0.0):
    """The recipe in NumPy: losses before each epoch and after the last, and w at the same times.

    The gradient of the summed squared leave-self-out error by the chain rule, in w itself.
    """
    w, losses, path = np.array(w, dtype=float), [], []
    for _ in range(n_epochs + 1):
        squares = (X[:, None] - X[None]) ** 2  # (n, n, d)
        logits = -0.5 * (squares * w**2).sum(axis=2)
        np.fill_diagonal(logits, -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        left = y - weights @ y
        losses.append(np.sum(left**2) + alpha * np.linalg.norm(w))
        path.append(w)
        by_logit = -2.0 * left[:, None] * weights * (y[None] - (weights @ y)[:, None])
        gradient = np.einsum("qi,qij->j", by_logit, -squares * w)
        gradient = gradient if len(w) > 1 else gradient.sum(keepdims=True)
        w = w - rate * (gradient + alpha * w / np.linalg.norm(w))
    return np.array(losses), np.array(path)


@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_gradient_descent_is_the_textbooks_run_in_every_epoch(alpha):
    X, y = make_power_sine(50, random_state=0)
    losses, path = textbook(X, y, [1.0], 0.5, 5, alpha)
    for n_epochs in range(1, 6):
        recipe = GradientDescent(learning_rate=0.5, max_iter=n_epochs)
        model = fitted(X, y, **TEXTBOOK, init=1.0, alpha=alpha, solver=recipe)
        assert model.n_iter_ == n_epochs
        assert_allclose(model.loss_curve_, losses[: n_epochs + 1], rtol=1e-6)
        assert_allclose(model.w_, np.abs(path[n_epochs]), rtol=1e-6)
    default = fitted(X, y, **TEXTBOOK, init=1.0, alpha=alpha, solver=GradientDescent())
    assert default.loss_curve_ == model.loss_curve_


def test_gradient_descent_in_several_features_is_the_recipe_too(rng):
    X = rng.uniform(-1.0, 1.0, (30, 2)) + 50.0
    y = np.sin(2.0 * X[:, 0]) + 7.0
    losses, path = textbook(X, y, [1.5, 1.5], 0.05, 6)
    recipe = GradientDescent(learning_rate=0.05, max_iter=6)
    parameters = {**TEXTBOOK, "metric": "diagonal", "init": 1.5, "alpha": 0}
    model = fitted(X, y, **parameters, solver=recipe)
    assert_allclose(model.loss_curve_, losses, rtol=1e-6)
    assert_allclose(model.w_, np.abs(path[-1]), rtol=1e-6)


def test_gradient_descent_overshoots_and_gets_stuck_where_the_default_does_not():
    X, y = make_power_sine(50, random_state=0)
    stuck = fitted(X, y, **TEXTBOOK, init=1.0, alpha=0, solver=GradientDescent())
    default = fitted(X, y, **TEXTBOOK)
    best = loss_of_one_factor(X[:, 0], y, default.w_[0])
    assert stuck.w_[0] > 3.0 * default.w_[0]
    assert loss_of_one_factor(X[:, 0], y, stuck.w_[0]) > 1.05 * best
    assert np.ptp(stuck.loss_curve_[1:]) < 0.02 * stuck.loss_curve_[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"degree": 1}, "degree=1. Use degree=0"),
        ({"metric": "auto"}, "metric='auto'"),
        ({"metric": Linear()}, r"metric=Linear\(\)"),
        ({"init": "loo"}, "init='loo'. Use init=a number"),
        ({"variant": Mixture()}, r"variant=Mixture\(\)"),
        ({"n_estimators": 2}, "n_estimators=2"),
        ({"validation_fraction": 0.2}, "validation_fraction=0.2"),
        ({"curvature": True}, "curvature=True"),
    ],
)
def test_gradient_descent_refuses_what_the_textbook_does_not_have(wave, wrong, message):
    parameters = {**TEXTBOOK, "init": 1.0, "solver": GradientDescent()}
    with pytest.raises(ValueError, match=message):
        fitted(*wave, **{**parameters, **wrong})


def test_divergence_is_said(plane):
    X, y, _ = plane
    recipe = GradientDescent(learning_rate=1e200)
    with pytest.raises(ValueError, match=r"learning_rate=1e\+200\) diverged in step"):
        fitted(X, y, **TEXTBOOK, init=1.0, solver=recipe)


# ---------------------------------------------------------------------------------------------
# Instabilities that were seen elsewhere


def test_rows_do_not_attend_to_themselves_in_training():
    # with itself among the keys, a row's error falls to zero as w grows: 1.4 against 5.9
    x, y = np.arange(8.0), np.array([0.0, 0.9, 1.6, 2.2, 2.1, 1.5, 0.8, 0.1])
    for w, expected in [(1.0, 0.2812), (3.0, 0.1875005), (10.0, 0.1875)]:
        assert_allclose(loss_of_one_factor(x, y, w) / 8.0, expected, atol=5e-5)
    model = fitted(x[:, None], y, **TEXTBOOK)
    error = np.mean((y - model.predict(None)) ** 2)
    assert 0.1874 < error < 1.01 * 0.1875
    assert np.isfinite(model.w_).all()
    assert_allclose(min(model.loss_curve_), np.log(error / y.var(ddof=1) + 1e-6), atol=1e-3)


@pytest.mark.parametrize("degree", [0, 1])
def test_a_start_that_is_too_large_is_left_again(plane, degree):
    X, y, _ = plane
    expected = fitted(X, y, degree=degree, metric="linear").loss_curve_[-1]
    for init in (0.3, 3.0, 30.0):
        model = fitted(X, y, degree=degree, metric="linear", init=init)
        assert_allclose(model.loss_curve_[-1], expected, atol=0.3)
    stuck = fitted(X, y, degree=degree, metric="linear", init=3000.0)
    assert np.isfinite(stuck.w_).all()
    assert np.isfinite(stuck.predict(X)).all()


@pytest.mark.parametrize("degree", [0, 1])
def test_the_start_follows_from_the_data(degree, rng):
    # a steep target among many rows, where a start at w=1 is far away
    X = np.sort(rng.uniform(0.0, 1.0, 300))[:, None]
    y = np.sin(60.0 * X[:, 0]) + 0.05 * rng.standard_normal(300)
    model = fitted(X, y, degree=degree, metric="linear")
    assert model.loo_score_ > 0.98
    assert len(model.loss_curve_) == model.n_iter_ + 1
    assert (np.diff(model.loss_curve_) <= 0.0).all()


def copies(rng, n=100):
    """Rows of which every one is there three times, and where they come from."""
    X = rng.uniform(-1.0, 1.0, (n, 2))
    y = np.sin(3.0 * X[:, 0]) + 0.5 * rng.standard_normal(n)
    rows = np.repeat(np.arange(n), np.where(np.arange(n) % 3 == 0, 2, 1))
    return X, y, rows


def test_copies_narrow_the_kernel_and_groups_undo_it(rng):
    X, y, rows = copies(rng)
    plain = {"degree": 0, "metric": "scalar"}
    single = fitted(X, y, **plain)
    copied = fitted(X[rows], y[rows], **plain)
    grouped = ParametricAttentionRegressor(**plain).fit(X[rows], y[rows], groups=rows)
    assert copied.loo_score_ > single.loo_score_ + 0.05
    assert abs(grouped.loo_score_ - single.loo_score_) < 0.08
    deviation = np.abs(np.log(grouped.w_ / single.w_))
    assert (deviation < 0.5 * np.abs(np.log(copied.w_ / single.w_)) + 0.1).all()


def test_copies_are_warned_of(rng):
    X, y, rows = copies(rng)
    with pytest.warns(UserWarning, match="copies of others"):
        fitted(X[rows], y[rows], degree=0)


@pytest.mark.parametrize("unit", [1e4, 1e-4])
def test_predictions_do_not_depend_on_the_unit_of_features(plane, configuration, unit):
    X, y, queries = plane
    model = fitted(X, y, **configuration)
    other = fitted(X * unit, y, **configuration)
    assert_allclose(other.predict(queries * unit), model.predict(queries), rtol=1e-6)
    assert_allclose(other.w_ * unit, model.w_, rtol=1e-5)
    mixed = np.array([unit, 1.0])
    other = fitted(X * mixed + [0.0, 5.0], y, **configuration)
    predicted = other.predict(queries * mixed + [0.0, 5.0])
    assert_allclose(predicted, model.predict(queries), rtol=1e-6)


@pytest.mark.parametrize("unit", [1e250, 1e-250])
def test_extreme_units_of_features_neither_overflow_nor_underflow(plane, unit):
    X, y, queries = plane
    model = fitted(X, y)
    with np.errstate(over="raise"):
        other = fitted(X * unit, y)
    assert_allclose(other.predict(queries * unit), model.predict(queries), rtol=1e-6)
    assert_allclose(other.w_ * unit, model.w_, rtol=1e-5)


@pytest.mark.parametrize("unit", [1e6, 1e-6])
def test_predictions_follow_the_unit_of_the_target(plane, configuration, unit):
    X, y, queries = plane
    expected = unit * fitted(X, y, **configuration).predict(queries)
    shift = 3.0 * unit
    predicted = fitted(X, unit * y + shift, **configuration).predict(queries)
    assert_allclose(predicted - shift, expected, rtol=1e-6, atol=1e-9 * unit)


@pytest.fixture(scope="module")
def many():
    """More rows than are queries in training, and a fit."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (1150, 2))
    y = np.sin(5.0 * X[:, 0]) + 0.3 * rng.standard_normal(1150)
    return X, y, fitted(X, y, metric="diagonal", degree=0)


def test_holdout_score_is_of_rows_that_were_no_queries(many):
    X, y, model = many
    best = 1.0 - 0.3**2 / y.var()
    assert abs(model.holdout_score_ - best) < 0.1
    assert abs(model.loo_score_ - best) < 0.05
    assert np.isnan(fitted(X[:60], y[:60]).holdout_score_)


def test_row_order_does_not_matter_beyond_the_queries_of_training(many):
    X, y, model = many
    order = np.random.default_rng(0).permutation(len(X))
    again = clone(model).fit(X[order], y[order])
    assert_array_equal(again.w_, model.w_)
    assert again.loss_curve_ == model.loss_curve_


@pytest.mark.parametrize("fraction", [None, 0.1])
@pytest.mark.parametrize("solver", ["gauss-newton", Adam(batch_size=15)])
@pytest.mark.filterwarnings("ignore:Training has not converged")
def test_same_seed_gives_the_same_bits_and_others_the_same_loss(plane, solver, fraction):
    X, y, queries = plane
    parameters = {"solver": solver, "validation_fraction": fraction}
    models = [fitted(X, y, **parameters, random_state=seed) for seed in (0, 0, 1, 2)]
    assert models[0].loss_curve_ == models[1].loss_curve_
    assert_array_equal(models[0].w_, models[1].w_)
    assert_array_equal(models[0].predict(queries), models[1].predict(queries))
    is_adam = solver != "gauss-newton"
    assert (models[0].w_ != models[2].w_).any() == (is_adam or fraction is not None)
    if fraction is None:
        errors = [np.mean((y - model.predict(None)) ** 2) for model in models]
        assert np.ptp(errors) < (0.05 if is_adam else 0.01) * np.mean(errors)
    else:
        assert min(model.score(X, y) for model in models) > 0.8


@pytest.mark.parametrize("solver", [GaussNewton(300), LBFGS(300), Adam(max_iter=300)])
@pytest.mark.filterwarnings("ignore:Training has not converged")
def test_solvers_reach_the_same_loss(plane, solver):
    X, y, _ = plane
    parameters = {"metric": "diagonal", "random_state": 0}
    expected = fitted(X, y, **parameters).loss_curve_[-1]
    model = fitted(X, y, **parameters, solver=solver)
    atol = 0.02 if isinstance(solver, Adam) else 0.01
    assert_allclose(model.loss_curve_[-1], expected, atol=atol)


# ---------------------------------------------------------------------------------------------
# What is read off the weights


def coordinates_by_definition(model, X, rows):
    """What the kernel sees of some rows, by the documented attributes."""
    member = model.members_[0]
    parts = [rows @ member.projections[0]]
    if member.rank_weights[0].any():
        ranks = []
        for column, training in zip(rows.T, X.T, strict=True):
            knots, counts = np.unique(training, return_counts=True)
            share = counts / len(X)
            level = share.cumsum() - 0.5 * share - 0.5
            ranks.append(np.interp(column, knots, level / np.sqrt(share @ level**2)))
        parts.append(np.column_stack(ranks) * member.rank_weights[0])
    return np.hstack(parts)


def lines_by_definition(model, X, rows):
    """Where lines are fitted: standardised features and, where they bend, a standardised square."""
    center, unit = X.mean(axis=0), X.std(axis=0, ddof=1)
    standardised = (rows - center) / unit
    axis = model.members_[0].curvature_axis
    if not axis.any():
        return standardised
    training = (X - center) / unit @ axis
    along = np.clip(standardised @ axis, training.min(), training.max())
    return np.column_stack([standardised, along**2 / (training**2).std()])


def rows_of_the_smoother(model, X, queries, left_out=None):
    """Rows of the smoother matrix, by definition; each without one training row if so asked."""
    keys, at = (coordinates_by_definition(model, X, rows) for rows in (X, queries))
    standardised, lines = lines_by_definition(model, X, X), lines_by_definition(model, X, queries)
    found = np.zeros((len(queries), len(X)))
    for q in range(len(queries)):
        kept = np.arange(len(X)) != (-1 if left_out is None else left_out[q])
        squared = ((keys - at[q]) ** 2).sum(axis=1)
        weights = kept * np.exp(KERNELS[model.kernel].log_profile(squared))
        weights = weights / weights.sum()
        if model.degree == 1:
            away = standardised - weights @ standardised
            covariance = away.T @ (weights[:, None] * away) + model.members_[0].ridge * np.eye(
                lines.shape[1]
            )
            arm = np.linalg.solve(covariance, lines[q] - weights @ standardised)
            weights = weights * (1.0 + away @ arm)
        found[q] = weights
    return found


DEFINED = [name for name in CONFIGURATIONS if name not in ("one component", "compact")]


@pytest.mark.parametrize("name", DEFINED)
def test_predictions_are_those_of_the_documented_attributes(plane, name):
    X, y, queries = plane
    model = fitted(X, y, **CONFIGURATIONS[name])
    expected = rows_of_the_smoother(model, X, queries)
    assert_allclose(model.attention_weights(queries), expected, atol=1e-9)
    assert_allclose(model.predict(queries), expected @ y, atol=1e-9)


@pytest.mark.parametrize("name", DEFINED)
def test_leave_one_out_is_a_refit_with_the_learned_metric_held(plane, name):
    X, y, queries = plane
    model = fitted(X, y, **CONFIGURATIONS[name])
    without = rows_of_the_smoother(model, X, X, left_out=np.arange(40))
    assert_allclose(model.predict(None), without @ y, atol=1e-9)
    left = y - without @ y
    assert_allclose(model.loo_score_, 1.0 - np.mean(left**2) / np.var(y, ddof=1), atol=0.03)
    std = model.predict(queries, return_std=True)[1]
    smoother = rows_of_the_smoother(model, X, queries)
    assert_allclose(std, np.sqrt(np.mean(left**2) * (smoother**2).sum(axis=1)), rtol=1e-7)


@pytest.mark.parametrize("name", DEFINED)
def test_intervals_are_the_jackknife_plus_of_refits_with_the_metric_held(plane, name):
    X, y, queries = plane
    model = fitted(X, y, **CONFIGURATIONS[name])
    left = np.abs(y - model.predict(None))
    rank, bounds = int(np.ceil(0.8 * 41)), []
    for query in queries:
        at = rows_of_the_smoother(model, X, np.tile(query, (40, 1)), left_out=np.arange(40)) @ y
        bounds.append([np.sort(at - left)[41 - rank - 1], np.sort(at + left)[rank - 1]])
    assert_allclose(model.predict_interval(queries, 0.8), bounds, atol=1e-7)


def test_attention_weights_times_targets_are_the_predictions(plane, configuration):
    X, y, queries = plane
    model = fitted(X, y, **configuration)
    for at in (queries, None):
        weights = model.attention_weights(at)
        assert_allclose(weights @ y, model.predict(at), rtol=1e-12, atol=1e-12)
        assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
        assert_allclose(model.attention_weights(at, top_k=40).toarray(), weights, atol=1e-15)
        if model.degree == 0:
            assert (weights >= 0.0).all()
    assert_array_equal(np.diag(model.attention_weights(None)), 0.0)
    assert_allclose(model.leverage(), np.diag(model.attention_weights(X)), rtol=1e-9)
    assert_allclose(model.effective_dof_, model.leverage().sum())


def test_everything_else_is_read_off_the_same_weights(plane, configuration):
    X, y, queries = plane
    model = fitted(X, y, **configuration)
    told = model.explain(queries, top_k=3)
    weights = model.attention_weights(queries)
    assert_allclose(told.predictions, model.predict(queries))
    assert_allclose(told.weights, np.take_along_axis(weights, told.rows, axis=1), atol=1e-15)
    assert_array_equal(told.targets, y[told.rows])
    expected = (X[told.rows] - queries[:, None]) * model.w_
    assert_allclose(told.differences, expected, rtol=1e-9)
    neighbors = model.effective_neighbors(queries)
    assert ((neighbors >= 1.0 - 1e-12) & (neighbors <= 40.0)).all()
    quantiles = model.predict_quantiles(queries, [0.1, 0.5, 0.9])
    assert (np.diff(quantiles, axis=1) >= 0.0).all()
    for local in (False, True):
        interval = model.predict_interval(queries, 0.8, local=local)
        assert (interval[:, 0] < interval[:, 1]).all()
    assert np.isfinite(model.predict(queries, return_std="local")[1]).all()
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize("name", ["plain means", "linear means"])
def test_gradients_at_degree_zero_are_the_derivatives(plane, name):
    X, y, queries = plane
    parameters = CONFIGURATIONS.get(name, {"metric": "linear", "degree": 0})
    model = fitted(X, y, **parameters)
    gradient = model.predict_gradient(queries)
    for j in range(2):
        step = 1e-6 * X[:, j].std() * np.eye(2)[j]
        expected = (model.predict(queries + step) - model.predict(queries - step)) / (2.0 * step[j])
        assert_allclose(gradient[:, j], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["default", "lines", "linear", "straight lines"])
def test_gradients_at_degree_one_are_the_slopes_of_the_fits_at_the_query(plane, name):
    X, y, queries = plane
    model = fitted(X, y, **CONFIGURATIONS[name])
    keys, at = (coordinates_by_definition(model, X, rows) for rows in (X, queries))
    lines, step = lines_by_definition(model, X, X), 1e-6
    for query, q, gradient in zip(queries, at, model.predict_gradient(queries), strict=True):
        squared = ((keys - q) ** 2).sum(axis=1)
        weights = np.exp(KERNELS[model.kernel].log_profile(squared))
        weights /= weights.sum()
        away = lines - weights @ lines
        covariance = away.T @ (weights[:, None] * away) + model.members_[0].ridge * np.eye(
            lines.shape[1]
        )
        slope = np.linalg.solve(covariance, away.T @ (weights * (y - weights @ y)))
        shifts = step * np.eye(2) * X.std(axis=0)
        before, after = (lines_by_definition(model, X, query + sign * shifts) for sign in (-1, 1))
        expected = (after - before) @ slope / (2.0 * np.diag(shifts))
        assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("metric", ["scalar", "diagonal"])
@pytest.mark.parametrize("kernel", SLOPED)
def test_nadaraya_watson_is_the_same_model(plane, kernel, metric):
    X, y, queries = plane
    model = fitted(X, y, metric=metric, kernel=kernel, degree=0)
    twin = model.to_nadaraya_watson()
    assert isinstance(twin, NadarayaWatsonRegressor)
    for at in (queries, None):
        assert_allclose(twin.predict(at), model.predict(at), rtol=1e-6, atol=1e-9)
    assert_allclose(twin.attention_weights(queries), model.attention_weights(queries), atol=1e-9)


@pytest.mark.parametrize("parameters", [{}, {"degree": 0}, {"degree": 0, "metric": "linear"}])
def test_there_is_no_nadaraya_watson_of_what_it_does_not_have(plane, parameters):
    with pytest.raises(ValueError, match="to_nadaraya_watson needs"):
        fitted(*plane[:2], **parameters).to_nadaraya_watson()


def test_nadaraya_watson_of_weights_and_groups(plane, rng):
    X, y, queries = plane
    weights, groups = rng.integers(0, 3, 40), rng.integers(0, 15, 40)
    model = ParametricAttentionRegressor("diagonal", degree=0)
    model.fit(X, np.column_stack([y, -y]), sample_weight=weights, groups=groups)
    twin = model.to_nadaraya_watson()
    for at in (queries, None):
        assert_allclose(twin.predict(at), model.predict(at), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", SLOPED)
def test_every_kernel_learns(plane, kernel, degree):
    X, y, queries = plane
    model = fitted(X, y, kernel=kernel, degree=degree)
    assert model.loo_score_ > 0.5
    assert np.isfinite(model.predict(queries)).all()
    assert_allclose(model.attention_weights(queries) @ y, model.predict(queries), atol=1e-12)


# ---------------------------------------------------------------------------------------------
# Weights, groups, outputs


@pytest.mark.parametrize("name", ["default", "plain means", "linear"])
def test_row_order_repetition_and_zero_weights_do_not_matter(plane, rng, name):
    X, y, queries = plane
    counts = rng.integers(0, 3, 40)
    model = ParametricAttentionRegressor(**CONFIGURATIONS[name])
    expected = clone(model).fit(X, y, sample_weight=counts).predict(queries)
    rows = rng.permutation(np.repeat(np.arange(40), counts))
    assert_allclose(model.fit(X[rows], y[rows]).predict(queries), expected, rtol=1e-8)
    present = counts > 0
    model.fit(X[present], y[present], sample_weight=counts[present])
    assert_allclose(model.predict(queries), expected, rtol=1e-8)


def test_importances_may_be_scaled(plane, rng):
    X, y, queries = plane
    weights = rng.uniform(0.2, 1.7, 40)
    model = ParametricAttentionRegressor()
    one = model.fit(X, y, sample_weight=weights).predict(queries)
    two = model.fit(X, y, sample_weight=0.37 * weights).predict(queries)
    assert_allclose(two, one, rtol=1e-6)
    assert np.abs(one - model.fit(X, y).predict(queries)).max() > 1e-3


def test_groups_are_left_out_together(plane, rng):
    X, y, _ = plane
    groups = np.arange(40) // 4
    model = ParametricAttentionRegressor(degree=0).fit(X, y, groups=groups)
    weights = model.attention_weights(None)
    assert_array_equal(weights[groups[:, None] == groups], 0.0)
    labels = np.array(list("jihgfedcba"))[groups]
    again = ParametricAttentionRegressor(degree=0).fit(X, y, groups=labels)
    assert_array_equal(again.w_, model.w_)


def test_singletons_and_groups_of_the_rest_are_finite():  # pytorch#103963
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 1.0, 3.0])
    model = ParametricAttentionRegressor().fit(X, y, groups=[0, 1, 1])
    assert np.isfinite(model.predict(X)).all()
    assert np.isfinite(model.loss_curve_).all()
    with pytest.raises(ValueError, match="left out"):
        ParametricAttentionRegressor().fit(X[:2], y[:2], groups=[1, 1])


@pytest.mark.parametrize("name", ["default", "plain means", "linear"])
def test_outputs_share_a_metric(plane, name):
    X, y, queries = plane
    Y = np.column_stack([y, 100.0 * np.cos(3.0 * X[:, 0]), np.full(40, 3.0)])
    model = fitted(X, Y, **CONFIGURATIONS[name])
    predicted = model.predict(queries)
    assert predicted.shape == (9, 3)
    assert_allclose(predicted[:, 2], 3.0)
    assert_allclose(model.attention_weights(queries) @ Y, predicted, rtol=1e-10, atol=1e-10)
    assert model.predict_interval(queries, 0.8).shape == (9, 2, 3)
    assert model.predict_quantiles(queries, [0.2, 0.8]).shape == (9, 2, 3)
    assert model.predict_gradient(queries).shape == (9, 2, 3)
    swapped = fitted(X, Y[:, ::-1], **CONFIGURATIONS[name]).predict(queries)
    assert_allclose(swapped[:, ::-1], predicted, rtol=1e-6)
    alone = fitted(X, y, **CONFIGURATIONS[name]).predict(queries)
    twice = fitted(X, np.column_stack([y, -5.0 * y]), **CONFIGURATIONS[name]).predict(queries)
    assert_allclose(twice[:, 0], alone, rtol=1e-5)


def test_number_types_of_rows_and_targets(rng):  # skorch#414
    X, y = rng.integers(0, 5, (30, 2)), rng.integers(-9, 9, 30)
    expected = fitted(X.astype(float), y.astype(float)).predict(X)
    for rows in (X, X.astype(np.int32), np.asfortranarray(X), X[::-1][::-1]):
        predicted = fitted(rows, y).predict(rows)
        assert predicted.dtype == np.float64
        assert_array_equal(predicted, expected)
    single = fitted(X.astype(np.float32), y.astype(np.float32)).predict(X.astype(np.float32))
    assert single.dtype == np.float32
    assert_allclose(single, expected, rtol=1e-5, atol=1e-5)
    flags = X > 2
    assert fitted(flags, y).predict(flags).dtype == np.float64


# ---------------------------------------------------------------------------------------------
# Edges


@pytest.mark.parametrize("constant", [0.0, 1.5, 1e9])
def test_constant_features_change_nothing(plane, configuration, constant):
    X, y, queries = plane
    model = fitted(X, y, **configuration)
    column = np.full(40, constant)
    wider = fitted(np.insert(X, 1, column, axis=1), y, **configuration)
    predicted = wider.predict(np.insert(queries, 1, column[:9] + 3.0, axis=1))
    assert_allclose(predicted, model.predict(queries), rtol=1e-9)
    assert wider.w_[1] == 0.0
    assert np.isinf(wider.bandwidth_[1])


@pytest.mark.parametrize("constant", [0.0, -2.5, 0.1])
def test_constant_targets_are_predicted_exactly(plane, configuration, constant):
    X, _, queries = plane
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fitted(X, np.full(40, constant), **configuration)
    assert_array_equal(model.predict(queries), constant)
    assert_array_equal(model.predict(queries, return_std=True)[1], 0.0)
    assert_array_equal(model.predict_gradient(queries), 0.0)
    assert np.isfinite(model.loo_score_)


def test_constant_rows_are_their_mean(configuration):
    X, y = np.full((12, 2), 4.0), np.arange(12.0)
    model = fitted(X, y, **configuration)
    assert_allclose(model.predict([[4.0, 4.0], [5.0, -1.0]]), 5.5)
    assert_array_equal(model.w_, 0.0)
    assert model.explain([[4.0, 4.0]], top_k=2).weights.shape == (1, 2)


def test_two_rows_are_enough_and_one_is_not(configuration):
    X, y = np.array([[0.0, 1.0], [2.0, 5.0]]), np.array([1.0, 3.0])
    model = fitted(X, y, **configuration)
    assert np.isfinite(model.predict(X)).all()
    assert_allclose(model.predict(None), [3.0, 1.0])
    assert np.isfinite(model.loss_curve_).all()
    with pytest.raises(ValueError, match="n_samples=1"):
        fitted(X[:1], y[:1], **configuration)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("target", ["line", "noise"])
def test_exact_and_hopeless_targets_are_finite(rng, degree, target):
    X = rng.standard_normal((60, 2))
    y = X @ [1.0, -2.0] if target == "line" else rng.standard_normal(60)
    model = fitted(X, y, degree=degree)
    assert np.isfinite(model.w_).all()
    assert np.isfinite(model.loss_curve_).all()
    if target == "line" and degree == 1:
        assert model.score(X, y) > 0.9999
    if target == "noise":
        assert model.loo_score_ < 0.5


def test_far_queries_are_finite(plane, configuration):
    X, y, _ = plane
    model = fitted(X, y, **configuration)
    for distance in (1e3, 1e30, 1e200):
        far = distance * np.array([[1.0, 1.0], [-1.0, 0.0]])
        assert np.isfinite(model.predict(far)).all()


# ---------------------------------------------------------------------------------------------
# Parameters of training


def test_alpha_shrinks_towards_the_common_factor(plane):
    X, y, queries = plane
    fits = {alpha: fitted(X, y, metric="diagonal", alpha=alpha) for alpha in (0.0, 1.0, 1e9)}
    spread = [np.ptp(np.log(fits[alpha].w_ * X.std(axis=0, ddof=1))) for alpha in fits]
    assert spread[0] >= spread[1] - 1e-6
    assert spread[1] > spread[2]
    assert spread[2] < 1e-6
    assert fits[0.0].loo_score_ >= fits[1.0].loo_score_ - 1e-6
    assert fits[1.0].loo_score_ > fits[1e9].loo_score_
    scalar = fitted(X, y, alpha=1e9, metric="scalar")
    assert_allclose(scalar.predict(queries), fits[1e9].predict(queries), rtol=1e-6)


def test_huge_alpha_keeps_a_linear_map_at_the_diagonal(plane):
    X, y, queries = plane
    linear, diagonal = (fitted(X, y, metric=name, alpha=1e9) for name in ("linear", "diagonal"))
    assert_allclose(linear.predict(queries), diagonal.predict(queries), rtol=1e-6)


def test_a_number_is_the_first_factor_of_standardised_features(wave):
    X, y = wave
    model = fitted(X, y, **TEXTBOOK, init=1.7, alpha=0.0)
    standardised = X[:, 0] / X.std(ddof=1)
    first = loss_of_one_factor(standardised, y / y.std(ddof=1), 1.7) / 40.0
    assert_allclose(model.loss_curve_[0], np.log(first + 1e-6), rtol=1e-6)
    assert_allclose(model.w_, fitted(X, y, **TEXTBOOK, alpha=0.0).w_, rtol=0.02)


@pytest.mark.parametrize("solver", ["gauss-newton", "lbfgs", Adam(patience=3)])
def test_validation_rows_stop_training(plane, solver):
    X, y, queries = plane
    model = ParametricAttentionRegressor(
        "diagonal", solver=solver, validation_fraction=0.1, random_state=0
    ).fit(X, y)
    scores = model.validation_scores_
    assert len(scores) >= 2
    assert max(scores) > 0.0
    best = int(np.argmax(scores))
    assert len(scores) - 1 - best <= (3 if isinstance(solver, Adam) else 10)
    assert model.predict(None).shape == (40,)  # held-out rows are keys
    again = clone(model).fit(X, y)
    assert_array_equal(again.predict(queries), model.predict(queries))
    assert fitted(X, y).validation_scores_ == []


@pytest.mark.parametrize("solver", [GaussNewton(1), LBFGS(1), Adam(max_iter=1)])
def test_too_few_steps_are_warned_of_and_what_was_reached_is_kept(plane, solver):
    X, y, queries = plane
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1\).*larger max_iter or tol"):
        model = fitted(X, y, metric="diagonal", solver=solver)
    assert np.isfinite(model.predict(queries)).all()
    assert model.n_iter_ == 1


def test_both_stages_of_a_linear_metric_take_so_many_steps_at_most(plane):
    # factors first, then the entries
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        model = fitted(*plane[:2], metric="linear", solver=GaussNewton(max_iter=2))
    assert model.n_iter_ <= 4


def test_loss_curve_falls_and_is_counted(plane, configuration):
    X, y, _ = plane
    model = fitted(X, y, **configuration)
    assert all(isinstance(loss, float) for loss in model.loss_curve_)
    assert np.isfinite(model.loss_curve_).all()
    assert len(model.loss_curve_) == model.n_iter_ + 1
    if configuration.get("metric") in ("scalar", "diagonal"):
        assert (np.diff(model.loss_curve_) < 0.0).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kernel": "uniform"}, "kernel"),
        ({"degree": 2}, "degree"),
        ({"init": 0.0}, "init"),
        ({"alpha": -1.0}, "alpha"),
        ({"metric": "feature"}, "metric"),
        ({"metric": Linear(n_components=0)}, "n_components.*Linear"),
        ({"metric": Linear(n_components=3)}, "at most the number of features, 2 .* got 3"),
        ({"metric": Linear(n_components=5, ranks=True)}, "number of features, 4 .* got 5"),
        ({"metric": Linear(ranks="yes")}, "ranks.*Linear"),
        ({"curvature": "yes"}, "curvature"),
        ({"curvature": True, "degree": 0}, "curvature=True.*degree=0"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"solver": "sgd"}, "solver"),
        ({"solver": GaussNewton(max_iter=0)}, "max_iter.*GaussNewton"),
        ({"solver": Adam(learning_rate=-1.0)}, "learning_rate.*Adam"),
        ({"solver": GaussNewton}, "solver"),
        ({"variant": "mixture"}, "variant"),
        ({"device": "foo"}, "device must be"),
        ({"device": "mps"}, "device must be"),
        ({"device": "meta"}, "device must be"),
    ],
)
def test_impossible_parameters_are_refused_with_the_rule(plane, wrong, message):
    model = ParametricAttentionRegressor(**wrong)
    with pytest.raises(ValueError, match=message):
        model.fit(*plane[:2])
    assert not hasattr(model, "n_features_in_")


def test_devices(plane, monkeypatch):
    X, y, _ = plane
    assert fitted(X, y).device_ == fitted(X, y, device="cpu").device_ == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert fitted(X, y, device="auto").device_ == "cpu"
    for device in ("cuda", "cuda:1"):
        with pytest.raises(ValueError, match=f"{device}.* is not available"):
            fitted(X, y, device=device)


def test_interrupted_fit_leaves_the_estimator_as_it_was(plane, monkeypatch):
    X, y, queries = plane
    model = ParametricAttentionRegressor(random_state=0).fit(X, y)
    before, predicted = dict(vars(model)), model.predict(queries)
    calls, weights = [], Student.tensor_weights

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) > 10:
            raise KeyboardInterrupt
        return weights(*arguments)

    monkeypatch.setattr(Student, "tensor_weights", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:30, :1], y[:30])
    assert len(calls) == 11
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    assert_array_equal(model.predict(queries), predicted)
    fresh = ParametricAttentionRegressor()
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, y)
    assert vars(fresh) == fresh.get_params()


def test_global_state_is_left_alone(plane):
    X, y, queries = plane

    def state():
        return [
            torch.get_rng_state().tolist(),
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002
            np.geterr(),
            list(warnings.filters),
        ]

    before = state()
    for solver in (GaussNewton(5), Adam(max_iter=5)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = fitted(X, y, solver=solver, validation_fraction=0.1)
    model.predict(queries)
    assert state() == before


def test_data_are_left_alone_and_may_be_read_only(plane):
    X, y, queries = plane
    copies = X.copy(), y.copy()
    X.flags.writeable = y.flags.writeable = False
    model = fitted(X, y)
    model.predict(queries)
    assert_array_equal(X, copies[0])
    assert_array_equal(y, copies[1])


# ---------------------------------------------------------------------------------------------
# Without PyTorch, and in other processes


def test_pickle_predicts_where_there_is_no_torch(plane, tmp_path, configuration):
    X, y, queries = plane
    model = fitted(X, y, **configuration)
    pickled = pickle.dumps(model)
    words = {
        str(argument) for _, argument, _ in pickletools.genops(pickled) if argument is not None
    }
    assert not any("torch" in word for word in words)
    again = pickle.loads(pickled)
    assert_array_equal(again.predict(queries), model.predict(queries))
    assert_array_equal(again.predict(None), model.predict(None))


def test_without_torch_fitted_models_predict_and_fits_say_what_to_install(plane, tmp_path):
    X, y, queries = plane
    model = fitted(X, y)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps((model, X, y, queries)))
    code = (
        WITHOUT_TORCH
        + """
import pickle
model, X, y, queries = pickle.load(open(sys.argv[1], "rb"))
print(repr(model.predict(queries).tolist()))
model.predict_interval(queries, 0.8)
before = dict(vars(model))
try:
    model.fit(X, y)
except ImportError as error:
    print(error)
assert vars(model) == before
assert not any(name.partition(".")[0] == "torch" for name in sys.modules)
"""
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model.pkl")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    predicted, message = result.stdout.splitlines()
    assert_array_equal(np.array(eval(predicted)), model.predict(queries))
    assert 'pip install "skattn[torch]"' in message


def test_cross_validation_in_parallel_gives_the_same_scores(wave):  # pytorch#17199
    model = ParametricAttentionRegressor(random_state=0)
    alone = cross_val_score(model, *wave, cv=4)
    assert_allclose(cross_val_score(model, *wave, cv=4, n_jobs=2), alone, rtol=1e-9)


def test_groups_of_a_splitter_are_no_request_to_fit(plane):
    X, y, _ = plane
    scores = cross_val_score(
        ParametricAttentionRegressor(degree=0), X, y, groups=np.arange(40) // 5, cv=GroupKFold(3)
    )
    assert np.isfinite(scores).all()


def test_scores_are_those_of_the_leave_one_out_predictions(plane):
    X, y, _ = plane
    model = fitted(X, y)
    assert_allclose(model.loo_score_, r2_score(y, model.predict(None)), rtol=1e-6)


def test_a_flat_loss_without_a_penalty_can_be_learned():
    model = fitted(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]), alpha=0.0)
    assert np.isfinite(model.predict([[0.3]])).all()


@pytest.mark.parametrize("solver", [GaussNewton(2, 0.0), LBFGS(2, 0.0), Adam(max_iter=2)])
def test_callbacks_are_told_of_every_step_up_to_the_last(plane, solver):
    pytest.importorskip("sklearn.callback")
    X, y, _ = plane
    told = Told()
    model = ParametricAttentionRegressor("diagonal", solver=solver)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.set_callbacks(told).fit(X, y)
    assert model.n_iter_ == 2
    assert len(told.predictions) == 3  # the start is told too
    if not isinstance(solver, Adam):  # whose last step need not be the best
        assert_allclose(told.predictions[-1], model.predict(X), rtol=1e-12)


def test_callbacks_can_stop_training(plane):
    pytest.importorskip("sklearn.callback")
    X, y, _ = plane
    model = ParametricAttentionRegressor("diagonal", solver=GaussNewton(tol=0.0))
    model.set_callbacks(Told(most=3)).fit(X, y)
    assert model.n_iter_ == 2


def test_one_far_row_does_not_spoil_single_precision(rng):
    X = rng.uniform(size=(520, 2))
    X[0] = 1e4
    y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(520)
    y[0] = 0.0
    model = fitted(X, y)
    assert_allclose(model.loo_score_, r2_score(y, model.predict(None)), atol=0.01)


# ---------------------------------------------------------------------------------------------
# What is named is exactly that


def test_a_named_metric_has_neither_ranks_nor_curves(plane):
    X, y, _ = plane
    for metric in ("scalar", "diagonal", "linear"):
        (member,) = fitted(X, y, metric=metric).members_
        assert_array_equal(member.rank_weights[0], 0.0)
        assert_array_equal(member.curvature_axis, 0.0)
    (member,) = fitted(X, y).members_
    assert (member.rank_weights[0] > 0.0).all()
    assert_allclose(np.linalg.norm(member.curvature_axis), 1.0)
    (member,) = fitted(X, y, metric="scalar", curvature=True).members_
    assert_allclose(np.linalg.norm(member.curvature_axis), 1.0)


def test_linear_is_the_name_of_its_defaults(plane):
    X, y, queries = plane
    named, given = (fitted(X, y, metric=metric) for metric in ("linear", Linear()))
    assert_array_equal(named.predict(queries), given.predict(queries))
    automatic = fitted(X, y, metric=Linear(ranks=True), curvature=True)
    assert_array_equal(automatic.predict(queries), fitted(X, y).predict(queries))


def test_curves_that_are_asked_for_are_there_whatever_rows_left_over_say(rng):
    X = rng.uniform(-1.0, 1.0, (900, 2))
    y = X[:, 0] + 0.5 * rng.standard_normal(900)  # where curves do not help
    parameters = {"metric": "auto", "solver": GaussNewton(tol=1e-2)}
    axes = {
        bends: fitted(X, y, **parameters, curvature=bends).members_[0].curvature_axis
        for bends in (False, True)
    }
    assert not axes[False].any()
    assert_allclose(np.linalg.norm(axes[True]), 1.0)


def test_names_of_solvers_are_their_defaults(plane):
    X, y, _ = plane
    pairs = [("gauss-newton", GaussNewton()), ("lbfgs", LBFGS()), ("adam", Adam())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name, solver in [("auto", GaussNewton()), *pairs]:
            models = [fitted(X, y, solver=each, random_state=0) for each in (name, solver)]
            assert models[0].loss_curve_ == models[1].loss_curve_


def test_attributes_have_one_type_whatever_is_learned(plane):
    X, y, _ = plane
    constant = np.ones(40)
    settings = [{}, {"degree": 0}, {"n_estimators": 2}, {"variant": Mixture()}]
    models = [fitted(X, targets, **each) for targets in (y, constant) for each in settings]
    first = models[0]
    for model in models:
        assert vars(model).keys() == vars(first).keys()
        fitted_names = [name for name in vars(first) if name.endswith("_")]
        for name in fitted_names:
            assert type(getattr(model, name)) is type(getattr(first, name)), name
        assert len(model.members_) == model.n_estimators
        for member in model.members_:
            assert vars(member).keys() == vars(first.members_[0]).keys()
            for name, value in vars(first.members_[0]).items():
                assert type(getattr(member, name)) is type(value), name
            assert member.curvature_axis.shape == (2,)
            assert member.sample_factors.shape == (40,)
            assert_allclose(member.shares.sum(), 1.0)


def test_searches_reach_into_metric_variant_and_solver(plane):
    X, y, _ = plane
    model = ParametricAttentionRegressor(
        Linear(), variant=Mixture(), solver=LBFGS(tol=1e-2), degree=0, random_state=0
    )
    names = {"metric__n_components", "variant__n_components", "solver__max_iter"}
    assert names <= set(model.get_params())
    other = clone(model).set_params(solver__max_iter=9, variant__n_components=3)
    assert (other.solver.max_iter, other.variant.n_components) == (9, 3)
    assert (model.solver.max_iter, model.variant.n_components) == (100, 2)
    grid = {"variant": [None, SampleReweighting()], "metric__n_components": [1, None]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert set(search.best_params_) == set(grid)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_the_engine_is_named_and_may_be_chosen(plane):
    X, y, queries = plane
    model = fitted(X, y)
    assert model.algorithm_ == "dense"
    exact = fitted(X, y, algorithm="exact")
    assert exact.algorithm_ == "exact"
    assert_allclose(exact.predict(queries), model.predict(queries), rtol=1e-9)
