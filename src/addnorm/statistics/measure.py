"""The measure that is compared: its name, its unit, and its better direction."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from addnorm.errors import InputError, did_you_mean

Direction = Literal["lower", "higher"]
NATS = "nats per token"
NATS_PER_ANSWER = "nats per answer token"
"""Of a synthetic task, whose answers alone are scored."""
_LOSSES = "loss losses nll ce xent xentropy crossentropy logloss"
_LOWER = (
    "perplexity ppl bpb bpc bpw bits error errors err wer cer ter mse mae rmse mape fid kl ece eer brier regret latency time "
    "seconds duration energy memory edit distance"
)
_HIGHER = (
    "accuracy acc bleu sacrebleu chrf rouge rouge1 rouge2 rougel meteor comet f1 fscore auc auroc auprc ap precision recall "
    "score scores reward return returns r2 iou miou dice map ndcg mrr em exact match pass throughput mfu tps qps core psnr "
    "ssim win winrate correct success mcc spearman pearson kappa elo top1 top5 mmlu hellaswag arc gsm8k humaneval fps "
    "similarity likelihood loglikelihood logprob elbo snr hits"
)
_OF_WORD: dict[str, Direction] = {
    **dict.fromkeys(_HIGHER.split(), "higher"),
    **dict.fromkeys((_LOSSES + " " + _LOWER).split(), "lower"),
}
_COUNTED = "tok(?:en)?|sample|example|step|it(?:er)?|request|flop|image|img|frame|batch(?:e)?|seq(?:uence)?"
_RATE = re.compile(rf"(?:{_COUNTED})s?(?:/|[ _]?per[ _]?)(?:s|sec|second)s?", re.IGNORECASE)
_TURNED = (
    "neg negative negated minus reduction reduced improvement improved gain saved saving savings decrease "
    "drop inverse inv reciprocal"
)
"""Words that turn a measure around, as in `neg_mean_squared_error`."""
_OTHER_UNITS = (
    "bit bits bpb bpc bpw byte bytes char chars character characters word words base2 log2 log10 percent milli mnat mnats mse "
    "mae l1 l2 huber hinge dice triplet focal kl reward policy value critic actor relative rel ratio normalized normalised "
    "scaled squared regression recon reconstruction contrastive aux ctc "
    "vq dpo ppo sft adv adversarial gan bce sum total"
)
"""In the name of a loss: it is not in nats per token."""
_UNITS = {"bpb": "bits per byte", "bpc": "bits per character", "bpw": "bits per word"}


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number that every run has one of.

    Example:
        >>> measure_of("eval/loss").unit
        'nats per token'
    """

    name: str = "loss"
    unit: str | None = NATS
    """None if nobody gave it."""
    better: Direction = "lower"
    assumed: bool = False
    """True if nothing tells the direction, and lower is taken as better."""

    @property
    def in_nats(self) -> bool:
        """True for a loss in nats per token, in which the default margin is."""
        return self.unit == NATS


LOSS = Metric()
LOSS_OF_ANSWERS = Metric(unit=NATS_PER_ANSWER)


def perplexity(loss: float) -> float:
    """Of a loss in nats per token; of one above 700 nats that of 700, so that it is a number."""
    return math.exp(min(loss, 700.0))


def measure_of(name: str, direction: Direction | None = None, unit: str | None = None) -> Metric:
    """The measure of a column or tag, by its name and what a user says about it.

    Raises:
        InputError: a name of which higher values are better, or that may be either, without a direction.

    Example:
        >>> measure_of("accuracy", "higher").better
        'higher'
    """
    words = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).casefold())
    # The last word tells, `edit_accuracy` is no edit distance; but a loss is one whatever it is of.
    has_loss = not set(_LOSSES.split()).isdisjoint(words)
    meant = "lower" if has_loss else next((_OF_WORD[word] for word in reversed(words) if word in _OF_WORD), None)
    turned = meant == "lower" and (
        not set(_TURNED.split()).isdisjoint(words) or re.match(r"\s*(?:1\s*)?[-−]", name) is not None
    )
    if direction is None and (_RATE.search(name) or meant == "higher" or turned):
        raise InputError(
            f"{name}: expected a loss, or a direction for another number, got neither. With addnorm rank, give --direction "
            "higher if higher is better, or --direction lower; addnorm trend compares losses alone."
        )
    told_otherwise = (
        not set(_OTHER_UNITS.split()).isdisjoint(words)
        or re.search(r"[%×]|\bx\d|_x\d|\d[e^]", name.casefold()) is not None
    )
    known = (
        NATS
        if has_loss and direction != "higher" and not told_otherwise
        else next((_UNITS[word] for word in words if word in _UNITS), None)
    )
    return Metric(
        name=name,
        unit=unit or known,
        better=direction or "lower",
        assumed=direction is None and meant != "lower",
    )


@dataclass(frozen=True, kw_only=True)
class MetricChoice:
    """A column that runs are ranked by, and what is said of it.

    Example:
        >>> MetricChoice.of("accuracy,direction=higher,margin=0.2,unit=%")
        MetricChoice(name='accuracy', direction='higher', unit='%', margin=0.2)
    """

    name: str
    direction: Direction | None = None
    unit: str | None = None
    margin: float | None = None

    @staticmethod
    def of(given: "str | Mapping[str, Any] | MetricChoice") -> "MetricChoice":
        """A choice from text, as the command takes it, or from a mapping with these fields.

        Raises:
            InputError: another field, another direction than lower or higher, or a margin that is not a number.
        """
        if isinstance(given, MetricChoice):
            return given
        if isinstance(given, str):
            name, *parts = given.split(",")
            content: dict[str, Any] = {"name": name.strip()}
            content |= {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in parts)}
        else:
            content = dict(given)
        known = [field.name for field in fields(MetricChoice)]
        for key in content:
            if key not in known:
                raise InputError(
                    f"metric {given!r}: expected one of {', '.join(known)}, got {key!r}.{did_you_mean(key, known)} "
                    "Write accuracy,direction=higher,margin=0.2,unit=%."
                )
        if not isinstance(content.get("name"), str) or not content["name"]:
            raise InputError(f"metric {given!r}: expected the name of a column, got {content.get('name')!r}.")
        if content.get("direction") not in (None, *get_args(Direction)):
            raise InputError(
                f"metric {content['name']}: expected direction=lower or higher, got {content['direction']!r}."
            )
        if content.get("margin") is not None:
            try:
                content["margin"] = float(content["margin"])
            except (TypeError, ValueError):
                raise InputError(
                    f"metric {content['name']}: expected a number as margin, got {content['margin']!r}."
                ) from None
        return MetricChoice(**content)
