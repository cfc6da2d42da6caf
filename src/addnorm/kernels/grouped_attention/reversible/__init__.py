r"""One running sum of scores for all layers, undone on the way back: the cost of a layer does not grow with depth.

Where all layers up to m share one weight w_m, their sum is w_m R_m with R_m = R_{m-1} + Q_m K_mᵀ. One buffer holds it for the
whole model, scaled for the layer that reads it (S = w_m R_m), and another the gradient G of S:

    forward, layer m:    S ← b S + w_m Q_m K_mᵀ,  b = w_m / w_{m-1}       one product, in place, tile by tile
                         P = softmax(S + bias),  O_m = P V_m              S is -inf at keys that a row may not see
    backward, layer m:   P once more from S;  dS = P ∘ (dP − Σ P dP)
                         G ← dS + b G,  b = w_{m+1} / w_m                 0 above the last layer
                         dQ_m = w_m G K_m,  dK_m = w_m Gᵀ Q_m,  dw_m = Σ dS ∘ R_m
                         S ← (S − w_m Q_m K_mᵀ) w_{m-1} / w_m             what layer m − 1 saw

The factors b cost nothing: products are added to a scaled matrix in any case. The mask is in S from the first layer on: -inf
stays -inf under all of these. Undoing loses no more than summing: each step rounds once.

Buffers: buffers.py. Order, and what may come in between: layers.py. Arithmetic: passes.py; on a GPU
../triton/running.py.
"""

from addnorm.kernels.grouped_attention.reversible.buffers import ScoreBuffers
from addnorm.kernels.grouped_attention.reversible.layers import (
    RUNNING_LIMIT,
    ReversibleSum,
    first_derivatives,
    running_bytes,
    why_not_running,
)

__all__ = ["RUNNING_LIMIT", "ReversibleSum", "ScoreBuffers", "first_derivatives", "running_bytes", "why_not_running"]
