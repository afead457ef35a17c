"""The house: layers, light imports, documented names."""

import ast
import configparser
import graphlib
import importlib
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn
from numpydoc.validate import validate
from sklearn.utils import estimator_html_repr
from sklearn.utils.fixes import parse_version

import skattn
import skattn.inspection

PACKAGE = Path(skattn.__file__).parent
DOCS = PACKAGE.parent / "docs"

# What each room may import of the package, besides rooms of its own.
LAYERS = {
    "kernels": set(),
    "geometry": set(),
    "datasets": set(),
    "_sklearn": set(),
    "attention": {"kernels", "geometry"},
    "radii": {"geometry"},
    "modifiers": {"geometry"},
    "embedding": {"geometry", "modifiers"},
    "smoother": {"kernels", "geometry", "radii", "attention"},
    "bandwidth": {"kernels", "geometry", "radii", "attention", "smoother"},
    "uncertainty": {"geometry", "attention", "smoother"},
    "learning": {"geometry", "modifiers", "attention"},
    "nn": {"kernels", "geometry", "attention"},
    "estimators": {
        "kernels",
        "geometry",
        "modifiers",
        "embedding",
        "attention",
        "smoother",
        "bandwidth",
        "uncertainty",
        "learning",
        "_sklearn",
    },
    # Displays read fitted estimators, whatever their class, and import none of them.
    "inspection": set(),
    "": {"estimators"},
}
# Who may import what from outside.
RESERVED = {
    "torch": ("skattn._attention._torch", "skattn._learning", "skattn.nn"),
    "matplotlib": ("skattn.inspection",),
    "dask": ("skattn.distributed",),
    "numba": ("skattn._attention",),
    "finufft": ("skattn._attention",),
    "pandas": ("skattn._estimators._explanation",),
    "polars": (),
    "sklearn": ("skattn._estimators", "skattn._sklearn", "skattn.inspection"),
}


