"""Sphinx configuration: ``python -m sphinx -W --keep-going -b html docs docs/_build/html``."""

import os
from importlib.metadata import version as installed_version

project = "skattn"
author = "The skattn developers"
copyright = "2026, The skattn developers"
release = version = installed_version("skattn")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]
default_role = "literal"
nitpicky = False

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings state types and shapes
numpydoc_show_class_members = False

# Inventories come over the network, so only a build that asks for them fetches them.
if os.environ.get("SKATTN_INTERSPHINX") == "1":
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "matplotlib": ("https://matplotlib.org/stable", None),
    }

# Labels of scikit-learn's documentation that its inherited docstrings refer to.
SKLEARN_LABELS = {"r2_score", "metadata_routing"}


def setup(app):
    """Leave those labels as text unless an inventory resolves them; any other one is a warning."""
    app.connect(
        "missing-reference",
        lambda app, env, node, text: text if node["reftarget"] in SKLEARN_LABELS else None,
        priority=900,  # after intersphinx
    )


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib",),
    "doc_module": ("skattn",),
    "reference_url": {"skattn": None},
    "backreferences_dir": "generated/backreferences",
    "write_computation_times": False,
    "show_memory": False,
}

copybutton_exclude = ".linenos, .gp, .go"  # prompts and output are not code

html_theme = "pydata_sphinx_theme"
html_title = "skattn"
html_show_sourcelink = False
