"""Flow through any model that maps tokens to logits, measured from recorded passes; see decision 0045.

`probe` returns FLOW of `addnorm.insight.flow`, without what only our models have (own_share), with attention by layer alone,
with changes as the branches' outputs that join the stream, and with

    missing          what could not be found in this model, each as one sentence; `missing_notes` in a file are their notes
"""

from addnorm.insight.probe.measure import probe

__all__ = ["probe"]
"""Used by `addnorm.insight.inspect`."""
