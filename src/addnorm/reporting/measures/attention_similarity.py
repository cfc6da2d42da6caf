"""Similarity of each layer's attention to that of the layer before; 1 is equal."""

from addnorm.reporting.measure import LayerMeasure


class AttentionSimilarity(LayerMeasure):
    """See the module."""

    order = 60
    key = "similarity"
    caption = "Similarity of each layer's attention to the one before, head by head."
    panel_title = "Similarity of attention to the layer before, head by head"
    axis_label = "similarity to the attention before"
    columns = {"similarity": "similarity"}
    legend = "similarity: to the attention before it, 1 is equal"
    companions = ("mean_similarity",)
