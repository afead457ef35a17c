"""The built site: every link leads somewhere, and a real browser renders it.

The site is that of ``SKATTN_SITE``, or ``docs/_build/html``: ``bash .ci/run docs`` builds and tests
it. The browser is Chromium (``apt-get install chromium``), without a window.
"""

import functools
import html.parser
import http.server
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
SITE = Path(os.environ.get("SKATTN_SITE", ROOT / "docs" / "_build" / "html")).resolve()
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars"

pytestmark = pytest.mark.skipif(
    not (SITE / "index.html").is_file(), reason=f"no site at {SITE}: bash .ci/run docs builds it"
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install it")


class Page(html.parser.HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.files = {""}, [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag in ("img", "script", "source") and given.get("src"):
            self.files.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon"):
            self.files.append(given["href"])
        for source in filter(None, given.get("srcset", "").split(",")):
            self.files.append(source.split()[0])


@functools.cache
def pages():
    return {
        path: Page(path) for path in sorted(SITE.rglob("*.html")) if "_static" not in path.parts
    }


def broken(references):
    """Which (page, reference) lead to no file, or to no anchor of it."""
    for path, reference in references:
        parts = urlsplit(reference)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target /= "index.html"
        known = pages().get(target)
        if not target.is_file() or (known and unquote(parts.fragment) not in known.anchors):
            yield f"{path.relative_to(SITE)}: {reference}"


def test_no_internal_link_or_anchor_is_broken():
    assert len(pages()) > 20
    assert not list(broken((path, link) for path, page in pages().items() for link in page.links))


def test_no_image_script_or_style_is_missing():
    assert not list(broken((path, file) for path, page in pages().items() for file in page.files))


def test_no_page_needs_the_network():
    fetched = (urlsplit(file) for page in pages().values() for file in page.files)
    assert not {file.geturl() for file in fetched if file.scheme or file.netloc}


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """What a page becomes in a browser, scripts included; and what its console complains of."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=SITE)
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    profile = tmp_path_factory.mktemp("chromium")

    def dump(address):
        command = [
            CHROMIUM,
            *FLAGS.split(),
            f"--user-data-dir={profile}",
            "--enable-logging=stderr",
            "--virtual-time-budget=10000",
            "--dump-dom",
            f"http://127.0.0.1:{server.server_port}/{address}",
        ]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        complaints = re.findall(r"CONSOLE.*(?:Uncaught|Failed to load|Refused).*", result.stderr)
        return result.stdout, complaints

    yield dump
    server.shutdown()
    thread.join()
    server.server_close()


@needs_chromium
@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("index.html", ["Kernel regression is attention", "quickstart.png", "Why not something"]),
        ("guide/uncertainty.html", ["Section Navigation", "On this page", "<math", "jackknife+"]),
        ("auto_examples/index.html", ["sphx-glr-thumbcontainer", "auto_examples_python.zip"]),
        ("auto_examples/plot_01_quickstart.html", ["sphx_glr_plot_01_quickstart_001.png"]),
        ("api.html", ["ParametricAttentionRegressor", "skattn.datasets.make_power_sine"]),
        (
            "generated/skattn.NadarayaWatsonRegressor.html",
            [
                "skattn.NadarayaWatsonRegressor.predict_interval",
                "<math",
                "sphx-glr-thumbcontainer",
                "criterion_",
            ],
        ),
        ("background/glossary.html", ["term-bandwidth"]),
    ],
)
def test_page_renders_in_a_browser(browse, address, shown):
    text, complaints = browse(address)
    assert not [part for part in shown if part not in text]
    assert not re.search(r"\\\(|\\\[|system-message", text)  # formulas, errors left as source
    assert not complaints


@needs_chromium
def test_gallery_shows_every_example(browse):
    text, _ = browse("auto_examples/index.html")
    examples = {path.stem for path in (ROOT / "examples").glob("plot_*.py")}
    assert {name for name in examples if f'href="{name}.html' in text} == examples


@needs_chromium
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("bandwidth", "guide/bandwidth.html"),
        ("jackknife", "guide/uncertainty.html"),
        ("predict_quantiles", "generated/skattn.NadarayaWatsonRegressor.html"),
    ],
)
def test_search_finds(browse, query, found):
    text, complaints = browse(f"search.html?q={query}")
    results = re.search(r'<ul[^>]* class="search".*?</ul>', text, re.DOTALL)
    assert results
    assert f'href="{found}' in results[0]
    assert not complaints
