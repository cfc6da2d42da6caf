"""Depth matrices: how much of every earlier output each read of a model has.

matrix     `addnorm.depth_matrix` and `addnorm.identities`; the matrices of a model as plain values, and without factors
           that other matrices could take over
recorded   reads of the hidden stream of any other decoder or encoder
carrying   contributions carried through the functions of one pass
residual   reads of the hidden stream
scores     reads of the attention scores
values     reads of the values
part       a read as a sum over its sources
"""

from addnorm.insight.depth.matrix import Contributions, DepthMatrix, depth_matrix, identities

__all__ = ["Contributions", "DepthMatrix", "depth_matrix", "identities"]
