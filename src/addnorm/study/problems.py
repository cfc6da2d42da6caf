"""Problems of an input with their paths, collected so that one error reports all of them; and hints for what people type."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from addnorm.errors import InputError, nearest_name
from addnorm.strict_yaml import in_ascii

_LARGEST_REPORT = 10
"""Number of problems in one message."""
_LARGEST_VALUE = 80
"""Characters of a value in a message."""
_PLACES = {
    "training.batch": "batch_size bs micro_batch_size",
    "training.seq": "seq_len seq_length sequence_length block_size context context_length ctx_len",
    "training.tokens": "epochs epoch num_epochs",
    "training.steps": "max_steps iterations iters num_steps n_steps max_iters",
    "training.optimizer.learning_rate": "lr learning_rate max_lr peak_lr",
    "training.optimizer.weight_decay": "weight_decay wd",
    "training.schedule.warmup": "warmup warmup_steps warmup_iters warmup_ratio",
    "training.clip": "grad_clip clip_grad max_grad_norm gradient_clip",
    "training.precision": "dtype amp fp16 bf16 mixed_precision",
    "depth": "n_layers n_layer num_layers layers num_hidden_layers n_blocks",
    "width": "d_model hidden_size n_embd embed_dim embedding_dim dim hidden_dim model_dim",
    "heads": "n_heads n_head num_heads num_attention_heads nhead",
    "kv_heads": "n_kv_heads num_kv_heads num_key_value_heads n_kv_head",
    "hidden": "d_ff ffn_dim intermediate_size dim_feedforward d_inner mlp_dim",
    "vocab": "vocab_size n_vocab",
    "max_seq": "max_position_embeddings n_positions max_len max_length",
    "seeds": "random_seed",
    "corpus": "dataset data datasets",
    "variants": "models model_variants runs",
    "references": "baseline baselines control controls reference_variants",
}
"""Names that other libraries give to fields, by the field's place in a study file."""
_KINDS = {
    "pre": "prenorm pre_norm pre_ln preln prelayernorm",
    "post": "postnorm post_norm post_ln postln",
    "sandwich": "sandwich_norm",
    "rms": "rmsnorm rms_norm",
    "layer": "layernorm layer_norm ln",
    "wsd": "linear trapezoidal warmup_stable_decay",
    "cosine": "cosine_annealing cosine_with_warmup",
    "text": "txt file textfile",
}
"""Names that others give to kinds."""
_OTHER_KINDS = {other: kind for kind, others in _KINDS.items() for other in others.split()}
_OTHER_NAMES = {other: place for place, others in _PLACES.items() for other in others.split()}


class Problems:
    """A list of problems, each with the path of its place.

    Args:
        where: the file that the paths belong to, for the error.
        locate: adds the line of the file to a path.
    """

    def __init__(self, where: str = "", locate: Callable[[str], str] = str) -> None:
        self._where = where
        self.locate = locate
        self._problems: list[tuple[str, str]] = []

    def add(self, path: str, text: str) -> None:
        """Add a problem. A text that begins with a path of its own, `$.field: …`, belongs to the place below `path`."""
        if text.startswith("$."):
            below, _, text = text[1:].partition(": ")
            path += below
        self._problems.append((path, text))

    def add_with_line(self, path: str, text: str) -> None:
        """Add a problem whose place is shown with its line of the file."""
        self.add(self.locate(path), text)

    def texts(self) -> list[str]:
        """The problems without their paths."""
        return list(dict.fromkeys(text for _, text in self._problems))

    def __len__(self) -> int:
        return len(self._problems)

    def raise_any(self, since: int = 0) -> None:
        """Raise all problems as one error, if there are any.

        Args:
            since: number of problems that do not raise it alone.

        Raises:
            InputError: one line per problem, `$.path: expected …, got …`.
        """
        if len(self._problems) <= since:
            return
        lines = list(_once(self._problems))
        count = len(lines)
        if len(lines) > _LARGEST_REPORT:
            lines[_LARGEST_REPORT:] = [f"… and {len(lines) - _LARGEST_REPORT} more."]
        if self._where:
            first = lines[0] if len(lines) == 1 else f"{count} problems."
            lines = [f"{self._where}: {first}", *(lines if len(lines) > 1 else ())]
        raise InputError("\n".join(lines))


def _once(problems: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Each problem as a line, once: a value of `model`, or an alias, is wrong in every variant that has it."""
    places: dict[tuple[str, str], list[str]] = {}
    for path, text in dict.fromkeys(problems):
        of_variant = re.fullmatch(r"\$\.variants\.([^.:]+)(.*)", path)
        below = path if of_variant is None else f"$.variants.*{of_variant[2]}"
        places.setdefault((below, text), []).append(path if of_variant is None else of_variant[1])
    for (path, text), names in places.items():
        also = f" The same in {', '.join(names[1:])}." if len(names) > 1 else ""
        yield f"{path.replace('*', names[0], 1) if path.startswith('$.variants.*') else path}: {text}{also}"


def plain_name(name: str) -> str:
    """Advice for a name that cannot be that of a folder: the nearest one, or where a name in another script belongs."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", in_ascii(name)).strip("-._")
    return f" Write {plain}." if plain else " Names of folders are ASCII; a title may be in any script."


def nearest(name: object, known: Iterable[object]) -> str:
    """`, did you mean 'add'? Known: add, scale.`: the end of a sentence about an unknown name."""
    names = [str(entry) for entry in known]
    if isinstance(name, str) and (hint := _instead(name, names)) is not None:
        return f". Write {hint}. Known: {', '.join(names) or 'none'}."
    near = nearest_name(name, names)
    question = f", did you mean {near!r}?" if near is not None else "."
    return f"{question} Known: {', '.join(names) or 'none'}."


def _instead(name: str, known: Sequence[str]) -> str | None:
    """Text to write in place of a name of another library, or of one with full-width marks; None if neither is known."""
    if (written := in_ascii(name)) != name:
        return written
    plain = name.lower().replace("-", "_")
    if (kind := _OTHER_KINDS.get(plain)) in known:
        return kind
    place = _OTHER_NAMES.get(plain)
    if place is None or name in known:
        return None
    field = place.rpartition(".")[2]
    return field if field in known else place


def shown(value: object) -> str:
    """A value as it is written in a study file, shortened."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"a mapping ({', '.join(str(key) for key in list(value)[:4])}{', …' if len(value) > 4 else ''})"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= _LARGEST_VALUE else f"{text[:_LARGEST_VALUE]}…"
