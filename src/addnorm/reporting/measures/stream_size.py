"""Size of the stream after each layer: pre-norm lets it grow, post-norm sets it back."""

from addnorm.reporting.measure import LayerMeasure


class StreamSize(LayerMeasure):
    """See the module."""

    order = 20
    key = "rms"
    caption = "Size of the stream after each layer."
    panel_title = "Root mean square of the stream"
    axis_label = "size of the stream (root mean square)"
    columns = {"rms": "stream"}
    legend = "stream: root mean square after the layer"
    panel_scale = "log"
