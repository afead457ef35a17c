"""Heat maps and bars of weights: what is drawn is what was computed."""

import numpy as np
import pytest
from matplotlib.colors import LogNorm
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import NadarayaWatsonRegressor
from skattn.inspection import AttentionDisplay


@pytest.fixture
def shuffled(wave, rng):
    X, y = wave
    order = rng.permutation(len(X))
    return X[order], y[order]


def drawn(display):
    return np.asarray(display.image_.get_array())


@pytest.mark.parametrize("degree", [0, 1])
def test_image_is_the_weights_sorted(shuffled, degree):
    X, y = shuffled
    model = NadarayaWatsonRegressor(0.1, degree=degree).fit(X, y)
    display = AttentionDisplay.from_estimator(model, X)
    order = np.argsort(X[:, 0])
    assert_array_equal(display.weights, model.attention_weights(X))
    assert_array_equal(drawn(display), model.attention_weights(X)[np.ix_(order, order)])
    assert len(display.axes_) == len(display.images_) == len(display.ax_.images) == 1
    assert display.ax_.get_xlabel() == "x0 of the training row"
    assert display.ax_.get_title() == ""


def test_weights_of_none_leave_out(shuffled):
    X, y = shuffled
    model = NadarayaWatsonRegressor(0.1).fit(X, y)
    display = AttentionDisplay.from_estimator(model, None)
    assert not np.diagonal(drawn(display)).any()
    assert_array_equal(display.query_values, X[:, 0])


def test_ticks_stand_at_rows_of_their_value():
    values = np.array([0.0, 0.0, 0.0, 1.0])
    display = AttentionDisplay.from_weights(np.eye(4), key_values=values, query_values=values)
    ticks = display.ax_.get_xticks(), [t.get_text() for t in display.ax_.get_xticklabels()]
    assert_allclose(ticks[0], [1.0, 3.0])
    assert ticks[1] == ["0", "1"]


def test_ticks_of_many_values_are_interpolated():
    values = np.sort(np.random.default_rng(0).uniform(0.0, 10.0, 100)) ** 2
    ax = AttentionDisplay.from_weights(np.eye(100), key_values=values).ax_
    for place, label in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True):
        below, above = values[int(np.floor(place))], values[int(np.ceil(place))]
        assert below <= float(label.get_text()) <= above


def test_colours_start_at_zero_or_are_centred_there():
    positive, signed = np.array([[0.2, 0.8]]), np.array([[-0.2, 1.2]])
    image = AttentionDisplay.from_weights(positive).image_
    assert image.get_cmap().name == "viridis"
    assert image.get_clim() == (0.0, 0.8)
    image = AttentionDisplay.from_weights(signed).image_
    assert image.get_cmap().name == "RdBu_r"
    assert image.get_clim() == (-1.2, 1.2)


def test_few_large_weights_share_a_colour_and_the_colour_bar_says_so():
    weights = np.full((100, 100), 0.005) + 0.5 * np.eye(100)
    display = AttentionDisplay.from_weights(weights)
    assert display.image_.get_clim()[1] == 0.505  # they are half of all
    weights = np.full((100, 100), 0.009) + 0.1 * np.eye(100)
    display = AttentionDisplay.from_weights(weights)
    assert display.image_.get_clim()[1] == 0.009
    assert display.colorbar_.extend == "max"


def test_given_style_wins(ax):
    style = {"cmap": "gray_r", "vmax": 0.3}
    display = AttentionDisplay.from_weights(np.eye(3), ax=ax, image_kwargs=style, colorbar=False)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert display.colorbar_ is None
    assert display.image_.get_cmap().name == "gray_r"
    assert display.image_.get_clim() == (0.0, 0.3)
    style = {"norm": LogNorm(1e-3, 1.0)}
    assert AttentionDisplay.from_weights(np.eye(3), image_kwargs=style).image_.norm.vmin == 1e-3


def test_heads_stand_side_by_side_in_one_scale(rng):
    weights = rng.dirichlet(np.ones(5), size=(3, 4))
    display = AttentionDisplay.from_weights(weights)
    assert len(display.axes_) == len(display.images_) == 3
    for head, image in zip(weights, display.images_, strict=True):
        assert_array_equal(np.asarray(image.get_array()), head)
        assert image.get_clim() == display.image_.get_clim()
    with pytest.raises(ValueError, match=r"ax must hold 3 axes, one for each head; got 1.*None"):
        AttentionDisplay.from_weights(weights, ax=display.ax_)


def test_tensors_need_no_detaching():
    torch = pytest.importorskip("torch")
    logits = torch.zeros((2, 3), requires_grad=True)
    keys = torch.arange(3.0, requires_grad=True)
    for dtype in (torch.float32, torch.bfloat16):
        weights = torch.softmax(logits, -1).to(dtype)
        display = AttentionDisplay.from_weights(weights, key_values=keys)
        assert_allclose(drawn(display), 1 / 3, atol=2e-3)


def test_sparse_weights(shuffled):
    X, y = shuffled
    weights = NadarayaWatsonRegressor(0.1).fit(X, y).attention_weights(X, top_k=3)
    assert_array_equal(drawn(AttentionDisplay.from_weights(weights)), weights.toarray())


