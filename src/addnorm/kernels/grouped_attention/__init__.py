"""Grouped attention: softmax( Σ_i s_i Q_i K_iᵀ + bias + mask ) V over the terms of several layers, exactly."""

from addnorm.kernels.grouped_attention.api import FEW_TERMS, IMPLEMENTATIONS, attend, choose, solve, why_on_gpu
from addnorm.kernels.grouped_attention.arguments import problem_of, with_value
from addnorm.kernels.grouped_attention.counting import count_in_place_products, counting_at_once
from addnorm.kernels.grouped_attention.decoding import DecodingRows, RunningSum
from addnorm.kernels.grouped_attention.distance import DistanceBias
from addnorm.kernels.grouped_attention.kept_scores import (
    RUNNING_LIMIT,
    STORED_LIMIT,
    ProductBuffers,
    ReversibleSum,
    ScoreBuffers,
    StoredProducts,
    running_bytes,
    running_limit,
    stored_bytes,
    why_not_running,
    why_not_stored,
)
from addnorm.kernels.grouped_attention.layerwise import LayerwiseAttention, SeparateLayers
from addnorm.kernels.grouped_attention.planned import is_planning, note, planned_on, runs_on
from addnorm.kernels.grouped_attention.problem import AttentionProblem, Normalisation, band, num_visible

count_in_place_products()

__all__ = [
    "FEW_TERMS",
    "IMPLEMENTATIONS",
    "RUNNING_LIMIT",
    "STORED_LIMIT",
    "AttentionProblem",
    "DecodingRows",
    "DistanceBias",
    "LayerwiseAttention",
    "Normalisation",
    "ProductBuffers",
    "ReversibleSum",
    "RunningSum",
    "ScoreBuffers",
    "SeparateLayers",
    "StoredProducts",
    "attend",
    "band",
    "choose",
    "counting_at_once",
    "is_planning",
    "note",
    "num_visible",
    "planned_on",
    "problem_of",
    "running_bytes",
    "running_limit",
    "runs_on",
    "solve",
    "stored_bytes",
    "why_not_running",
    "why_not_stored",
    "why_on_gpu",
    "with_value",
]
