"""Definition of a study: its variants, seeds, data, training, and the references of its comparisons.

These frozen dataclasses are the schema of study files: YAML of the same structure (`decoding.py`), or Python that returns
them.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from addnorm.data import Episodes
from addnorm.data.corpora import CorpusSpec
from addnorm.data.corpora.stdlib import Stdlib
from addnorm.data.tokenizers import TokenizerSpec
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.errors import did_you_mean
from addnorm.fields import FieldError, check_fields, require, require_at_least
from addnorm.model.spec import ModelSpec
from addnorm.optimization.optimizers import OptimizerSpec
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.optimization.schedules import ScheduleSpec
from addnorm.optimization.schedules.cosine import Cosine
from addnorm.study.executor import ExecutorSpec
from addnorm.study.foreign import ForeignSpec
from addnorm.study.problems import plain_name
from addnorm.study.tuning import Tuning

AnyModel = ModelSpec | ForeignSpec
"""A model of this library, or one that others wrote."""
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
BUDGETS = ("tokens", "flops", "tokens_per_parameter")
"""Fields of `Training` that set the length of a run in place of `steps`."""
ONE_LENGTH = "one of steps, tokens, flops and tokens_per_parameter"
_OMITTED = {"omitted_at_default": True}
"""Metadata of a field that stays out of a spec while it is None, so that specs of earlier versions keep their hashes."""
_POINT = re.compile(r"(, [A-Za-z0-9._+ -]+)+")
"""End of the name of a variant that a grid made: `, learning_rate 1e-3`."""
_LONGEST_NAME = 200
"""Characters of a variant's name or title."""
_SHARED_TRAINING = {
    "seq": "All variants are evaluated on held-out sequences of one length",
    "eval_sequences": "All variants are evaluated on the same held-out sequences",
    "final_sequences": "All variants are compared on the same held-out sequences",
    "threads": "The workers of a study share the processor evenly",
    "devices": "The workers of a study have equal shares of the devices",
    "parallel": "The workers of a study are started alike",
}
"""Training settings that variants which are ranked together have in common, with the reason."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training settings of a study; a variant may have its own. All but `devices` and `parallel` are part of a run's identity.

    Raises:
        FieldError: a value of another type, or a count or limit that is not positive.
    """

    steps: int = 1000
    """Optimizer steps; 0 evaluates a model as it starts."""
    batch: int = 16
    """Sequences per step."""
    seq: int = 256
    """Tokens per sequence."""
    optimizer: OptimizerSpec = field(default_factory=AdamW)
    schedule: ScheduleSpec = field(default_factory=Cosine)
    clip: float | None = 1.0
    """Largest norm of the gradient; None for no clipping."""
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """`bfloat16` trains under autocast; the parameters stay float32. `tf32` rounds the factors of matrix products to ten bits
    on GPUs since compute capability 8.0, and is refused elsewhere; `float32` never does."""
    log_every: int = 10
    """Steps between two training events."""
    eval_every: int = 200
    """Steps between two evaluations on held-out text; the last step is always followed by one."""
    eval_sequences: int = 64
    """Held-out sequences of an evaluation, the same for every evaluation and variant."""
    final_sequences: int | Literal["all"] | None = field(default=None, metadata=_OMITTED)
    """Held-out sequences of the evaluation after the last step, whose loss is compared: a number, or `all`; null for
    `eval_sequences`."""
    checkpoint_every: int = 200
    """Steps between two checkpoints."""
    threads: int = 1
    """CPU threads per worker. The number of threads changes the last bits of the loss, so all runs use the same."""
    init_from: str | None = field(default=None, metadata=_OMITTED)
    """Folder of a finished run, or of its export, whose weights are the start; null for new ones. A mechanism that joins
    layers, and whose parameters these weights lack, must begin as the plain one. Paths are relative to the study file."""
    tokens: int | None = field(default=None, metadata=_OMITTED)
    """Budget in place of `steps`: training tokens of a run."""
    flops: float | None = field(default=None, metadata=_OMITTED)
    """Budget in place of `steps`: training FLOPs of a run, as `addnorm plan` counts them; equal compute for every variant."""
    tokens_per_parameter: float | None = field(default=None, metadata=_OMITTED)
    """Budget in place of `steps`: training tokens of a run for each of its model's parameters."""
    shards: int | None = field(default=None, metadata=_OMITTED)
    """Parts of a batch whose gradients are computed one after the other, or on several devices, and added as a binary tree: a
    power of two that divides the batch. It decides the last bits of a run and the memory of a step. null is one part, or with
    several devices the largest number up to 8."""
    exits: float | None = field(default=None, metadata=_OMITTED)
    """Weight of trained early exits: after every layer but the last, the final norm and the head read the stream, and the mean
    divergence of these exits from the model's own answer, times this weight, joins the objective (distillation, FastBERT). Exit
    losses are recorded with every evaluation; 0 records them of exits that nothing trains. null for none."""
    recompute: bool = field(default=False, metadata=_OMITTED)
    """True to keep only the input of every branch for the backward pass, which computes the branches again: less memory for
    about a third more time."""
    compile: bool = field(default=False, metadata=_OMITTED)
    """True to train with `torch.compile`, which changes the last bits. Where the model cannot be compiled, it trains
    uncompiled; `addnorm status`, the model's page and the run's events say why."""
    deterministic: bool = field(default=False, metadata=_OMITTED)
    """True for torch's deterministic algorithms only, which may be slower: a training on GPUs then repeats its bits, and fails
    at an operation without one."""
    parallel: Literal["replicated", "sharded"] = field(default="replicated", metadata=_OMITTED)
    """Weights that each of several `devices` keeps: all of them, or `sharded` (FSDP2) its share of every matrix, of the
    gradient and of the optimizer's state, for weights that do not fit one device. No result depends on it, as for `devices`."""
    devices: int = field(default=1, metadata=_OMITTED)
    """Processes that train one run together, each with a GPU, or with `threads` cores: a power of two up to `shards`. No result
    depends on it, so it is not part of a run's identity, and a run may go on with another number."""

    @property
    def last_sequences(self) -> int | None:
        """Held-out sequences that are scored after the last step; None for all."""
        if self.final_sequences is None:
            return self.eval_sequences
        return None if self.final_sequences == "all" else self.final_sequences

    @property
    def tokens_per_step(self) -> int:
        """Tokens of the batch of one step."""
        return self.batch * self.seq

    @property
    def budget(self) -> dict[str, int | float]:
        """The budget that the steps follow from, by the name of its field; empty if `steps` is set itself."""
        return {name: value for name in BUDGETS if (value := getattr(self, name)) is not None}

    def __post_init__(self) -> None:
        check_fields(self, "training")
        for name in self.budget:
            require(self, name, getattr(self, name) > 0, "a positive number or null")
        lengths = [*(["steps"] if self.steps != Training.steps else []), *self.budget]
        if self.budget and len(lengths) > 1:
            raise FieldError("training", lengths[1], f"expected {ONE_LENGTH}, got {' and '.join(lengths)}. Keep one.")
        require_at_least(self, 0, "steps")
        require_at_least(self, 1, "batch", "seq", "log_every", "eval_every", "eval_sequences")
        require_at_least(self, 1, "checkpoint_every", "threads")
        if isinstance(self.final_sequences, int):
            require_at_least(self, 1, "final_sequences")
        require(self, "clip", self.clip is None or self.clip > 0, "a positive number or null")
        self._require_exits()
        self._require_shards()

    def _require_exits(self) -> None:
        if self.exits is not None:
            require(self, "exits", 0 <= self.exits < math.inf, "null or a number of at least 0")
            advice = "Exits are read within the pass, which a compiled one does not give out."
            require(self, "compile", not self.compile, "false with training.exits", advice)

    def _require_shards(self) -> None:
        largest = self.batch & -self.batch
        if self.shards is not None:
            advice = f"The largest is {largest} for a batch of {self.batch}."
            power = self.shards >= 1 and self.shards & (self.shards - 1) == 0
            require(self, "shards", power and self.shards <= largest, "a power of two that divides the batch", advice)
        power = self.devices >= 1 and self.devices & (self.devices - 1) == 0
        require(self, "devices", power, "a power of two")
        most = largest if self.shards is None else self.shards
        advice = (
            "Each device computes whole shards: lower devices, or choose a batch and shards of larger powers of two."
        )
        require(self, "devices", self.devices <= most, f"at most the number of shards, {most}", advice)
        if self.parallel == "sharded":
            advice = "Compiled training needs all weights on each device."
            require(self, "compile", not self.compile, "false with training.parallel: sharded", advice)
            entrywise = self.optimizer.entrywise
            advice = "A step of this one needs whole matrices: choose another, or set training.parallel to replicated."
            require(
                self, "optimizer", entrywise, "one that updates entry by entry with training.parallel: sharded", advice
            )