def test_many_rows_are_left_out_evenly_and_said(rng):
    values = rng.permutation(1000).astype(float)
    weights = np.tile(values, (2, 1)) + 1.0
    display = AttentionDisplay.from_weights(
        weights, key_values=values, feature_name="age", max_rows=100
    )
    spread = drawn(display)[0] - 1.0
    assert_array_equal(spread[[0, -1]], [0.0, 999.0])
    assert set(np.diff(spread)) <= {10.0, 11.0}
    assert display.ax_.get_xlabel() == "age of the training row (100 of 1,000 shown)"
    assert display.ax_.get_ylabel() == "query"
    display.plot(max_rows=None)
    assert drawn(display).shape == (2, 1000)
    index = AttentionDisplay.from_weights(weights, max_rows=100).ax_.get_xticklabels()
    assert index[0].get_text() == "0"
    assert index[-1].get_text() == "999"


def test_bars_are_the_largest_weights(ax):
    weights = np.array([[0.5, -0.3, 0.1, 0.7]])
    display = AttentionDisplay.from_weights(weights, kind="bars", top_k=3, ax=ax)
    (bars,) = display.bars_
    assert_array_equal([bar.get_width() for bar in bars], [-0.3, 0.5, 0.7])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["1", "0", "3"]
    assert bars[0].get_hatch()
    assert not bars[1].get_hatch()
    assert ax.get_xlabel() == "attention weight (3 of 4 rows, sum 0.90)"
    assert display.image_ is None


def test_bars_of_several_queries(shuffled):
    X, y = shuffled
    model = NadarayaWatsonRegressor(0.1).fit(X, y)
    display = AttentionDisplay.from_estimator(model, X, kind="bars", queries=[0, -1])
    told = model.explain(X[[0, -1]], top_k=10)
    for bars, weights in zip(display.bars_, told.weights, strict=True):
        assert_allclose([bar.get_width() for bar in bars], weights[::-1])
    assert f"query {len(X) - 1}" in display.axes_[1].get_ylabel()


def test_features_are_sorted_by_when_chosen(rng):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rng.standard_normal((30, 2)), columns=["age", "size"])
    y = X["age"].to_numpy()
    model = NadarayaWatsonRegressor(1.0).fit(X, y)
    assert_array_equal(drawn(AttentionDisplay.from_estimator(model, X)), model.attention_weights(X))
    order = np.argsort(X["size"].to_numpy())
    display = AttentionDisplay.from_estimator(model, X, feature="size")
    assert_array_equal(drawn(display), model.attention_weights(X)[np.ix_(order, order)])
    assert display.ax_.get_ylabel() == "size of the query"
    for wrong in ("weight", 2, -1, True, 1.5, np.nan, [0]):
        with pytest.raises(ValueError, match=r"feature must be .* of 2 features; got .*age, size"):
            AttentionDisplay.from_estimator(model, X, feature=wrong)


def test_pipelines_and_searches_are_looked_into(rng):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rng.standard_normal((30, 2)), columns=["age", "size"])
    pipeline = make_pipeline(StandardScaler(), NadarayaWatsonRegressor(1.0))
    search = GridSearchCV(pipeline, {"nadarayawatsonregressor__bandwidth": [0.5, 1.0]})
    search.fit(X, X["age"].to_numpy())
    display = AttentionDisplay.from_estimator(search, X, feature="age")
    best = search.best_estimator_
    assert_allclose(display.weights, best[-1].attention_weights(best[:-1].transform(X)))
    assert_allclose(display.query_values, StandardScaler().fit_transform(X)[:, 0])
    assert display.feature_name == "age"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "lines"}, "kind must be 'heatmap' or 'bars'; got 'lines'"),
        ({"queries": [2]}, r"queries must be positions of the 2 queries.*got \[2\]"),
        ({"queries": []}, r"queries must be positions"),
        ({"queries": [0.7]}, r"queries must be positions .* from 0 to 1; got \[0.7\]"),
        ({"queries": 1}, r"queries must be positions .* in a list, from 0 to 1; got 1"),
        ({"queries": [[0], [0, 1]]}, r"queries must be positions .* got \[\[0"),
        ({"queries": [True, False]}, r"queries must be positions .* got \[True"),
        ({"max_rows": 1}, "max_rows must be a whole number, at least 2, or None for all .* got 1"),
        ({"max_rows": 2.5}, "max_rows must be a whole number, at least 2, or None .* got 2.5"),
        ({"kind": "bars", "top_k": 0}, "top_k must be a whole number, at least 1; got 0"),
        ({"kind": "bars", "top_k": 2.5}, "top_k must be a whole number, at least 1; got 2.5"),
        ({"kind": "bars", "top_k": "all"}, "top_k must be a whole number.* got 'all'"),
        ({"key_values": [[1.0, 2.0]]}, r"key_values must hold .*\(2,\); got \(1, 2\).*X\[:, 0\]"),
    ],
)
def test_errors_name_value_rule_and_remedy(options, message):
    with pytest.raises(ValueError, match=message):
        AttentionDisplay.from_weights(np.eye(2), **options)


def test_shapes_that_are_no_weights():
    with pytest.raises(ValueError, match=r"weights must have shape .*got \(1, 2, 3, 4\).*\[0\]"):
        AttentionDisplay.from_weights(np.ones((1, 2, 3, 4)))
    with pytest.raises(ValueError, match=r"one head; got 2 heads.*weights\[0\]"):
        AttentionDisplay.from_weights(np.ones((2, 3, 4)), kind="bars")
