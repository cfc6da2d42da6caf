"""Size of what the branches of a layer add to the stream."""

from addnorm.reporting.measure import LayerMeasure


class UpdateSize(LayerMeasure):
    """See the module."""

    order = 25
    key = "update_rms"
    caption = "Size of what the branches of each layer add to the stream."
    panel_title = "Root mean square of what branches add"
    axis_label = "size of a branch's output (root mean square)"
    columns = {"update_rms": "update"}
    legend = "update: root mean square of what a branch adds to the stream"
    panel_scale = "log"
