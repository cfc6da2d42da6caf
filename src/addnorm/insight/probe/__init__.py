"""Flow through any model that maps tokens to logits, measured from recorded passes; see decision 0045.

`probe` returns FLOW of `addnorm.insight.flow`, measured by the same code from another record. What only our models have is
absent (own_share, depth matrices, gradients of sites and of the stream). Changes are branches' outputs that join the stream.
The gradient of a layer is that of all modules in it: a sink belongs to the whole model in ours, and to its layer there.

    missing          what could not be found in this model, each as one sentence; `missing_notes` in a file are their notes
"""

from addnorm.insight.probe.measure import probe

__all__ = ["probe"]
"""Used by `addnorm.insight.inspect`."""
