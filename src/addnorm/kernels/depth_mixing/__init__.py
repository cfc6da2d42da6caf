"""Sums over depth: the operations that residuals with learned wiring repeat at every site.

normed_product    products of RMS-normed vectors with some rows: logits of sources, coefficients of streams
weighted_sum      a sum of sources, each times one number per position
read_streams      several streams, added up for a branch
write_streams     several streams, mixed and written by a branch
sinkhorn          matrices whose rows and columns add up to one
two_forms         how each has a plain form and a fast one
"""

from addnorm.kernels.depth_mixing.normed_product import normed_product, normed_product_beside
from addnorm.kernels.depth_mixing.sinkhorn import sinkhorn
from addnorm.kernels.depth_mixing.streams import read_streams, write_streams
from addnorm.kernels.depth_mixing.weighted_sum import weighted_sum

__all__ = ["normed_product", "normed_product_beside", "read_streams", "sinkhorn", "weighted_sum", "write_streams"]