def modules():
    """Names of all modules, from the files: not all can be imported without the extras."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tree(module):
    """The syntax tree of a module's source."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def imports(module):
    """Names of the modules that a module's source imports, anywhere in it."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            known = set(modules())
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module


def room(module):
    return module.partition(".")[2].partition(".")[0]


def test_every_room_is_in_the_plan():
    assert {room(module) for module in modules()} == set(LAYERS)


@pytest.mark.parametrize("module", modules())
def test_imports_follow_the_layers(module):
    for name in imports(module):
        if name.partition(".")[0] == "skattn" and room(name) != room(module):
            assert room(name) in LAYERS[room(module)], f"{module} imports {name}"


@pytest.mark.parametrize("module", modules())
def test_outside_libraries_stay_in_their_rooms(module):
    for name in imports(module):
        allowed = RESERVED.get(name.partition(".")[0])
        assert allowed is None or module.startswith(allowed), f"{module} imports {name}"


def test_layers_take_nothing_but_tensors_from_attention():
    for module in modules():
        if room(module) == "nn":
            names = {name for name in imports(module) if room(name) == "attention"}
            assert names <= {"skattn._attention._torch"}, module


def test_private_scikit_learn_names_live_in_one_file():
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
                names = [*node.module.split("."), *(alias.name for alias in node.names)]
                private = [name for name in names if name.startswith("_")]
                assert not private or module == "skattn._sklearn", f"{module}: {private}"


def test_import_graph_has_no_cycle():
    graph = {
        module: {name for name in imports(module) if name in set(modules())} for module in modules()
    }
    graphlib.TopologicalSorter(graph).prepare()


def test_import_is_light():
    # scikit-learn itself loads pandas where it is installed
    code = (
        "import sys, sklearn.base, sklearn.utils.validation; before = set(sys.modules);"
        "import skattn; heavy = {'torch', 'matplotlib', 'polars', 'dask', 'numba'};"
        "print(heavy & set(sys.modules) | {'pandas'} & (set(sys.modules) - before))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"


def test_displays_load_matplotlib_only_when_they_draw():
    code = (
        "import sys, skattn.inspection; print('matplotlib' in sys.modules);"
        "sys.modules['matplotlib'] = None;"
        "skattn.inspection.PredictionIntervalDisplay.from_predictions([1.0], [[0.0, 2.0]])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False"
    assert "ImportError: Displays need Matplotlib" in result.stderr
    assert 'pip install "skattn[plot]"' in result.stderr


def documented_modules():
    yield from ("skattn", "skattn.inspection", "skattn.kernels", "skattn.datasets")
    if importlib.util.find_spec("torch"):
        yield "skattn.nn"


def public_objects():
    """Public functions, classes and their methods, with their dotted names."""
    for module in documented_modules():
        for name in importlib.import_module(module).__all__:
            thing = getattr(importlib.import_module(module), name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                yield f"{module}.{name}"
            if inspect.isclass(thing) and module in ("skattn", "skattn.inspection", "skattn.nn"):
                members = inspect.getmembers(thing, inspect.isroutine)
                members = [(m, f) for m, f in members if hasattr(f, "__module__")]
                own = (m for m, f in members if str(f.__module__).startswith("skattn"))
                yield from (f"{module}.{name}.{member}" for member in own if member[0] != "_")


# Sections that are not wanted everywhere: see also, examples for methods, yields; and the summary
# rules that ruff's pydocstyle decides.
IGNORED = {
    "RT02",
    "ES01",
    "SA01",
    "SA04",
    "EX01",
    "GL01",
    "GL02",
    "GL03",
    "SS05",
    "SS06",
    "PR01",
    "YD01",
}


@pytest.mark.parametrize("name", public_objects())
def test_public_docstrings_are_numpydoc(name):
    errors = [error for error in validate(name)["errors"] if error[0] not in IGNORED]
    assert not errors


OPTIONAL = {
    "NadarayaWatsonRegressor": {"criterion_", "n_neighbors_"},
    "ParametricAttentionRegressor": {"sample_factors_", "mixture_weight_"},
}


@pytest.mark.parametrize("name", OPTIONAL)
def test_class_docstring_describes_every_parameter_and_attribute(name):
    from numpydoc.docscrape import ClassDoc

    cls = getattr(skattn, name)
    doc = ClassDoc(cls)
    parameters = list(inspect.signature(cls).parameters)
    assert [parameter.name for parameter in doc["Parameters"]] == parameters
    assert set(cls._parameter_constraints) == set(parameters)
    if name == "ParametricAttentionRegressor":
        pytest.importorskip("torch")
        model = cls()
    else:
        model = cls(bandwidth=1.0)
    model.fit([[0.0], [1.0], [3.0]], [0.0, 1.0, 5.0])
    fitted = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    documented = {attribute.name for attribute in doc["Attributes"]}
    assert documented == fitted | OPTIONAL[name] | {"effective_dof_", "feature_names_in_"}


def test_layers_describe_every_parameter():
    pytest.importorskip("torch")
    from numpydoc.docscrape import ClassDoc

    layers = importlib.import_module("skattn.nn")
    for name in layers.__all__:
        cls = getattr(layers, name)
        documented = [parameter.name for parameter in ClassDoc(cls)["Parameters"]]
        assert documented == list(inspect.signature(cls).parameters), name
        assert name in (DOCS / "api.rst").read_text()


@pytest.mark.parametrize("name", [*skattn.__all__, *skattn.inspection.__all__])
def test_every_public_name_is_in_the_api_page(name):
    assert name in (DOCS / "api.rst").read_text()


def test_html_display_links_to_the_documentation():
    setup = configparser.ConfigParser()
    setup.read(PACKAGE.parent / "setup.cfg")
    urls = setup["metadata"]["project_urls"].split("\n")
    (base,) = (url.partition(" = ")[2] for url in urls if url.startswith("Documentation"))
    page = f"{base}/generated/skattn.NadarayaWatsonRegressor.html"
    assert f'href="{page}"' in estimator_html_repr(skattn.NadarayaWatsonRegressor())


@pytest.mark.skipif(parse_version(sklearn.__version__) < parse_version("1.9"), reason="from 1.9")
@pytest.mark.parametrize("name", skattn.__all__)
def test_html_display_shows_few_and_small_attributes(name):
    if name == "ParametricAttentionRegressor":
        pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    model = getattr(skattn, name)().fit(X, X[:, 0] + 0.1 * rng.standard_normal(300))
    shown = estimator_html_repr(model)
    assert "bandwidth_" in shown
    for private in ("_keys", "_parameters", "effective_dof_"):
        assert f">{private}<" not in shown
    fitted = {key: value for key, value in vars(model).items() if key.endswith("_")}
    assert len(fitted) <= 14
    assert all(np.size(value) <= 100 for value in fitted.values())
