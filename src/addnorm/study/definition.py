"""A study: which variants are trained on what, with which seeds, and what they are compared with.

These frozen dataclasses are the schema. A study file is YAML of the same shape (`codec.py`), or Python that returns them.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from addnorm.data.corpora import CorpusSpec
from addnorm.data.corpora.stdlib import Stdlib
from addnorm.data.tokenizers import TokenizerSpec
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.errors import InputError, did_you_mean
from addnorm.fields import check_fields
from addnorm.model.spec import ModelSpec
from addnorm.optimization.optimizers import OptimizerSpec
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.optimization.schedules import ScheduleSpec
from addnorm.optimization.schedules.cosine import Cosine

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class Training:
    """How every run of a study is trained. All of it is part of a run's identity.

    Raises:
        InputError: a count that is not positive.
    """

    steps: int = 1000
    """Optimizer steps."""
    batch: int = 16
    """Sequences per step."""
    seq: int = 256
    """Tokens per sequence."""
    optimizer: OptimizerSpec = field(default_factory=AdamW)
    schedule: ScheduleSpec = field(default_factory=Cosine)
    clip: float | None = 1.0
    """Largest gradient norm; None for no clipping."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 means autocast; parameters stay float32."""
    log_every: int = 10
    """Steps between two training events."""
    eval_every: int = 200
    """Steps between two evaluations on held-out text; the last step is always evaluated."""
    eval_sequences: int = 64
    """Held-out sequences per evaluation; the same ones every time, for every variant."""
    checkpoint_every: int = 200
    """Steps between two checkpoints."""
    threads: int = 1
    """CPU threads per worker. More threads change the last bits of the loss, so all runs of a study use the same."""

    def __post_init__(self) -> None:
        check_fields(self, "training")
        for name in (
            "steps",
            "batch",
            "seq",
            "log_every",
            "eval_every",
            "eval_sequences",
            "checkpoint_every",
            "threads",
        ):
            value = getattr(self, name)
            if value < 1:
                raise InputError(f"training.{name} must be a whole number of at least 1, got {value!r}.")
        if self.clip is not None and self.clip <= 0:
            raise InputError(f"training.clip must be positive or null, got {self.clip!r}.")


@dataclass(frozen=True, kw_only=True)
class Study:
    """Variants by seeds, and what the ranking compares them with.

    Raises:
        InputError: no variants or seeds, a seed twice or out of range, a reference that is not a variant, a margin that
            is not positive, or a name that cannot be a folder's.
    """

    name: str
    about: str = ""
    """One paragraph: what is asked, and of which source."""
    variants: Mapping[str, ModelSpec]
    """The models by name, in the order they are started. `vocab` and `max_seq` are set from the tokenizer and the sequence."""
    references: tuple[str, ...] = ()
    """Variants that all others are compared with; the first variant if empty."""
    seeds: tuple[int, ...] = (0, 1, 2)
    margin: float = 0.005
    """Difference in nats per token below which two variants count as equivalent."""
    corpus: CorpusSpec = field(default_factory=Stdlib)
    tokenizer: TokenizerSpec = field(default_factory=Bytes)
    training: Training = field(default_factory=Training)
    plugins: tuple[str, ...] = ()
    """Files with mechanisms of the user's own. A study file gives them relative to itself; loading makes them absolute."""

    def __post_init__(self) -> None:
        for name in ("references", "seeds", "plugins"):  # a study in Python may hold lists, as one in YAML does
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        check_fields(self, "study")
        _require_file_name(self.name, "$.name")
        if not self.variants:
            raise InputError(f"$.variants: study '{self.name}' has no variants. Give at least one.")
        for variant in self.variants:
            _require_file_name(variant, "$.variants")
        if (
            not self.seeds
            or len(set(self.seeds)) != len(self.seeds)
            or not all(0 <= seed < 2**63 for seed in self.seeds)
        ):
            raise InputError(
                f"$.seeds: study '{self.name}' needs at least one seed, each only once and in [0, 2**63), "
                f"got {list(self.seeds)}."
            )
        if not 0 < self.margin < math.inf:
            raise InputError(f"$.margin: must be a positive number of nats per token, got {self.margin!r}.")
        if len(set(self.references)) != len(self.references):
            raise InputError(f"$.references: each is named once, got {list(self.references)}.")
        for reference in self.references:
            if reference not in self.variants:
                raise InputError(
                    f"$.references: {reference!r} is not a variant of study '{self.name}'."
                    f"{did_you_mean(reference, self.variants)} Known: {', '.join(self.variants)}."
                )


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run: a variant with a seed, everything written out."""

    study: str
    variant: str
    seed: int
    model: ModelSpec
    training: Training
    corpus: CorpusSpec
    tokenizer: TokenizerSpec
    data_hash: str
    """Of the prepared data set: texts, split and tokenizer."""
    plugins: tuple[str, ...] = ()
    """Absolute paths of the plugin files that the specs above come from."""


def _require_file_name(name: str, path: str) -> None:
    """Names become folders, on every file system."""
    if not _FILE_NAME.fullmatch(name):
        raise InputError(
            f"{path}: a name is made of at most 100 letters, digits, '.', '_' and '-', and begins with a letter or a digit: "
            f"got {name!r}."
        )
