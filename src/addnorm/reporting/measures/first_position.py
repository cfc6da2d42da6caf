"""Share of attention at the first position, which many models use as a place for attention that is not needed."""

from addnorm.reporting.measure import LayerMeasure


class FirstPosition(LayerMeasure):
    """See the module."""

    order = 55
    key = "first_share"
    caption = "Share of attention at the first position."
    panel_title = "Share of attention at the first position"
    axis_label = "attention at the first position"
    columns = {"first_share": "first"}
    legend = "first: share of a row at the first position"
