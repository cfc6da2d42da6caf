"""Gradient norm of each layer's parameters. Post-norm's small gradients in early layers are on the left."""

from addnorm.reporting.measure import LayerMeasure


class GradientNorm(LayerMeasure):
    """See the module."""

    order = 10
    key = "gradient"
    caption = "Gradient norm of each layer; whiskers from least to largest seed."
    panel_title = "Gradient norm of the parameters"
    axis_label = "gradient norm of the layer"
    columns = {"gradient_start": "gradient at the start", "gradient": "at the end"}
    legend = "gradient: norm over the layer's parameters"
    scale = "log"
    panel_scale = "log"
