"""What flows through a trained model, layer by layer: gradients, the stream, attention, scores, early read-outs.

Measured twice on the same held-out windows: at the start (spec and seed give the first weights again) and at the end (the
final weights, or the newest checkpoint's). `inspect_run` writes RUN/insight.json:

    {"format": 1, "run", "variant", "seed", "addnorm": version,
     "weights": {"file", "step", "steps"},
     "data": {"hash", "seq", "sequences", "map_sequences"},
     "start": FLOW, "end": FLOW}

    FLOW = {"loss", "gradient",                                  of the whole model
            "embedding": {"rms", "gradient"},                    what enters the first site
            "layers": [{"layer", "gradient", "rms", "exit_loss", one row per layer; of the keys below,
                        "share", "entropy", …}],                   the mean over the layer's sites
            "sites": [{"site", "layer", "role", "rms", "share", "gradient", "stream_gradient"}],
            "attention": [{"site", "layer", "role", "entropy", "entropy_share", "one_hot",
                           "similarity", "mean_similarity", "own_share", "score_shares",
                           "heads": [{"head", "entropy", "entropy_share", "one_hot", "similarity", "own_share"}]}]}

    loss             nats per scored token
    gradient         norm of the loss's gradient with respect to the parameters (of the site, layer or model)
    stream_gradient  norm of the loss's gradient with respect to the stream after the site, all scored tokens together
    rms              root mean square of the stream's entries after the site (for a layer: after its last site), its norm
                     included where the placement has one there
    share            norm of what the branch adds, over the norm of the stream once it has joined (before that norm)
    exit_loss        loss when the final norm and the head read the stream after this layer
    entropy          of a row of attention, in nats, mean over rows that see two positions or more
    entropy_share    the same over its largest value, the logarithm of the visible positions
    one_hot          share of those rows with more than 0.9 of their attention at one position
    similarity       1 - Jensen-Shannon divergence / ln 2 to the same head of the attention before it, mean over rows
    mean_similarity  the same of the attention averaged over heads: free of how heads happen to be numbered
    score_shares     part of the variance of the summed scores (along a row, over visible positions) that each joining
                     layer's Q K^T makes, earliest first: cov(term, sum) / var(sum). They add up to one; negative where a
                     term works against the sum
    own_share        the last of them: the layer's own Q K^T

A key is absent where the model has no such thing (scores that are not summed have no own_share, the first attention has
nothing to be similar to); it is null where the number is not finite. Everything is measured in evaluation mode and float32,
without dropout; for gradients, batch norm takes the batch's statistics as it does in training.
"""

from addnorm.insight.flow.measure import Windows, flow
from addnorm.insight.flow.runs import FORMAT, INSIGHT, Settings, inspect, inspect_run

__all__ = ["FORMAT", "INSIGHT", "Settings", "Windows", "flow", "inspect", "inspect_run"]
