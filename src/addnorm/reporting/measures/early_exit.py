"""Loss when the final norm and the head read the stream after each layer of the trained model."""

from addnorm.reporting.measure import LayerMeasure


class EarlyExit(LayerMeasure):
    """See the module."""

    order = 80
    key = "exit_loss"
    caption = "Loss when the final norm and the head read the stream after each layer."
    panel_title = "Loss when reading out here, nats"
    axis_label = "loss when read out here, nats per token"
    columns = {"exit_loss": "exit loss"}
    legend = "exit loss: nats per token when the head reads the stream after this layer"
    moments = ("end",)
