"""Early exit: the loss when the final norm and the head read the stream after an earlier layer.

Source: Su (2020) expects RealFormer to be good at this, because its layers' attention changes less from one to the next.
"""

import torch

from addnorm.model.trace import Trace
from addnorm.model.transformer import Transformer
from addnorm.training.objective import Measured, Scored, compare


@torch.no_grad()
def exits(model: Transformer, trace: Trace, batch: Scored) -> dict[int, Measured]:
    """The loss after each layer of a traced pass; the last one is the model's own."""
    last_of_layer = {site.site.layer: site for site in trace.sites}
    return {
        layer: compare(model.read_out(model.residual.view(site.state)), batch) for layer, site in last_of_layer.items()
    }
