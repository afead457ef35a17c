"""Which engine computes what, and how estimators say so."""

import numpy as np
import pytest
from definitions import attention_of, column
from numpy.testing import assert_allclose

from skattn import NadarayaWatsonRegressor
from skattn._attention import Products, Want
from skattn._attention._plan import ENGINES, choose_engine
from skattn._attention.engines.engine import Engine

ATTENTION, PRODUCTS = attention_of(column(0.0, 1.0), column(0.0, 1.0)), Products(column(1.0, 2.0))


class Idle(Engine):
    """Computes nothing, and supports means only."""

    name = "idle"
    price = 0.0

    def supports(self, attention, products, want):
        return "it computes means only" if products.degree else None

    def cost(self, attention, products, want):
        return self.price


@pytest.fixture
def idle(monkeypatch):
    engine = Idle()
    monkeypatch.setitem(ENGINES, "idle", engine)
    return engine


def test_the_cheapest_engine_that_is_able_is_chosen(idle):
    lines = Products(PRODUCTS.values, column(0.0, 1.0))
    assert choose_engine(ATTENTION, PRODUCTS, Want.SUMS, "auto") is idle
    assert choose_engine(ATTENTION, lines, Want.SUMS, "auto") is ENGINES["dense"]
    idle.price = 1e9
    assert choose_engine(ATTENTION, PRODUCTS, Want.SUMS, "auto") is ENGINES["dense"]
    assert choose_engine(ATTENTION, PRODUCTS, Want.SUMS, "idle") is idle


def test_an_engine_that_is_named_and_unable_is_refused_with_the_reason(idle):
    lines = Products(PRODUCTS.values, column(0.0, 1.0))
    message = "algorithm='idle' cannot compute this: it computes means only. Use algorithm='auto'"
    with pytest.raises(ValueError, match=message):
        choose_engine(ATTENTION, lines, Want.SUMS, "idle")
    for name in ("dense", "exact"):
        with pytest.raises(ValueError, match=f"algorithm='{name}' cannot.*weighted means"):
            choose_engine(ATTENTION, lines, Want.SLOPES, name)


def test_engines_say_what_they_do_not_define():
    for call in (Engine().supports, Engine().cost, lambda *args: Engine().moments(*args, None)):
        with pytest.raises(NotImplementedError, match=r"^Engine "):
            call(ATTENTION, PRODUCTS, Want.SUMS)


def test_estimators_read_the_algorithm_and_tell_which_one_it_is(wave, monkeypatch):
    X, y = wave
    models = {
        name: NadarayaWatsonRegressor(0.1, algorithm=name).fit(X, y)
        for name in ("auto", "dense", "exact")
    }
    assert [model.algorithm_ for model in models.values()] == ["dense", "dense", "exact"]
    expected = models["dense"].predict(X)
    monkeypatch.setattr(type(ENGINES["dense"]), "prepare", lambda *_: pytest.fail("not asked for"))
    assert_allclose(models["exact"].predict(X), expected, rtol=1e-12)


@pytest.mark.parametrize("algorithm", ["fastest", None, 1, True])
def test_unknown_algorithms_are_refused(wave, algorithm):
    with pytest.raises(ValueError, match="'algorithm' parameter") as error:
        NadarayaWatsonRegressor(0.1, algorithm=algorithm).fit(*wave)
    assert "'dense'" in str(error.value)
    assert "'exact'" in str(error.value)


def test_where_the_cheapest_engine_is_unable_another_one_computes(wave, idle):
    model = NadarayaWatsonRegressor(0.1, degree=1).fit(*wave)
    assert np.isfinite(model.predict(wave[0])).all()
