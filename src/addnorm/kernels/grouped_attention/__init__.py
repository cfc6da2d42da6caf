"""Grouped attention: softmax( Σ_i s_i Q_i K_iᵀ + bias + mask ) V over the terms of several layers, exactly."""

from addnorm.kernels.grouped_attention.api import IMPLEMENTATIONS, attend, choose
from addnorm.kernels.grouped_attention.counting import count_in_place_products, counting_at_once
from addnorm.kernels.grouped_attention.distance import DistanceBias
from addnorm.kernels.grouped_attention.problem import Normalisation
from addnorm.kernels.grouped_attention.reference import weigh

count_in_place_products()

__all__ = [
    "IMPLEMENTATIONS",
    "DistanceBias",
    "Normalisation",
    "attend",
    "choose",
    "counting_at_once",
    "weigh",
]
