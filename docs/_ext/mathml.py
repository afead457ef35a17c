"""Formulas as MathML, which browsers render themselves: no script, nothing to fetch."""

import html
import re

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)

# docutils puts the index of an accented letter below it: \hat\sigma_i.
LEAF = r"\s*(<m\w+>[^<]*</m\w+>)"
ACCENTED = re.compile(rf'<munderover>{LEAF}{LEAF}\s*(<mo stretchy="false">.</mo>)\s*</munderover>')


def to_mathml(node, *, block):
    """The formula of a node; a warning, and its source as text, where docutils cannot read it."""
    try:
        formula = latex2mathml.tex2mathml(node.astext(), as_block=block)
        return ACCENTED.sub(r"<msub><mover>\1\3</mover>\2</msub>", formula)
    except MathError as error:
        logger.warning("formula %r: %s", node.astext(), error, location=node)
        return f"<code>{html.escape(node.astext())}</code>"


def visit_inline(self, node):
    self.body.append(to_mathml(node, block=False))
    raise nodes.SkipNode


def visit_block(self, node):
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(to_mathml(node, block=True))
    if node.get("number"):
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})</span>')
    self.body.append("</div>")
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
