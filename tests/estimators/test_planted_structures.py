"""What depends on the rows is found where it was put, and overfitting is held back."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn import ParametricAttentionRegressor

pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:Training has not converged")

N_TEST = 300
LINES = {"rank_features": False, "curvature": False}


def fitted(data, **parameters):
    return ParametricAttentionRegressor(random_state=0, **parameters).fit(*data[:2])


def error(model, data):
    """Mean squared error at other rows, without noise."""
    return np.mean((model.predict(data[2]) - data[3]) ** 2)


def split(X, truth, noise, rng, n):
    """Noisy training rows; other rows and what is true there."""
    y = truth + noise * rng.standard_normal(len(X))
    return X[:n], y[:n], X[n:], truth[n:]


def compared(make, modified, n_seeds=10, **parameters):
    """Data, models with what was planted, and errors relative to those of the metric alone."""
    for seed in range(n_seeds):
        data = make(np.random.default_rng(seed))
        plain = fitted(data, **parameters)
        model = fitted(data, **parameters, **modified)
        yield data, model, error(model, data) / error(plain, data)


# ---------------------------------------------------------------------------------------------
# Rows that are not to be trusted


def corrupted(rng, n=250):
    """One row in twelve is wrong by four, of either sign; which ones comes last."""
    X = rng.uniform(-1.0, 1.0, (n + N_TEST, 2))
    truth = np.sin(3.0 * X[:, 0]) + X[:, 1]
    X, y, *others = split(X, truth, 0.1, rng, n)
    wrong = rng.permutation(n)[: int(0.08 * n)]
    y[wrong] += 4.0 * rng.choice([-1.0, 1.0], len(wrong))
    return X, y, *others, wrong


@pytest.mark.parametrize("degree", [0, 1])
def test_corrupted_rows_are_found(degree):
    found, gains = [], []
    options = {"degree": degree, "rank_features": False}
    for data, model, gain in compared(corrupted, {"modifier": "sample"}, **options):
        factors, wrong = model.sample_factors_, data[4]
        found.append(np.mean(factors[wrong] <= np.quantile(factors, 0.1)))
        gains.append(gain)
    assert np.median(found) >= 0.75
    if degree == 1:  # means are worse, with what is found below too
        assert np.median(gains) <= 0.9


def test_corrupted_rows_harm_less_on_average():
    options = {"degree": 1, "rank_features": False}
    runs = compared(corrupted, {"modifier": "sample"}, **options)
    gains = [gain for _, _, gain in runs]
    assert np.mean(gains) <= 0.9


# ---------------------------------------------------------------------------------------------
# Regions that need a scale of their own


def half_waved(rng, n=300):
    x = rng.uniform(-1.0, 1.0, (n + N_TEST, 1))
    truth = np.where(x[:, 0] < 0.0, 0.5 * x[:, 0], np.sin(30.0 * x[:, 0]))
    return split(x, truth, 0.2, rng, n)


def four_clusters(rng, n=250):
    """The second cluster is wavy, the others are not."""
    centers = np.array([[-0.8, -0.8], [0.8, 0.8], [-0.8, 0.8], [0.8, -0.8]])
    cluster = rng.integers(0, 4, n + N_TEST)
    X = centers[cluster] + 0.25 * rng.standard_normal((n + N_TEST, 2))
    truth = np.where(cluster == 1, 1.5 * np.sin(12.0 * X[:, 0]), 0.3 * X[:, 0])
    return split(X, truth, 0.3, rng, n)


@pytest.mark.parametrize("degree", [0, 1])
def test_a_dynamic_factor_is_large_where_the_target_is_wavy(degree):
    ratios, gains = [], []
    for _, model, gain in compared(half_waved, {"modifier": "dynamic"}, degree=degree, **LINES):
        factors = np.log(model.query_factors([[-0.6], [-0.4], [0.4], [0.6]]))
        ratios.append(np.exp(factors[2:].mean() - factors[:2].mean()))
        gains.append(gain)
    assert np.median(ratios) >= 4.0
    assert min(ratios) >= 1.3
    assert np.mean(gains) <= 0.85


@pytest.mark.parametrize("degree", [0, 1])
def test_regions_have_factors_of_their_own(degree):
    ratios, gains = [], []
    hierarchical = {"modifier": "hierarchical"}
    for _, model, gain in compared(four_clusters, hierarchical, degree=degree, **LINES):
        centers = [[0.8, 0.8], [-0.8, -0.8], [-0.8, 0.8], [0.8, -0.8]]
        factors = np.log(model.query_factors(centers))
        ratios.append(np.exp(factors[0] - factors[1:].mean()))
        gains.append(gain)
    assert np.median(ratios) >= 2.0
    assert np.mean(gains) <= 0.85


# ---------------------------------------------------------------------------------------------
# Heads and mixtures


def switched(rng, n=300):
    X = rng.uniform(-1.0, 1.0, (n + N_TEST, 3))
    truth = np.where(X[:, 0] < 0.0, np.sin(5.0 * X[:, 1]), np.sin(5.0 * X[:, 2]))
    return split(X, truth, 0.1, rng, n)


def test_heads_find_what_counts_on_either_side():
    sides, gains = [], []
    options = {"degree": 0, "rank_features": False}
    for _, model, gain in compared(switched, {"n_heads": 2}, **options):
        leading = [int(np.linalg.norm(each, axis=1).argmax()) for each in model.projection_]
        assert sorted(leading) == [1, 2]
        first = leading.index(1)  # and each head counts on the side of its feature
        gates = model.attention_by_head([[-0.8, 0.0, 0.0], [0.8, 0.0, 0.0]]).gates
        sides.append([gates[0, first], gates[1, 1 - first]])
        gains.append(gain)
    assert np.median(sides) >= 0.9
    assert max(gains) <= 0.6


def test_heads_of_lines_gain_too():
    options = {"degree": 1, "rank_features": False, "parametrization": "feature"}
    gains = [gain for _, _, gain in compared(switched, {"n_heads": 2}, n_seeds=5, **options)]
    assert max(gains) <= 0.9


@pytest.mark.parametrize("degree", [0, 1])
def test_one_head_is_exactly_the_plain_model(degree):
    data = switched(np.random.default_rng(0))
    plain, one = (fitted(data, degree=degree, **more) for more in ({}, {"n_heads": 1}))
    assert_array_equal(one.predict(data[2]), plain.predict(data[2]))
    assert one.loss_curve_ == plain.loss_curve_


def one_direction_and_a_rest(rng, n=250):
    X = rng.uniform(-1.0, 1.0, (n + N_TEST, 3))
    truth = np.sin(5.0 * X[:, 0]) + 0.7 * np.sin(2.0 * X[:, 1] + X[:, 2])
    return split(X, truth, 0.1, rng, n)


@pytest.mark.parametrize("degree", [0, 1])
def test_a_mixture_adds_what_one_component_leaves(degree):
    options = {"parametrization": "projection", "n_components": 1, "rank_features": False}
    gains, shares = [], []
    runs = compared(one_direction_and_a_rest, {"mixture": True}, degree=degree, **options)
    for _, model, gain in runs:
        gains.append(gain)
        shares.append(model.mixture_weight_)
    assert max(gains) <= 0.7
    assert min(shares) > 0.0
    assert max(shares) < 1.0


# ---------------------------------------------------------------------------------------------
# Encoders


def shells(rng, n=400):
    X = rng.uniform(-1.0, 1.0, (n + N_TEST, 4))
    return split(X, np.sin(6.0 * np.linalg.norm(X, axis=1)), 0.1, rng, n)


@pytest.mark.slow
@pytest.mark.parametrize("degree", [0, 1])
def test_an_encoder_finds_what_no_linear_metric_can(degree):
    network = {"hidden_layer_sizes": (16,), "max_iter": 25, "learning_rate_init": 0.02}
    gains, gaps = [], []
    options = {"degree": degree, "rank_features": False}
    for _, model, gain in compared(shells, {**network, "dropout": 0.3}, 4, **options):
        gains.append(gain)
        gaps.append(abs(model.loo_score_ - max(model.validation_scores_)))
    assert max(gains) <= 0.6
    assert np.mean(gains) <= 0.4
    assert np.mean(gaps) < 0.2  # rows that are no keys are predicted about as well


# ---------------------------------------------------------------------------------------------
# Overfitting


def noise_features(rng, n=60, d=40):
    X = rng.uniform(-1.0, 1.0, (n + N_TEST, d))
    return split(X, np.sin(3.0 * X[:, 0]), 0.3, rng, n)


def errors_of(degree, **choices):
    """Mean errors of some choices of parameters over ten seeds."""
    found, optimism = {name: [] for name in choices}, []
    for seed in range(10):
        data = noise_features(np.random.default_rng(seed))
        for name, choice in choices.items():
            model = ParametricAttentionRegressor(
                "feature", degree=degree, random_state=seed, **LINES, **choice
            ).fit(*data[:2])
            found[name].append(error(model, data))
            if name == "none":
                missed = found[name][-1] + 0.3**2
                expected = 1.0 - missed / (np.var(data[3]) + 0.3**2)
                optimism.append(model.loo_score_ - expected)
    assert np.mean(optimism) > 0.05  # what was learned by heart does not predict
    return {name: np.mean(errors) for name, errors in found.items()}


def test_the_penalty_holds_overfitting_back():
    errors = errors_of(0, none={"alpha": 0.0}, one={"alpha": 1.0}, ten={"alpha": 10.0})
    assert errors["one"] < 0.9 * errors["none"]
    assert errors["ten"] < 0.7 * errors["one"]


@pytest.mark.parametrize("degree", [0, 1])
def test_dropout_with_early_stopping_holds_overfitting_back(degree):
    stopped = {"alpha": 0.0, "early_stopping": True, "validation_fraction": 0.25}
    errors = errors_of(
        degree,
        none={"alpha": 0.0},
        dropped={"alpha": 0.0, "dropout": 0.5},
        both={**stopped, "dropout": 0.5},
        stopped=stopped,
    )
    assert errors["both"] < 0.9 * errors["none"]
    assert errors["both"] < 0.7 * errors["stopped"]  # which stops a few large steps too late
    assert errors["dropped"] < 0.95 * errors["none"]


# ---------------------------------------------------------------------------------------------
# Nothing explodes


STABLE = {
    "sample": {"modifier": "sample"},
    "dynamic": {"modifier": "dynamic"},
    "hierarchical": {"modifier": "hierarchical"},
    "heads": {"n_heads": 2},
    "mixture": {"mixture": True},
    "dropout": {"dropout": 0.4, "max_iter": 10},
    "dropout of samples": {"dropout": 0.4, "max_iter": 10, "modifier": "sample"},
}


def odd(seed, n=50):
    """Heavy tails, ties, features of other units, and a few wild targets."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_t(2, n), np.round(rng.standard_normal(n), 1) * 1e3])
    y = np.sin(X[:, 0]) + X[:, 1] / 1e3 + 0.2 * rng.standard_t(2, n)
    return X, y


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", STABLE)
def test_twenty_seeds_are_finite_and_end_no_worse_than_the_metric_alone(name, degree):
    common = {"degree": degree, "alpha": 0.0, "parametrization": "feature"}
    for seed in range(20):
        X, y = odd(seed)
        model = ParametricAttentionRegressor(**common, **STABLE[name], random_state=seed).fit(X, y)
        plain = ParametricAttentionRegressor(
            **common, max_iter=STABLE[name].get("max_iter", 100)
        ).fit(X, y)
        assert np.isfinite(model.w_).all()
        assert np.isfinite(model.loss_curve_).all()
        assert np.isfinite(model.predict(2.0 * X)).all()
        assert np.isfinite(model.predict_interval(X)).all()
        reached = np.mean((y - model.predict(None)) ** 2) / y.var(ddof=1)
        loss = np.log(reached + 1e-6)  # without a penalty
        if "dropout" in name:  # judged with what it drops
            assert loss <= plain.loss_curve_[-1] + 0.2
        elif name == "mixture":  # which need not begin where the metric alone is
            assert loss <= plain.loss_curve_[-1] + 0.05
            assert_allclose(loss, min(model.loss_curve_[len(plain.loss_curve_) :]), atol=1e-5)
        else:  # the best state is kept
            assert loss <= plain.loss_curve_[-1] + 1e-6
            assert_allclose(loss, min(model.loss_curve_), atol=1e-5)


@pytest.mark.parametrize("degree", [0, 1])
def test_members_and_encoders_are_finite_for_twenty_seeds(degree):
    for seed in range(20):
        X, y = odd(seed)
        for more in ({"n_estimators": 2}, {"hidden_layer_sizes": (5,), "max_iter": 3}):
            model = ParametricAttentionRegressor(
                "feature", degree=degree, random_state=seed, **more
            ).fit(X, y)
            assert np.isfinite(model.w_).all()
            assert np.isfinite(model.loss_curve_).all()
            assert np.isfinite(model.predict(2.0 * X)).all()
            assert np.isfinite(model.predict(None)).all()
