"""Flow through any model that maps tokens to logits, measured from recorded passes; see decision 0045.

`probe` returns FLOW of `addnorm.insight.flow`, without what only our models have (own_share), with attention by layer alone,
and with

    update_rms       root mean square of what a site adds to the stream
    missing          what could not be found in this model, each as one sentence
"""

from addnorm.insight.probe.measure import probe

__all__ = ["probe"]
"""Used by `addnorm.insight.inspect`."""
