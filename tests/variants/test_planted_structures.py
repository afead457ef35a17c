"""What depends on the rows is found where it was put, and overfitting is held back."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skattn import Linear, ParametricAttentionRegressor
from skattn.solvers import Adam
from skattn.variants import (
    Encoder,
    FixedShare,
    Mixture,
    QueryScale,
    RegionScale,
    SampleReweighting,
)

pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:Training has not converged")

N_TEST = 300


def fitted(data, **parameters):
    return ParametricAttentionRegressor(random_state=0, **parameters).fit(*data[:2])


def error(model, data):
    """Mean squared error at other rows, without noise."""
    return np.mean((model.predict(data[2]) - data[3]) ** 2)


def split(X, truth, noise, rng, n):
    """Noisy training rows; other rows and what is true there."""
    y = truth + noise * rng.standard_normal(len(X))
    return X[:n], y[:n], X[n:], truth[n:]


def compared(make, variant, n_seeds=10, solver="auto", **parameters):
    """Data, models with what was planted, and errors relative to those of the metric alone."""
    for seed in range(n_seeds):
        data = make(np.random.default_rng(seed))
        plain = fitted(data, **parameters)
        model = fitted(data, **parameters, variant=variant, solver=solver)
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
    options = {"degree": degree, "metric": "linear", "curvature": degree == 1}
    for data, model, gain in compared(corrupted, SampleReweighting(), **options):
        factors, wrong = model.members_[0].sample_factors, data[4]
        found.append(np.mean(factors[wrong] <= np.quantile(factors, 0.1)))
        gains.append(gain)
    assert np.median(found) >= 0.75
    if degree == 1:  # means are worse, with what is found below too
        assert np.median(gains) <= 0.9


def test_corrupted_rows_harm_less_on_average():
    options = {"metric": "linear", "curvature": True}
    gains = [gain for _, _, gain in compared(corrupted, SampleReweighting(), **options)]
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
def test_a_query_scale_is_large_where_the_target_is_wavy(degree):
    ratios, gains = [], []
    for _, model, gain in compared(half_waved, QueryScale(), degree=degree, metric="linear"):
        factors = np.log(model.query_factors([[-0.6], [-0.4], [0.4], [0.6]]))
        ratios.append(np.exp(factors[2:].mean() - factors[:2].mean()))
        gains.append(gain)
    assert np.median(ratios) >= 4.0
    assert min(ratios) >= 1.3
    assert np.mean(gains) <= 0.85


@pytest.mark.parametrize("degree", [0, 1])
def test_regions_have_factors_of_their_own(degree):
    ratios, gains = [], []
    for _, model, gain in compared(four_clusters, RegionScale(), degree=degree, metric="linear"):
        centers = [[0.8, 0.8], [-0.8, -0.8], [-0.8, 0.8], [0.8, -0.8]]
        factors = np.log(model.query_factors(centers))
        ratios.append(np.exp(factors[0] - factors[1:].mean()))
        gains.append(gain)
    assert np.median(ratios) >= 2.0
    assert np.mean(gains) <= 0.85


# ---------------------------------------------------------------------------------------------
# Mixtures and fixed shares


def switched(rng, n=300):
    X = rng.uniform(-1.0, 1.0, (n + N_TEST, 3))
    truth = np.where(X[:, 0] < 0.0, np.sin(5.0 * X[:, 1]), np.sin(5.0 * X[:, 2]))
    return split(X, truth, 0.1, rng, n)


def test_components_find_what_counts_on_either_side():
    sides, gains = [], []
    for _, model, gain in compared(switched, Mixture(), degree=0, metric="linear"):
        projections = model.members_[0].projections
        leading = [int(np.linalg.norm(each, axis=1).argmax()) for each in projections]
        assert sorted(leading) == [1, 2]
        first = leading.index(1)  # and each component counts on the side of its feature
        gates = model.attention_by_component([[-0.8, 0.0, 0.0], [0.8, 0.0, 0.0]]).gates
        sides.append([gates[0, first], gates[1, 1 - first]])
        gains.append(gain)
    assert np.median(sides) >= 0.9
    assert max(gains) <= 0.6


def test_components_of_lines_gain_too():
    options = {"metric": "diagonal", "curvature": True}
    gains = [gain for _, _, gain in compared(switched, Mixture(), n_seeds=5, **options)]
    assert max(gains) <= 0.9


def one_direction_and_a_rest(rng, n=250):
    X = rng.uniform(-1.0, 1.0, (n + N_TEST, 3))
    truth = np.sin(5.0 * X[:, 0]) + 0.7 * np.sin(2.0 * X[:, 1] + X[:, 2])
    return split(X, truth, 0.1, rng, n)


@pytest.mark.parametrize("degree", [0, 1])
def test_a_fixed_share_adds_what_one_coordinate_leaves(degree):
    options = {"metric": Linear(n_components=1), "curvature": degree == 1, "degree": degree}
    gains, shares = [], []
    for _, model, gain in compared(one_direction_and_a_rest, FixedShare(), **options):
        gains.append(gain)
        shares.append(model.members_[0].shares[1])
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
    network, solver = Encoder(16, dropout=0.3), Adam(learning_rate=0.02, max_iter=25)
    gains, gaps = [], []
    options = {"degree": degree, "metric": "linear", "curvature": degree == 1}
    for _, model, gain in compared(shells, network, 4, solver, **options):
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
                "diagonal", degree=degree, random_state=seed, **choice
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


# ---------------------------------------------------------------------------------------------
# Nothing explodes


STABLE = {
    "sample": SampleReweighting(),
    "query scale": QueryScale(),
    "region scale": RegionScale(),
    "mixture": Mixture(),
    "fixed share": FixedShare(),
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
    common = {"degree": degree, "alpha": 0.0, "metric": "diagonal", "curvature": degree == 1}
    for seed in range(20):
        X, y = odd(seed)
        model, plain = (
            ParametricAttentionRegressor(**common, variant=variant, random_state=seed).fit(X, y)
            for variant in (STABLE[name], None)
        )
        assert np.isfinite(model.w_).all()
        assert np.isfinite(model.loss_curve_).all()
        assert np.isfinite(model.predict(2.0 * X)).all()
        assert np.isfinite(model.predict_interval(X)).all()
        reached = np.mean((y - model.predict(None)) ** 2) / y.var(ddof=1)
        loss = np.log(reached + 1e-6)  # without a penalty
        if name == "fixed share":  # which need not begin where the metric alone is
            assert loss <= plain.loss_curve_[-1] + 0.05
            assert_allclose(loss, min(model.loss_curve_[len(plain.loss_curve_) :]), atol=1e-5)
        else:  # the best state is kept
            assert loss <= plain.loss_curve_[-1] + 1e-6
            assert_allclose(loss, min(model.loss_curve_), atol=1e-5)


@pytest.mark.parametrize("degree", [0, 1])
def test_members_and_encoders_are_finite_for_twenty_seeds(degree):
    for seed in range(20):
        X, y = odd(seed)
        encoder = {"variant": Encoder(5), "solver": Adam(learning_rate=0.003, max_iter=3)}
        for more in ({"n_estimators": 2}, encoder):
            model = ParametricAttentionRegressor(
                "diagonal", degree=degree, random_state=seed, **more
            ).fit(X, y)
            assert np.isfinite(model.w_).all()
            assert np.isfinite(model.loss_curve_).all()
            assert np.isfinite(model.predict(2.0 * X)).all()
            assert np.isfinite(model.predict(None)).all()
