"""Learning a metric in closed form against automatic differentiation, in one run.

    python tests/benchmarks/compare_training.py

Both minimise the same penalised leave-one-out loss of local lines (Student kernel, a factor for
each feature), from the same start: skattn by Gauss-Newton steps on closed-form Jacobians, the other
by SciPy's L-BFGS-B on gradients of a plain PyTorch program. Prints CPU seconds on one thread.
"""

import math
import platform
import time

import numpy as np
import scipy
import torch
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from skattn._geometry.training_set import Exclusion
from skattn._learning.design import Problem
from skattn._learning.leave_one_out import LeaveOneOut
from skattn._learning.losses import MetricLoss, Prior
from skattn._learning.metrics import DiagonalMetric
from skattn._learning.stages import common_start
from skattn._optimize.monitor import Bounds, Monitor, Task
from skattn.kernels import get_kernel
from skattn.solvers import GaussNewton


def problem(n, d):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = np.sin(2.0 * X[:, 0] * X[:, 1]) + X[:, 2] + 0.5 * X[:, 3] ** 2
    y += 0.2 * rng.standard_normal(n)
    y = ((y - y.mean()) / y.std())[:, None]
    itself = Exclusion(np.arange(n), np.arange(n) + 1, np.zeros(n))
    return Problem(X, X, y, np.ones(n), itself, get_kernel("student"), d)


def plain_loss(task, prior):
    """The same loss as a PyTorch program, and its gradient by automatic differentiation."""
    X, y = torch.from_numpy(task.features), torch.from_numpy(task.values[:, 0])
    n, d = X.shape
    first, second = torch.triu_indices(d, d)
    center, precision = torch.from_numpy(prior.center), torch.from_numpy(prior.precision)

    def evaluate(parameters):
        at = torch.tensor(parameters, requires_grad=True)
        Z = X * torch.exp(at[:d])
        norms = (Z * Z).sum(1)
        squared = (norms[:, None] + norms - 2.0 * Z @ Z.T).clamp_min(0.0)
        logits = -4.0 * torch.log1p(squared / 7.0)
        logits = logits.masked_fill(torch.eye(n, dtype=torch.bool), -math.inf)
        A = torch.softmax(logits, 1)
        mean, level = A @ X, A @ y
        C = torch.zeros(n, d, d, dtype=X.dtype)
        pairs = A @ (X[:, first] * X[:, second])
        C = C.index_put((torch.arange(n)[:, None], first, second), pairs)
        C = C.index_put((torch.arange(n)[:, None], second, first), pairs)
        C = C - mean[:, :, None] * mean[:, None] + torch.exp(at[d]) * torch.eye(d, dtype=X.dtype)
        cross = A @ (X * y[:, None]) - mean * level[:, None]
        slope = torch.linalg.solve(C, cross[:, :, None])[:, :, 0]
        errors = y - level - ((X - mean) * slope).sum(1)
        loss = torch.log((errors**2).mean() + 1e-6) + (precision * (at - center) ** 2).sum()
        loss.backward()
        return loss.item(), at.grad.numpy()

    return evaluate


def compare(n, d):
    task = problem(n, d)
    errors = LeaveOneOut(task, np.arange(n), torch.device("cpu"), torch.float64)
    log_scale, ridge = common_start(errors.at(np.arange(0, n, max(1, n // 300))))
    center = np.append(np.full(d, log_scale), np.log(ridge))
    bounds = Bounds(center - 6.0, center + 6.0)
    prior = Prior(center, np.full(d + 1, 1.0 / n), bounds)
    loss, plain = MetricLoss(errors, prior, DiagonalMetric(d)), plain_loss(task, prior)
    ours, theirs = loss(center + 0.1), plain(center + 0.1)
    assert abs(ours[0] - theirs[0]) < 1e-9
    assert np.allclose(ours[1], theirs[1], atol=1e-7)
    if n > 500:  # as the estimator does
        single = LeaveOneOut(task, np.arange(n), torch.device("cpu"), torch.float32)
        loss = MetricLoss(single, prior, DiagonalMetric(d))

    start = time.process_time()
    trained = GaussNewton().minimize(Task(loss, center, bounds, Monitor()))
    seconds = time.process_time() - start
    pairs = list(zip(bounds.lower, bounds.upper, strict=True))
    start = time.process_time()
    found = minimize(plain, center, jac=True, method="L-BFGS-B", bounds=pairs, tol=1e-5)
    others = time.process_time() - start
    reached = loss.of(errors).value(trained.parameters)
    print(
        f"n = {n:<6} d = {d:<3} skattn {reached:.6f} {seconds:7.3f} s   "
        f"autograd {found.fun:.6f} {others:7.3f} s {others / seconds:6.1f} x"
    )


def main():
    torch.set_num_threads(1)
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}")
    print(f"PyTorch {torch.__version__}; of skattn, float32 from 500 rows on, as in the estimator")
    with threadpool_limits(1):
        for n, d in ((300, 8), (1000, 8), (1000, 20)):
            compare(n, d)


if __name__ == "__main__":
    main()
