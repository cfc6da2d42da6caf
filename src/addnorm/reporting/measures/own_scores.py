"""Share of each layer's own QKᵀ in its summed scores; 0 means that only earlier layers' scores count."""

from addnorm.reporting.measure import LayerMeasure


class OwnScores(LayerMeasure):
    """See the module."""

    order = 70
    key = "own_share"
    caption = "Share of each layer's own QKᵀ in the variance of its summed scores."
    panel_title = "Own QKᵀ's share of the scores' variance"
    axis_label = "share of own QKᵀ in the scores"
    columns = {"own_share": "own scores"}
    legend = "own scores: the layer's own share of its summed scores"
