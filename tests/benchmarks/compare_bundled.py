"""Kernel regression and its rivals on the same folds of data that come with scikit-learn.

    python tests/benchmarks/compare_bundled.py

Root mean squared error of five folds and CPU time of fitting and predicting them, on one thread:
the table of docs/comparison.rst. statsmodels (where it is installed) and skattn select by the same
criterion, leave-one-out; k-NN is tuned by cross-validation inside the folds; the Gaussian process
has a length scale for each feature and noise; boosting is at its defaults. Features are
standardised on the training rows for those that need it.
"""

import importlib.util
import time
import warnings

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skattn import NadarayaWatsonRegressor, ParametricAttentionRegressor


class KernelReg(RegressorMixin, BaseEstimator):
    """statsmodels' estimator, with its bandwidth by ``cv_ls``."""

    def __init__(self, reg_type="lc"):
        self.reg_type = reg_type

    def fit(self, X, y):
        from statsmodels.nonparametric.kernel_regression import KernelReg as Theirs

        self.model_ = Theirs(y, X, "c" * X.shape[1], reg_type=self.reg_type, bw="cv_ls")
        return self

    def predict(self, X):
        return self.model_.fit(X)[0]


def gaussian_process(d):
    kernel = ConstantKernel(1.0) * RBF(np.ones(d)) + WhiteKernel(0.5)
    return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)


def methods(d):
    yield "linear regression", LinearRegression()
    neighbors = GridSearchCV(KNeighborsRegressor(), {"n_neighbors": [3, 5, 10, 15, 20, 30, 50]})
    yield "k-NN, k tuned", make_pipeline(StandardScaler(), neighbors)
    yield "gradient boosting", HistGradientBoostingRegressor(random_state=0)
    yield "Gaussian process", make_pipeline(StandardScaler(), gaussian_process(d))
    if importlib.util.find_spec("statsmodels") is not None and d <= 5:
        yield "statsmodels, lc", KernelReg("lc")
        yield "statsmodels, ll", KernelReg("ll")
    yield "skattn, degree 0", NadarayaWatsonRegressor()
    yield "skattn, degree 1", NadarayaWatsonRegressor(degree=1)
    if importlib.util.find_spec("torch") is not None:
        yield "skattn, learned", ParametricAttentionRegressor()


def data():
    diabetes = load_diabetes()
    three = [diabetes.feature_names.index(name) for name in ("bmi", "bp", "s5")]
    yield "diabetes, bmi, bp, s5", diabetes.data[:, three], diabetes.target
    yield "diabetes, all 10", diabetes.data, diabetes.target
    yield "friedman1, noise 1", *make_friedman1(300, n_features=5, noise=1.0, random_state=0)


def main():
    folds = KFold(5, shuffle=True, random_state=0)
    for name, X, y in data():
        print(f"\n{name}: {len(y)} rows, {X.shape[1]} features")
        for method, model in methods(X.shape[1]):
            errors, begin = [], time.process_time()
            for train, test in folds.split(X):
                difference = model.fit(X[train], y[train]).predict(X[test]) - y[test]
                errors.append(np.sqrt(np.mean(difference**2)))
            seconds = time.process_time() - begin
            print(f"{method:<20}{np.mean(errors):8.3f}{seconds:10.2f} s", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernel parameters at a bound, of steps that run out
        main()
