r"""Scores that all layers of a pass share, kept in buffers of the model: a layer multiplies its own queries and keys alone.

Two schemes. Both keep flat buffers from one training step to the next, compute tile by tile, and hand one layer's gradient to
the layer below inside the buffer.

**One running sum** (running.py), where all layers up to m share one weight w_m: their sum is w_m R_m, R_m = R_{m-1} + Q_m K_mᵀ.
One buffer holds it for the whole model, scaled for the layer that reads it (S = w_m R_m), another the gradient G of S:

    forward, layer m:    S ← b S + w_m Q_m K_mᵀ,  b = w_m / w_{m-1}       one product, in place, tile by tile
                         P = softmax(S + bias),  O_m = P V_m              S is -inf at keys that a row may not see
    backward, layer m:   P once more from S;  dS = P ∘ (dP − Σ P dP)
                         G ← dS + b G,  b = w_{m+1} / w_m                 0 above the last layer
                         dQ_m = w_m G K_m,  dK_m = w_m Gᵀ Q_m,  dw_m = Σ dS ∘ R_m
                         S ← (S − w_m Q_m K_mᵀ) w_{m-1} / w_m             what layer m − 1 saw

The factors b cost nothing: products are added to a scaled matrix in any case. The mask is in S from the first layer on: -inf
stays -inf under all of these. Undoing loses no more than summing: each step rounds once. The cost of a layer does not grow with
depth. On a GPU: ../triton/running.py.

**The products of all layers** (stored.py), where every pair of layers has a weight: S_m = Σ_{i<=m} w_{m,i} T_i, T_i = Q_i K_iᵀ,
so that no layer's sum follows from another's. One buffer has a slot per layer. It holds T_i until layer i is differentiated,
and then the gradient of layer i's scores:

    forward, layer m:    T_m = Q_m K_mᵀ                        one product, in slot m, tile by tile
                         S = Σ_{i<=m} w_{m,i} T_i              one pass over m slots
                         P = softmax(S + bias + mask),  O_m = P V_m
    backward, layer m:   S and P once more;  dS_m = P ∘ (dP − Σ P dP)
                         dw_{m,i} = Σ dS_m ∘ T_i               one pass over m slots
                         slot m ← dS_m                         no earlier layer reads T_m
                         G = Σ_{l>=m} w_{l,m} dS_l             one pass over the slots from m on
                         dQ_m = G K_m,  dK_m = Gᵀ Q_m

Reading a number of a slot takes a fraction of the time of the 2 · head_dim operations that would make it again.

Buffers: buffers.py. Order of the layers, and what may come in between: layers.py. What both schemes do in a layer: layer.py.
"""

from addnorm.kernels.grouped_attention.kept_scores.buffers import ProductBuffers, ScoreBuffers
from addnorm.kernels.grouped_attention.kept_scores.layers import (
    RUNNING_LIMIT,
    STORED_LIMIT,
    ReversibleSum,
    StoredProducts,
    running_bytes,
    running_limit,
    stored_bytes,
    why_not_running,
    why_not_stored,
)

__all__ = [
    "RUNNING_LIMIT",
    "STORED_LIMIT",
    "ProductBuffers",
    "ReversibleSum",
    "ScoreBuffers",
    "StoredProducts",
    "running_bytes",
    "running_limit",
    "stored_bytes",
    "why_not_running",
    "why_not_stored",
]
