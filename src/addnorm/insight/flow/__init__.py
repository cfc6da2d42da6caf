"""Flow through a trained model, layer by layer: gradients, the stream, attention, scores, early read-outs.

All is measured twice on the same held-out windows: with the initial weights, which spec and seed reproduce, and with the final
weights, or the newest checkpoint's. `inspect_run` writes RUN/insight.json:

    {"format": 5, "run", "variant", "seed", "addnorm": version,
     "weights": {"file", "step", "steps"},
     "data": {"hash", "seq", "sequences", "map_sequences"},
     "start": FLOW, "end": FLOW}

    FLOW = {"loss", "gradient",                                  of the whole model
            "embedding": {"rms", "gradient"},                    the stream that enters the first site
            "layers": [{"layer", "gradient", "rms", "exit_loss", one row per layer; of the keys below,
                        "share", "entropy", …}],                   the mean over the layer's sites
            "sites": [{"site", "layer", "role", "rms", "update_rms", "share", "gradient", "stream_gradient"}],
            "attention": [{"site", "layer", "role", "entropy", "entropy_share", "one_hot",
                           "similarity", "mean_similarity", "own_share", "score_shares",
                           "heads": [{"head", "entropy", "entropy_share", "one_hot", "similarity", "own_share"}]}],
            "depth": {ROOM: {"kind", "reads", "sources",        depth matrices, see addnorm.depth_matrix
                             "weights", "spread", "shares", "relative", "heads"}}}

    loss             nats per scored token
    gradient         norm of the loss's gradient with respect to the parameters (of the site, layer or model)
    stream_gradient  norm of the loss's gradient with respect to the stream after the site, all scored tokens together
    rms              root mean square of the stream's entries after the site (for a layer: after its last site), after the
                     norm if the placement has one there
    update_rms       root mean square of the change that the branch makes in the stream (before that norm)
    share            norm of the change that the branch makes, over the norm of the stream after it (before that norm)
    exit_loss        loss when the final norm and the head read the stream after this layer
    entropy          of a row of attention, in nats, mean over rows that see two positions or more and read one at least
    entropy_share    the same over its largest value, the logarithm of the visible positions
    first_share      share of the first position in those rows
    query_direction  norm of the mean direction of the queries, mean over heads: 0 isotropic, 1 all alike; key_direction alike
    cosine           of a layer's input and output, mean over positions
    one_hot          share of those rows with more than 0.9 of their attention at one position
    similarity       1 - Jensen-Shannon divergence / ln 2 to the same head of the attention before it, mean over rows
    mean_similarity  the same for the attention averaged over the heads that read, independent of the order of heads
    score_shares     share of each joining layer's Q K^T in the variance of the summed scores (along a row, over visible
                     positions), earliest first: cov(term, sum) / var(sum). They add up to one; negative for a term that
                     works against the sum
    own_share        the last of them: the layer's own Q K^T

A row of attention holds the weights that multiply the values of the positions. It is divided by its sum before it is measured:
a sink is no position, and what it takes is left out, so that rows with and without sinks are compared by how they spread over
positions. Visible are the positions that masks leave: no later ones, none outside a window, no padding.

A key is absent if it does not apply (scores that are not summed have no own_share, the first attention no similarity, a head
that reads nothing no entropy); it is null if the number is not finite. Everything is measured in evaluation mode and float32,
without dropout; for gradients, batch norm uses the statistics of the batch, as in training.
"""

from addnorm.insight.flow.measure import Windows, flow
from addnorm.insight.flow.runs import FORMAT, INSIGHT, Settings, inspect_run, over_runs

__all__ = ["FORMAT", "INSIGHT", "Settings", "Windows", "flow", "inspect_run", "over_runs"]
