"""Entropy of attention over depth: lower is sharper."""

from addnorm.reporting.measure import LayerMeasure


class AttentionEntropy(LayerMeasure):
    """See the module."""

    order = 40
    key = "entropy"
    caption = "Entropy of attention."
    panel_title = "Attention entropy, nats"
    axis_label = "entropy of attention, nats"
    columns = {"entropy": "entropy"}
    legend = "entropy: of a row of attention, in nats"
    companions = ("entropy_share",)
