"""Cosine of a layer's input and output: near one where a layer changes little."""

from addnorm.reporting.measure import LayerMeasure


class LayerCosine(LayerMeasure):
    """See the module."""

    order = 25
    key = "cosine"
    caption = "Cosine of each layer's input and output."
    panel_title = "Cosine of a layer's input and output"
    axis_label = "cosine of input and output"
    columns = {"cosine": "cosine"}
    legend = "cosine: of the layer's input and output"
