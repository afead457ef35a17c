"""Saved models predict as before, elsewhere too; and what is in them."""

import copy
import io
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import NadarayaWatsonRegressor, ParametricAttentionRegressor
from skattn.solvers import GradientDescent
from skattn.variants import Mixture

NADARAYA_WATSON = {
    "default": NadarayaWatsonRegressor(),
    "lines": NadarayaWatsonRegressor(degree=1, bandwidth="aicc"),
    "compact": NadarayaWatsonRegressor(0.3, kernel="epanechnikov", extrapolation="nan"),
    "by query": NadarayaWatsonRegressor(adaptive="query", n_neighbors=5),
    "by key": NadarayaWatsonRegressor("scott", adaptive="key", n_neighbors=5),
    "smoothed out": NadarayaWatsonRegressor([0.2, np.inf]),
    "pipeline": make_pipeline(StandardScaler(), NadarayaWatsonRegressor()),
}
LEARNED = {
    "learned": ParametricAttentionRegressor(),
    "learned means": ParametricAttentionRegressor("diagonal", degree=0),
    "stopped early": ParametricAttentionRegressor(validation_fraction=0.2, random_state=0),
    "textbook": ParametricAttentionRegressor(
        "scalar",
        kernel="gaussian",
        degree=0,
        init=1.0,
        alpha=0.0,
        solver=GradientDescent(learning_rate=0.01, max_iter=3),
    ),
    "mixture": ParametricAttentionRegressor("diagonal", variant=Mixture(), random_state=0),
}
CASES = {**NADARAYA_WATSON, **LEARNED}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    y = np.column_stack([np.sin(6.0 * X[:, 0]), X[:, 1]]) + 0.1 * rng.standard_normal((60, 2))
    return X, y, rng.uniform(-0.1, 1.1, size=(20, 2))


@pytest.fixture(scope="module", params=CASES)
def model(request, data):
    if request.param in LEARNED:
        pytest.importorskip("torch")
    estimator = CASES[request.param]
    name = "" if request.param != "pipeline" else "nadarayawatsonregressor__"
    weights = np.where(np.arange(60) % 20 == 0, 2, 1)
    weights[7] = 0
    return estimator.fit(*data[:2], **{f"{name}sample_weight": weights})


def through_pickle(model, path):
    return pickle.loads(pickle.dumps(model))


def through_joblib(model, path):
    joblib.dump(model, path / "model.joblib")
    return joblib.load(path / "model.joblib")


def through_memory_map(model, path):
    joblib.dump(model, path / "model.joblib")
    return joblib.load(path / "model.joblib", mmap_mode="r")


def through_copy(model, path):
    return copy.deepcopy(model)


def through_skops(model, path):
    skops = pytest.importorskip("skops.io")
    file = path / "model.skops"
    skops.dump(model, file)
    unknown = skops.get_untrusted_types(file=file)
    assert all(name.startswith(("skattn.", "numpy.")) for name in unknown), unknown
    return skops.load(file, trusted=unknown)


ROUTES = [through_pickle, through_joblib, through_memory_map, through_copy, through_skops]


@pytest.mark.filterwarnings("ignore:.*queries have no training row")
@pytest.mark.parametrize("route", ROUTES)
def test_predictions_are_the_same_bit_for_bit(model, data, route, tmp_path):
    again = route(model, tmp_path)
    assert_array_equal(again.predict(data[2]), model.predict(data[2]))
    inner = (m[-1] if hasattr(m, "steps") else m for m in (again, model))
    again, model = inner
    queries = data[2]
    assert_array_equal(again.attention_weights(queries), model.attention_weights(queries))
    assert_array_equal(again.predict(None), model.predict(None))
    assert_array_equal(again.predict_interval(queries), model.predict_interval(queries))


@pytest.mark.parametrize("name", ["learned", "learned means", "mixture"])
def test_learned_models_predict_without_torch(name, data, tmp_path):
    pytest.importorskip("torch")
    X, y, queries = data
    model = LEARNED[name].fit(X, y)
    joblib.dump((model, queries, model.predict(queries)), tmp_path / "saved")
    code = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'torch':\n"
        "            raise ImportError('no torch here')\n"
        "sys.meta_path.insert(0, NoTorch)\n"
        "import joblib, numpy as np\n"
        f"model, queries, expected = joblib.load({str(tmp_path / 'saved')!r})\n"
        "np.testing.assert_array_equal(model.predict(queries), expected)\n"
        "model.attention_weights(queries), model.predict_interval(queries)\n"
        "print('predicted', 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "predicted False", result.stderr


def arrays_in(saved):
    """The arrays of a pickle."""
    found = []

    class Reader(pickle.Unpickler):
        def find_class(self, module, name):
            assert module.partition(".")[0] in {"numpy", "skattn"}, module
            return super().find_class(module, name)

    def visit(thing):
        if isinstance(thing, np.ndarray):
            found.append(thing)
        elif hasattr(thing, "__dict__"):
            for value in vars(thing).values():
                visit(value)

    visit(Reader(io.BytesIO(saved)).load())
    return found


def test_the_training_rows_are_in_a_saved_model(data):
    X, y, _ = data
    for model in (NadarayaWatsonRegressor(0.3), NadarayaWatsonRegressor("loo", degree=1)):
        arrays = arrays_in(pickle.dumps(model.fit(X, y)))
        for rows in (X, y):
            ordered = rows[np.lexsort(rows.T)]
            same = [a for a in arrays if a.shape == rows.shape]
            assert any(np.array_equal(a[np.lexsort(a.T)], ordered) for a in same)


def test_saved_learned_models_hold_numpy_arrays_only(data):
    pytest.importorskip("torch")
    saved = pickle.dumps(LEARNED["learned"].fit(*data[:2]))
    assert b"torch" not in saved.replace(b"skattn._learning", b"")
    arrays_in(saved)


def test_size_is_that_of_the_rows_a_few_times(rng):
    X, y = rng.uniform(size=(2000, 5)), rng.uniform(size=2000)
    for degree, most in ((0, 3.5), (1, 4.5)):
        model = NadarayaWatsonRegressor(0.3, degree=degree).fit(X, y)
        assert len(pickle.dumps(model)) < most * (X.nbytes + y.nbytes)
