"""The pages of docs/: their code runs, and their numbers are those that were measured.

Doctests (``>>>``) run by ``bash .ci/run doctests``. Here run the ``code-block:: python`` of every
page, one after the other in one namespace; a ``code-block:: text`` that follows is what is printed.
"""

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILT = {"_build", "auto_examples", "generated"}
PAGES = {
    str(path.relative_to(DOCS)): path.read_text()
    for path in sorted(DOCS.rglob("*.rst"))
    if not BUILT & set(path.relative_to(DOCS).parts) and path.name != "sg_execution_times.rst"
    if "_templates" not in path.parts
}
BLOCK = re.compile(r"^( *)\.\. code-block:: (\w+)\n((?:\1   .*\n|\n)+)", re.MULTILINE)
CODE = re.compile(r"\.\. (?:code|code-block|sourcecode|highlight|parsed-literal)::")
# What else the code of a page imports; without it, its blocks are only compiled.
NEEDS = {
    "guide/persistence.rst": ("cloudpickle",),
    "guide/scaling_out.rst": ("dask.array", "distributed"),
}
# Never run: commands install packages, fetch, or measure for minutes. Their files must exist.
NOT_RUN = "bash"


def blocks(page):
    """Language and text of the code blocks of a page."""
    return [(kind, textwrap.dedent(code).strip()) for _, kind, code in BLOCK.findall(PAGES[page])]


def is_installed(module):
    with contextlib.suppress(ModuleNotFoundError):
        return importlib.util.find_spec(module) is not None
    return False


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run_and_print_what_the_page_shows(page):
    runs = all(is_installed(module) for module in NEEDS.get(page, ()))
    namespace, printed = {"__name__": "page"}, ""
    for kind, code in blocks(page):
        if kind == "python":
            compiled = compile(code, page, "exec")
            if runs:
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compiled, namespace)
                printed = out.getvalue().strip()
        elif kind == "text" and runs:
            assert printed == code


@pytest.mark.parametrize("page", PAGES)
def test_no_code_escapes_the_tests(page):
    assert {kind for kind, _ in blocks(page)} <= {"python", "text", NOT_RUN}
    directives = CODE.findall(PAGES[page])
    assert len(directives) == len(blocks(page))
    paragraphs = [line for line in PAGES[page].splitlines() if not line.lstrip().startswith("..")]
    assert not [line for line in paragraphs if line.endswith("::")]  # a block of no language


@pytest.mark.parametrize("page", PAGES)
def test_commands_parse_and_name_files_that_exist(page):
    for kind, code in blocks(page):
        if kind == NOT_RUN and os.name == "posix":
            subprocess.run(["bash", "-n"], input=code, text=True, check=True)
    for name in re.findall(r"\bpython ((?:tests|examples)/\S+\.py)", PAGES[page]):
        assert (ROOT / name).exists()


def test_every_page_is_in_a_toctree():
    listed = set()
    for page, text in PAGES.items():
        for _, tree in re.findall(r"^( *)\.\. toctree::\n((?:   .*\n|\n)+)", text, re.MULTILINE):
            for line in tree.split():
                entry = Path(page).parent / line.strip("<>")
                listed.add(f"{entry}.rst")
    assert set(PAGES) - listed == {"index.rst"}


def test_doctest_step_finds_every_page():
    step = (ROOT / ".ci" / "run").read_text().partition("step_doctests() {")[2].partition("}")[0]
    assert "find docs -name '*.rst'" in step


def test_front_page_shows_the_example_of_the_readme():
    readme = (ROOT / "README.md").read_text()
    for kind in ("python", "text"):
        (shown,) = re.findall(rf"^```{kind}\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
        assert [code for language, code in blocks("index.rst") if language == kind] == [
            shown.strip()
        ]


def test_links_of_the_readme_lead_somewhere():
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text()):
        assert (ROOT / link).exists(), link


def accuracy():
    """The table of errors on the benchmark page: method -> data set -> error."""
    section = PAGES["benchmarks.rst"].partition(".. _accuracy:")[2]
    table = section[section.index("* - data") : section.index("\nLost:")]
    head, *rows = [re.findall(r"- +(\S.*)", row) for row in table.split("   * ")]
    return {
        method: {row[0]: float(row[column]) for row in rows}
        for column, method in enumerate(head)
        if column
    }


def wins(one, other):
    """On how many data sets `one` has the smaller error."""
    data = set(one) - {"mean", "geometric mean", "seconds of a fit"}
    return sum(one[name] < other[name] for name in data), len(data)


def test_front_page_quotes_the_measured_errors():
    errors = accuracy()
    mean = {method: column["geometric mean"] for method, column in errors.items()}
    seconds = {method: column["seconds of a fit"] for method, column in errors.items()}
    learned, means = errors["learned attention"], errors["Nadaraya-Watson"]
    text = " ".join(PAGES["index.rst"].split())
    assert (
        f"Error {mean['k-NN']}; Nadaraya-Watson {mean['Nadaraya-Watson']}, smaller on "
        f"{wins(means, errors['k-NN'])[0]} of 16; learned {mean['learned attention']}, smaller on "
        f"{wins(learned, errors['k-NN'])[0]}." in text
    )
    assert f"Error {mean['GP']:.3f}, **smaller** than learned ({mean['learned attention']})" in text
    assert f"yacht: {errors['GP']['yacht']:.3f} against {learned['yacht']:.3f}" in text
    lost = wins(errors["GP"], learned)[0]
    assert f"Gaussian process on {lost} of the 16" in " ".join(PAGES["benchmarks.rst"].split())
    assert f"on {lost} of 16" in text
    assert wins(errors["average of 8"], errors["GP"])[0] == 8
    assert f"has {mean['average of 8']}, and is ahead on eight" in text
    fits = f"{seconds['GP']:.1f} s against {seconds['learned attention']:.1f} s"
    assert f"A fit takes {fits}" in text
    assert f"CatBoost {mean['CatBoost']}, scikit-learn's {mean['HGB']:.3f}" in text
    assert f"ahead of CatBoost on {wins(learned, errors['CatBoost'])[0]} of 16" in text
    california = f"{errors['CatBoost']['california']} against {learned['california']}"
    assert f"california ({california}) and five more" in text


def test_readme_quotes_the_measured_errors():
    errors = accuracy()
    order = [
        "learned attention",
        "average of 8",
        "Nadaraya-Watson",
        "GP",
        "CatBoost",
        "HGB",
        "k-NN",
    ]
    readme = (ROOT / "README.md").read_text().replace("*", "")
    for name, row, digits in [("error", "geometric mean", 3), ("seconds", "seconds of a fit", 2)]:
        cells = " | ".join(f"{errors[method][row]:.{digits}f}" for method in order)
        assert f"| {name} | {cells} |" in readme
