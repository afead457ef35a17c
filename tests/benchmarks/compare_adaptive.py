"""Adaptive and fixed bandwidths: errors of the mean, by degree, on even and uneven rows.

    python tests/benchmarks/compare_adaptive.py [--draws 30]

300 training rows, 500 new ones drawn alike, noise of 0.2; root of the squared error's mean over all
draws, and in brackets the root of its median over draws.
"""

import argparse

import numpy as np

from skattn import NadarayaWatsonRegressor

PROBLEMS = {
    "lognormal, sin(3 log x)": (
        lambda rng, n: rng.lognormal(size=n),
        lambda x: np.sin(3 * np.log(x)),
    ),
    "lognormal, sin x": (lambda rng, n: rng.lognormal(size=n), np.sin),
    "normal, sin 2x": (lambda rng, n: rng.normal(size=n), lambda x: np.sin(2 * x)),
    "uniform, sin 6x": (lambda rng, n: rng.uniform(size=n), lambda x: np.sin(6 * x)),
}


def squared_errors(draw, signal, n_draws, **options):
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        X, new = draw(rng, 300)[:, None], draw(rng, 500)[:, None]
        y = signal(X[:, 0]) + 0.2 * rng.standard_normal(300)
        model = NadarayaWatsonRegressor(**options).fit(X, y)
        yield np.mean((model.predict(new) - signal(new[:, 0])) ** 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=30)
    n_draws = parser.parse_args().draws
    for name, (draw, signal) in PROBLEMS.items():
        for degree in (0, 1):
            print(f"{name}, degree {degree}:", end="")
            for adaptive in (None, "query", "key"):
                options = {"degree": degree, "adaptive": adaptive}
                errors = list(squared_errors(draw, signal, n_draws, **options))
                typical = np.sqrt(np.median(errors))
                print(f"  {adaptive} {np.sqrt(np.mean(errors)):.3f} ({typical:.3f})", end="")
            print()


if __name__ == "__main__":
    main()
