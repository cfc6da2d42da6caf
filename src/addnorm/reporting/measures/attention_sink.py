"""Share of attention at the first position, which many models use as a place for attention that is not needed."""

from addnorm.reporting.measure import Measure


class AttentionSink(Measure):
    """See the module."""

    order = 55
    key = "sink"
    caption = "Share of attention at the first position."
    panel_title = "Share of attention at the first position"
    axis_label = "attention at the first position"
    columns = {"sink": "sink"}
    legend = "sink: share of a row at the first position"
