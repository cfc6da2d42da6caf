"""Share of attention rows with nearly all weight at one position."""

from addnorm.reporting.measure import LayerMeasure


class OneHot(LayerMeasure):
    """See the module."""

    order = 50
    key = "one_hot"
    caption = "Share of attention rows with more than 0.9 at one position."
    panel_title = "Share of one-hot attention rows"
    axis_label = "share of one-hot rows of attention"
    columns = {"one_hot": "one-hot"}
    legend = "one-hot: rows with more than 0.9 at one position"
