"""Sphinx configuration: ``python -m sphinx -W --keep-going -b html docs docs/_build/html``."""

import os
import sys
import urllib.request
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.util import logging

logger = logging.getLogger(__name__)
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "skattn"
author = "The skattn developers"
copyright = "2026, The skattn developers"
release = version = installed_version("skattn")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "mathml",  # _ext/mathml.py
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "_ext"]
default_role = "literal"
nitpicky = False

autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # the docstrings state types and shapes
numpydoc_show_class_members = False

OTHERS = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "scipy": "https://docs.scipy.org/doc/scipy",
    "sklearn": "https://scikit-learn.org/stable",
    "matplotlib": "https://matplotlib.org/stable",
    "joblib": "https://joblib.readthedocs.io/en/stable",
}


def inventories():
    """Where others' names are documented: what of it can be fetched, or was before.

    A site that does not answer costs its links, not the build.
    """
    folder = HERE / "_build" / "inventories"
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, url in OTHERS.items():
        file = folder / f"{name}.inv"
        try:
            with urllib.request.urlopen(f"{url}/objects.inv", timeout=5) as answer:
                file.write_bytes(answer.read())
        except OSError as error:
            logger.info("no inventory from %s: %s", url, error)
        if file.exists():
            found[name] = (url, str(file))
    return found


# Only a build that asks for it touches the network.
if os.environ.get("SKATTN_INTERSPHINX") == "1":
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = inventories()

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
html_math_renderer = "mathml"
html_title = "skattn"
html_static_path = ["_static"]
html_css_files = ["skattn.css"]
html_logo = html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "skattn", "alt_text": "skattn, front page"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
}
# Pages without pages below them have nothing to show there.
html_sidebars = {
    page: [] for page in ("index", "install", "sharp_bits", "comparison", "benchmarks", "changes")
}
