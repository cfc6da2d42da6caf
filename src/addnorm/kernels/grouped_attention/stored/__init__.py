r"""The products of all layers, stored and weighted again by every layer: a layer multiplies its own queries and keys alone.

With a weight per pair of layers, S_m = Σ_{i<=m} w_{m,i} T_i with T_i = Q_i K_iᵀ: no layer's sum follows from another's. One
buffer has a slot per layer. It holds T_i until layer i is differentiated, and then the gradient of layer i's scores:

    forward, layer m:    T_m = Q_m K_mᵀ                        one product, in slot m, tile by tile
                         S = Σ_{i<=m} w_{m,i} T_i              one pass over m slots
                         P = softmax(S + bias + mask),  O_m = P V_m
    backward, layer m:   S and P once more;  dS_m = P ∘ (dP − Σ P dP)
                         dw_{m,i} = Σ dS_m ∘ T_i               one pass over m slots
                         slot m ← dS_m                         no earlier layer reads T_m
                         G = Σ_{l>=m} w_{l,m} dS_l             one pass over the slots from m on
                         dQ_m = G K_m,  dK_m = Gᵀ Q_m

Reading a number of a slot takes a fraction of the time of the 2 · head_dim operations that would make it again.

Buffer: buffers.py. Order, and what may come in between: layers.py. Arithmetic: passes.py.
"""

from addnorm.kernels.grouped_attention.stored.buffers import ProductBuffers
from addnorm.kernels.grouped_attention.stored.layers import (
    STORED_LIMIT,
    StoredProducts,
    stored_bytes,
    why_not_stored,
)

__all__ = ["STORED_LIMIT", "ProductBuffers", "StoredProducts", "stored_bytes", "why_not_stored"]
