"""Early exit: the loss when the final norm and the head read the stream after an earlier layer.

Source: Su (2020) expects RealFormer to be good at this, because its layers' attention changes less from one to the next.
"""

import torch

from addnorm.insight.flow.observe import Seen
from addnorm.model.transformer import Transformer
from addnorm.residual import map_stream
from addnorm.training.objective import Measured, Scored, compare


@torch.no_grad()
def exits(model: Transformer, seen: Seen, batch: Scored) -> dict[int, Measured]:
    """What the model would say after each layer of the pass just seen; the last one is what it does say."""
    last = {site.site.layer: site for site in seen.sites}
    found = {}
    for layer, site in last.items():
        state = map_stream(site.state, lambda stream, after=site.after: after)  # type: ignore[misc]
        found[layer] = compare(model.head(model.final_norm(model.residual.close(state))), batch)
    return found
