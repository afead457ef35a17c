"""Architecture: layers, light imports, sizes, words, documented names."""

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

# Each package may import from those above it.
ORDER = (
    "_sklearn",
    "kernels",
    "_geometry",
    "_attention",
    "_smoother",
    "_optimize",
    "_bandwidth",
    "_uncertainty",
    "variants",
    "solvers",
    "_learning",
    "_estimators",
    "nn",
    "datasets",
    "inspection",
    "",
)
# Displays read fitted estimators, whatever their class, and import none of them.
ALONE = {"inspection", "datasets", "_sklearn", "kernels"}
# Who may import what from outside, wherever in a module.
RESERVED = {
    "torch": (
        "skattn.kernels",
        "skattn._geometry.distances",
        "skattn._attention.engines.tensor",
        "skattn.variants",
        "skattn._learning",
        "skattn.nn",
    ),
    "scipy.spatial": ("skattn._geometry",),  # distances have one home
    "matplotlib": ("skattn.inspection",),
    "dask": ("skattn.distributed",),
    "numba": ("skattn._attention.engines",),
    "finufft": ("skattn._attention.engines",),
    "pandas": ("skattn._estimators._explanations",),
    "polars": (),
    "sklearn": (
        "skattn._sklearn",
        "skattn.variants",
        "skattn.solvers",
        "skattn._estimators",
        "skattn.inspection",
    ),
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


def package_of(module):
    return module.partition(".")[2].partition(".")[0]


def test_every_package_is_in_the_order():
    assert {package_of(module) for module in modules()} == set(ORDER)


@pytest.mark.parametrize("module", modules())
def test_imports_go_up_the_order(module):
    mine = package_of(module)
    for name in imports(module):
        theirs = package_of(name)
        if name.partition(".")[0] == "skattn" and theirs != mine:
            assert mine not in ALONE, f"{module} imports {name}"
            assert ORDER.index(theirs) < ORDER.index(mine), f"{module} imports {name}"


@pytest.mark.parametrize("module", modules())
def test_outside_libraries_stay_where_they_belong(module):
    for name in imports(module):
        for library, allowed in RESERVED.items():
            if f"{name}.".startswith(f"{library}."):
                assert module.startswith(allowed), f"{module} imports {name}"


def test_layers_share_kernels_distances_and_the_nearest_key_rule_alone():
    shared = ("skattn.nn", "skattn.kernels", "skattn._geometry", "skattn._attention.engines")
    for module in modules():
        if package_of(module) == "nn":
            ours = [name for name in imports(module) if name.startswith("skattn")]
            assert all(name.startswith(shared) for name in ours), module


def test_no_chain_of_packages_is_longer_than_eight():
    graph = {package: set() for package in ORDER}
    for module in modules():
        for name in imports(module):
            if name.startswith("skattn.") and package_of(name) != package_of(module):
                graph[package_of(module)].add(package_of(name))
    lengths = {}
    for package in graphlib.TopologicalSorter(graph).static_order():
        lengths[package] = 1 + max((lengths[name] for name in graph[package]), default=0)
    assert max(lengths.values()) <= 8, lengths


def test_sizes():
    lines = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert max(lines.values()) <= 400, max(lines, key=lines.get)
    assert sum(lines.values()) <= 16_900


def functions():
    """Names and nodes of all functions of the package."""
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.FunctionDef):
                yield f"{module}.{node.name}", node


def test_functions_have_few_parameters():
    # constructors of what users make, and displays, have one for each thing that can be set
    exempt = ("skattn.inspection", "skattn._estimators", "skattn.nn", "skattn.variants")
    for name, node in functions():
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        number = len([each for each in arguments if each.arg not in ("self", "cls")])
        most = 20 if name.endswith("__init__") or name.startswith("skattn.inspection") else 8
        assert number <= (most if name.startswith(exempt) else 8), name


def test_no_object_is_unpacked_into_more_than_four_arguments():
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.Call):
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                owners = [
                    each.value.id
                    for each in given
                    if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)
                ]
                owners = [each for each in owners if each not in ("np", "torch")]
                most = max((owners.count(each) for each in owners), default=0)
                assert most <= 4, f"{module}, line {node.lineno}"


# A docstring starts with the noun or verb it documents.
ELLIPTIC = ("Of ", "Those ", "What ", "The same ", "Its ", "As ")


@pytest.mark.parametrize("module", modules())
def test_docstrings_start_with_what_they_document(module):
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            text = ast.get_docstring(node) or ""
            assert not text.startswith(ELLIPTIC), f"{module}: {text.splitlines()[0]}"


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
    yield from ("skattn.solvers", "skattn.variants")
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
    "ParametricAttentionRegressor": set(),
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
@pytest.mark.parametrize("name", OPTIONAL)
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
