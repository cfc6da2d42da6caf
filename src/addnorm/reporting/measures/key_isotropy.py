"""Mean direction of keys: 0 if they are isotropic, 1 if all have one direction."""

from addnorm.reporting.measure import LayerMeasure


class KeyIsotropy(LayerMeasure):
    """See the module."""

    order = 59
    key = "key_direction"
    caption = "Norm of the mean direction of the keys."
    panel_title = "Mean direction of keys"
    axis_label = "norm of the keys' mean direction"
    columns = {"key_direction": "k dir"}
    legend = "k dir: norm of the mean direction of keys"
