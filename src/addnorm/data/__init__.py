"""Data of a study: token files prepared once from a corpus, and batches that are a pure function of seed and step."""

from addnorm.data.batches import held_batches, train_batch
from addnorm.data.dataset import Dataset
from addnorm.data.episodes import Episodes
from addnorm.data.masking import Masked, mask_tokens
from addnorm.data.preparation import prepare

__all__ = ["Dataset", "Episodes", "Masked", "held_batches", "mask_tokens", "prepare", "train_batch"]
