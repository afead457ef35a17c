"""A factor for the weight of each training row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skattn._smoother import Component
from skattn.variants import _model
from skattn.variants._model import Components, Model, ParameterBlock, Parts, RowNumbers, Tensor

# Standard deviations of the prior of log-factors of keys around zero, and of features, which are
# held more tightly: the metric is not to narrow around wrong rows.
_KEYS, _HELD = 1.0, 0.5


class SampleReweighting(_model.Variant):
    """A learned factor for the weight of each training row: rows not to be trusted count less.

    As many numbers as there are rows; they are ``members_[0].sample_factors``. No parameters.
    """

    # factors of keys could be followed for long, from where they help on
    tol = 1e-4

    def models(self, beginning: _model.Beginning) -> list[Model]:
        """The only candidate: nothing changed."""
        held = beginning.metric.block(spread=_HELD)
        return [_Model(beginning.metric, [held, ParameterBlock(np.zeros(len(beginning.x)), _KEYS)])]


class _Model(Model):
    def forward(self, parts: Parts, features: Tensor) -> RowNumbers:
        return RowNumbers([self.metric.coordinates(parts[0], features)], log_factors=parts[1])

    def smoother(
        self, parts: Parts, components: Components, standard: _model.StandardFeatures
    ) -> Component:
        (component,), log_factors = components, parts[1] - parts[1].max()
        places = component.training_set.places_when_deduplicated()
        return replace(component, log_factors=log_factors[places])
