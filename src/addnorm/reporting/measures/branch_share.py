"""Share of the stream that each layer's branches add."""

from addnorm.reporting.measure import LayerMeasure


class BranchShare(LayerMeasure):
    """See the module."""

    order = 30
    key = "share"
    caption = "Share of the stream that each layer's branches add."
    panel_title = "Share of the stream that the layer adds"
    axis_label = "share of the stream that a branch adds"
    columns = {"share": "share added"}
    legend = "share added: by a branch, mean of the layer's"