@dataclass(frozen=True, kw_only=True)
class Study:
    """Variants that are trained with the same seeds and data, and compared with references.

    Example::

        from addnorm import preset
        from addnorm.study.definition import Study, Training

        study = Study(
            name="rezero",
            variants={"base": preset("base"), "rezero": preset("base", residual="rezero")},
            references=("base",),
            training=Training(steps=500),
        )

    Raises:
        FieldError: no variants or seeds, a repeated seed or one out of range, a reference that is not a variant, a margin
            that is not positive, or a name that cannot be a folder's.
    """

    name: str
    about: str = ""
    """One paragraph: the question and its source."""
    variants: Mapping[str, AnyModel]
    """The models by name, in the order in which they start. `vocab` is the tokenizer's number of ids unless a variant sets it,
    and `max_seq` is at least the training sequence."""
    references: tuple[str, ...] = ()
    """The variants that all others are compared with; the first variant if empty."""
    compare: Literal["equal_axes", "all"] | tuple[tuple[str, str], ...] = field(default="equal_axes", metadata=_OMITTED)
    """Comparisons that are made: of points of a grid with a reference at equal values of the axes that both have
    (`equal_axes`), of every variant with every reference (`all`), or of a list of pairs [variant, reference]. Only these share
    the error rate."""
    seeds: tuple[int, ...] = (0, 1, 2)
    replicate: tuple[int, ...] = ()
    """Seeds of a second batch, on which the variants of every found verdict are trained again; none if empty."""
    margin: float = 0.005
    """Largest difference, in nats per token, between variants that count as equivalent."""
    corpus: CorpusSpec = field(default_factory=Stdlib)
    tokenizer: TokenizerSpec = field(default_factory=Bytes)
    training: Training = field(default_factory=Training)
    variant_training: Mapping[str, Training] = field(default_factory=dict)
    """Training of the variants that have their own; `training` holds for all others."""
    own_vocab: tuple[str, ...] = field(default=(), metadata=_OMITTED)
    """Variants that keep their model's `vocab`, such as a table padded to a multiple of 64; at least the tokenizer's ids."""
    pairs: tuple[tuple[str, str], ...] = field(default=(), metadata=_OMITTED)
    """The pairs (variant, reference) that `compare` stands for; empty for every variant with every reference. A study file
    leaves it to the loader."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Titles of variants in any script, shown with their names."""
    tune: Tuning | None = None
    """Axes over which each variant gets its own best value, chosen on tuning seeds before the comparison; null for none."""
    plugins: tuple[str, ...] = ()
    """Files with the user's own mechanisms. Paths in a study file are relative to it; loading makes them absolute."""
    executor: ExecutorSpec | None = None
    """Executor that trains the runs; null for processes of this machine. Not part of the plan: no result depends on it."""

    def training_of(self, variant: str) -> Training:
        """Training settings of a variant: its own, or those of the study."""
        return self.variant_training.get(variant, self.training)

    def __post_init__(self) -> None:
        for name in ("references", "seeds", "replicate", "plugins", "own_vocab"):  # in Python too, lists are accepted
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("compare", "pairs"):
            if isinstance(given := getattr(self, name), list | tuple):
                object.__setattr__(self, name, tuple(map(tuple, given)))
        check_fields(self, "study")
        _require_file_name("name", self.name)
        if not self.variants:
            raise FieldError("study", "variants", "expected at least one variant, got none.")
        for variant in self.variants:
            base, _, point = variant.partition(", ")
            made_by_grid = point and len(variant) <= _LONGEST_NAME and _POINT.fullmatch(f", {point}")
            _require_file_name("variants", base if made_by_grid else variant)
        if not self.seeds or len(set(self.seeds)) != len(self.seeds) or not all(0 <= n < 2**63 for n in self.seeds):
            expected = "expected at least one seed, distinct and in [0, 2**63)"
            raise FieldError("study", "seeds", f"{expected}, got {list(self.seeds)}.")
        self._require_unseen()
        require(self, "margin", 0 < self.margin < math.inf, "a positive number of nats per token")
        if len(set(self.references)) != len(self.references):
            raise FieldError("study", "references", f"expected distinct variants, got {list(self.references)}.")
        self._require_known_variants("references", self.references)
        self._require_known_variants("pairs", [name for pair in self.pairs for name in pair])
        for name in ("variant_training", "own_vocab", "titles"):
            self._require_known_variants(name, getattr(self, name))
        for variant in self.variant_training:
            self._require_comparable(variant)
        for variant, model in self.variants.items():
            optimizer = self.training_of(variant).optimizer
            if getattr(model, "scaling", None) is not None and not optimizer.scales:
                expected = "an optimizer whose steps have one size per entry, such as adamw"
                raise FieldError(
                    "study", f"variants.{variant}.scaling", f"expected {expected}, got {optimizer.kind!r}."
                )
        if self.tune is not None:
            self._require_tunable(self.tune)
        if self.corpus.episodes is not None:
            self._require_episodes(self.corpus.episodes)
        for variant, title in self.titles.items():
            if not title.strip() or not title.isprintable() or len(title) > _LONGEST_NAME:
                expected = f"expected one line of 1 to {_LONGEST_NAME} characters, got {title!r}."
                raise FieldError("study", f"variants.{variant}.title", expected)

    def _require_known_variants(self, name: str, variants: Collection[str]) -> None:
        for variant in variants:
            if variant not in self.variants:
                raise FieldError(
                    "study",
                    name,
                    f"expected variants of the study, got {variant!r}.{did_you_mean(variant, self.variants)} "
                    f"Known: {', '.join(self.variants)}.",
                )

    def _require_unseen(self) -> None:
        """Refuse a second batch with seeds of the first, or of tuning: a verdict is found again on other seeds alone."""
        second = self.replicate
        if second and (len(set(second)) != len(second) or len(second) < 3 or not all(0 <= n < 2**63 for n in second)):
            expected = "expected at least 3 seeds, as every verdict needs, distinct and in [0, 2**63)"
            raise FieldError("study", "replicate", f"{expected}, got {list(second)}.")
        common = sorted(set(second) & {*self.seeds, *(() if self.tune is None else self.tune.seeds)})
        if common:
            raise FieldError(
                "study",
                "replicate",
                f"expected seeds that nothing has been seen of, got {', '.join(map(str, common))}, on which the study is "
                "compared or tuned. A verdict is found again on other seeds alone: name others.",
            )

    def _require_episodes(self, episodes: Episodes) -> None:
        """Refuse what a task's scored answers rule out."""
        episodes.require(self.training.seq)
        episodes.require_tokenizer(self.tokenizer.kind)
        for variant, model in self.variants.items():
            if model.objective == "masked":
                problem = (
                    "expected causal, because the answers of a task are predicted from what is before them, got masked."
                )
                raise FieldError("study", f"variants.{variant}.objective", problem)

    def _require_tunable(self, tune: Tuning) -> None:
        self._require_known_variants("tune.own", tune.own)
        try:
            tune.require_apart(self.seeds)
        except FieldError as error:
            raise FieldError("study", f"tune.{error.field}", error.problem) from error

    def _require_comparable(self, variant: str) -> None:
        """Refuse a training under which the variant's held-out loss could not be compared with the others'."""
        shared = dict(_SHARED_TRAINING)
        if any(model.objective == "masked" for model in self.variants.values()):
            shared["batch"] = "The masks of held-out sequences are drawn for each batch"
        for name, reason in shared.items():
            expected, value = getattr(self.training, name), getattr(self.training_of(variant), name)
            if value != expected:
                raise FieldError(
                    "study",
                    f"variants.{variant}.training.{name}",
                    f"expected {expected} as in the study's training, got {value}. {reason}: set training.{name} for the "
                    "whole study, or make a second study.",
                )


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run: a variant with a seed, every setting written out."""

    study: str
    variant: str
    seed: int
    model: AnyModel
    training: Training
    corpus: CorpusSpec
    tokenizer: TokenizerSpec
    data_hash: str
    """Hash of the prepared data set: texts, split and tokenizer."""
    plugins: tuple[str, ...] = ()
    """Absolute paths of the plugin files that the specs come from."""


def _require_file_name(field: str, name: str) -> None:
    """Refuse a name that is not a folder name on every file system."""
    if not _FILE_NAME.fullmatch(name):
        raise FieldError(
            "study",
            field,
            "expected a name of at most 100 letters, digits, '.', '_' and '-' that begins with a letter or a digit, "
            f"got {name!r}.{plain_name(name)}",
        )
