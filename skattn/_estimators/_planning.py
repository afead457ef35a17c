"""From the parameters of a `ParametricAttentionRegressor` to a plan; refuse what does not apply."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from skattn._estimators.linear import Linear
from skattn._learning.plan import MetricChoice, Plan
from skattn._sklearn import check_parameters
from skattn.kernels import get_kernel
from skattn.solvers import LBFGS, Adam, GaussNewton, GradientDescent

# Solvers by the names users write.
SOLVERS = {"gauss-newton": GaussNewton, "lbfgs": LBFGS, "adam": Adam}
# L-BFGS steps of a variant at most, unless others are given.
_VARIANT_STEPS = 300
# Validation rows where a variant needs some.
_VALIDATION = 0.1


def plan_of(estimator):
    """Resolve and check the parameters of an estimator, all within their constraints."""
    for part in (estimator.metric, estimator.solver):
        if hasattr(part, "get_params"):
            check_parameters(part)
    if estimator.variant is not None:
        estimator.variant.check()
    if isinstance(estimator.solver, GradientDescent):
        _check_gradient_descent(estimator)
    metric_solver, variant_solver = _solvers(estimator.solver, estimator.variant)
    return Plan(
        get_kernel(estimator.kernel),
        estimator.degree,
        _metric(estimator.metric),
        _curvature(estimator),
        estimator.variant,
        metric_solver,
        variant_solver,
        float(estimator.alpha),
        None if isinstance(estimator.init, str) else float(estimator.init),
        _validation(estimator),
        estimator.n_estimators,
        _generator(estimator.random_state),
    )


def _metric(metric):
    if isinstance(metric, Linear):
        return MetricChoice("linear", metric.n_components, metric.ranks)
    return MetricChoice(metric, None, has_ranks=metric == "auto")


def _curvature(estimator):
    """Whether lines bend; None where the data say so."""
    if estimator.curvature == "auto":
        is_default = isinstance(estimator.metric, str) and estimator.metric == "auto"
        return None if is_default and estimator.degree == 1 else False
    if estimator.curvature and estimator.degree == 0:
        raise ValueError(
            "curvature=True bends local lines and needs degree=1; got degree=0. Use "
            "curvature='auto' or False for weighted means."
        )
    return bool(estimator.curvature)


def _validation(estimator):
    """Share of the queries that are held out; 0 for none."""
    if estimator.validation_fraction is not None:
        return float(estimator.validation_fraction)
    variant = estimator.variant
    return _VALIDATION if variant is not None and variant.hides_validation else 0.0


def _solvers(solver, variant):
    """Solver of the metric, and of the variant, which starts at a metric learned as by "auto"."""
    automatic = GaussNewton()
    if variant is None:
        if isinstance(solver, str):
            solver = automatic if solver == "auto" else SOLVERS[solver]()
        return solver, solver
    name = variant.solvers[0] if isinstance(solver, str) and solver == "auto" else solver
    usable = tuple(SOLVERS[each] for each in variant.solvers)
    if not (name in variant.solvers if isinstance(name, str) else isinstance(name, usable)):
        raise ValueError(
            f"solver={solver!r} cannot learn variant={variant!r}. Use solver='auto', or "
            f"{' or '.join(f'{each!r}' for each in variant.solvers)}."
        )
    if name == "lbfgs":
        return automatic, LBFGS(_VARIANT_STEPS, variant.tol)
    return automatic, Adam(variant.learning_rate) if name == "adam" else solver


def _check_gradient_descent(estimator):
    """Refuse what the textbook's recipe does not have."""
    metric, init = estimator.metric, estimator.init
    rules = {
        "metric": (isinstance(metric, str) and metric in ("scalar", "diagonal"), "'scalar'"),
        "degree": (estimator.degree == 0, "0"),
        "init": (not isinstance(init, str), "a number, the first w of the features as they are"),
        "variant": (estimator.variant is None, "None"),
        "n_estimators": (estimator.n_estimators == 1, "1"),
        "validation_fraction": (estimator.validation_fraction is None, "None"),
    }
    for name, (holds, rule) in rules.items():
        if not holds:
            raise ValueError(
                f"solver={estimator.solver!r}, the textbook's recipe, learns factors of weighted "
                f"means and nothing else; got {name}={getattr(estimator, name)!r}. Use "
                f"{name}={rule}, or solver='auto'."
            )


def check_learnable(training_set, metric):
    """Refuse training sets that leave nothing to learn from, or too few features for a map."""
    excluded = training_set.leave_one_out().take(training_set.keys)
    if excluded.covers(training_set.n_keys).any():
        raise ValueError(
            "Learning needs a training row that is not left out for every row; got "
            f"n_samples={training_set.n_keys} rows of positive weight (a group is left out "
            "together and, with sample weights that are no whole numbers, all rows of the same "
            "features). Fit on more distinct rows or groups."
        )
    most = training_set.X.shape[1] * (1 + metric.has_ranks)
    if metric.n_components is not None and metric.n_components > most:
        raise ValueError(
            f"n_components of Linear must be at most the number of features, {most} with "
            f"ranks={metric.has_ranks}; got {metric.n_components}. Use None for all."
        )


def _generator(random_state):
    """Generator of random numbers; None is a new one, since NumPy's global one is not to move."""
    if random_state is None:
        random_state = int(np.random.default_rng().integers(2**32))
    return check_random_state(random_state)
