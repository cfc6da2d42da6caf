r"""A trained language model of Transformers, as it is or joined by mechanisms of this library.

    model: {from: models/Qwen2.5-0.5B, patch: {scores: signed}}

    logits at the start = logits of the checkpoint, whatever the patch

Why: whether a mechanism helps a model that was trained without it is measured by continued training with seeds and verdicts.

Source: none; an interface of this library to https://github.com/huggingface/transformers.
Differs from the source: nothing.
"""

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from addnorm.catalogue import Spec
from addnorm.data.tokenizers import TokenizerSpec
from addnorm.data.tokenizers.pretrained import Pretrained
from addnorm.errors import InputError, did_you_mean
from addnorm.model.neutral import every_field
from addnorm.outside.foreign._contract import check_model, some_tokens
from addnorm.outside.foreign._use import roles_by_use
from addnorm.outside.hugging_face.checkpoint import CONFIG, is_checkpoint, plain_config, weight_files
from addnorm.outside.hugging_face.own_class import MODEL_TYPE
from addnorm.outside.hugging_face.patching.adapter import save_patch
from addnorm.outside.hugging_face.patching.attach import patch as attach
from addnorm.outside.hugging_face.patching.attach import unpatch as detach
from addnorm.outside.targets.checkpoint import load_checkpoint
from addnorm.outside.targets.transformers_class import quiet_transformers
from addnorm.residual import ResidualSpec
from addnorm.scores import ScoresSpec
from addnorm.study.encoding import digest
from addnorm.study.foreign import ForeignModel, ForeignSpec
from addnorm.values import ValuesSpec

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt")
PATCH = "patch.safetensors"
"""Name of a patch's file in an export."""
_CHECKED: set[str] = set()
"""Digests of models that keep the contract, so that each is checked once per process."""


@dataclass(frozen=True, kw_only=True)
class PatchSpec:
    """Mechanisms that join the layers of a trained model, each at its neutral start."""

    residual: ResidualSpec | None = None
    """The residual, which joins branches and the stream."""
    scores: ScoresSpec | None = None
    """The scores, which add those of earlier layers."""
    values: ValuesSpec | None = None
    """The values, which add those of earlier layers."""
    norm: str | None = None
    """A kind of norm that computes what the model's norms compute."""

    def given(self) -> dict[str, Any]:
        """Arguments of `addnorm.patch`, every field written out."""
        specs: dict[str, Spec | None] = {"residual": self.residual, "scores": self.scores, "values": self.values}
        given: dict[str, Any] = {name: every_field(spec) for name, spec in specs.items() if spec is not None}
        return given if self.norm is None else {**given, "norm": self.norm}


@dataclass(frozen=True, kw_only=True)
class Checkpoint(ForeignSpec):
    """A checkpoint of Transformers with a patch."""

    instead: ClassVar[str] = (
        "Training, `rank`, `inspect`, `report`, `watch` and `export` take it, and `explain` where a patch has learned scalars. "
        "`audit` takes its export, and so do `extrapolate` and `inspect --terms` with --text FILE; a patch lies beside it and "
        "is left out."
    )

    checkpoint: str
    """Folder of a checkpoint, relative to the study file, or a name on Hugging Face's hub. In a study file: `from`."""
    patch: PatchSpec = field(default_factory=PatchSpec)
    """Mechanisms that join its layers, and begin where the model is."""
    content: str = ""
    """Hash of config.json and of the weights, set when the plan is frozen."""

    def located(self, folder: Path, plugins: Sequence[str] = ()) -> tuple["ForeignSpec", tuple[str, ...]]:
        path = (folder / Path(self.checkpoint).expanduser()).resolve()
        if not path.exists():
            path = _of_the_hub(self.checkpoint, path)
        _require_checkpoint(path)
        Pretrained(path=str(path)).fit(())  # says so here if there is no tokenizer
        return replace(self, checkpoint=str(path)), ()

    def fitted(self, vocab: int, max_seq: int) -> "ForeignSpec":
        _require_checkpoint(Path(self.checkpoint))
        content = self.content or checkpoint_hash(Path(self.checkpoint))
        return replace(self, vocab=vocab, max_seq=max(self.max_seq, max_seq), content=content)

    def tokenizer(self) -> TokenizerSpec:
        return Pretrained(path=self.checkpoint)

    def mechanisms(self) -> dict[str, Any]:
        return {name: given for name, given in self.patch.given().items() if name != "norm"}

    def build(self, seed: int = 0) -> ForeignModel:
        folder = Path(self.checkpoint)
        content = checkpoint_hash(folder)
        if self.content not in ("", content):
            raise InputError(
                f"from: {folder}: expected the checkpoint that the study was planned with, whose hash begins with "
                f"{self.content[:12]}, got another with {content[:12]}. Restore it, or start the study in another folder."
            )
        model: Any = load_checkpoint(folder)
        # Training computes in the study's precision; parameters in bfloat16 would round away most updates.
        model = model.float()
        if hasattr(model, "config"):
            model.config.use_cache = False
        embedded = model.get_input_embeddings().num_embeddings
        if embedded < self.vocab:
            raise InputError(
                f"from: {folder / 'tokenizer.json'}: expected ids below {embedded}, the embeddings of the model, got "
                f"{self.vocab} ids: the tokenizer belongs to another model. Copy the one that belongs to the weights."
            )
        # Before the patch, which computes in other ways what the parameters are used for.
        roles = roles_by_use(model, some_tokens(self))
        given = self.patch.given()
        mechanisms: dict[str, nn.Module] = {}
        if given:
            made = attach(model, seed=seed, **given)
            mechanisms = {name: part for name in given if (part := getattr(made, name, None)) is not None}
        return ForeignModel(model, roles, mechanisms)

    def check(self, tokenizer: TokenizerSpec) -> None:
        folder = Path(self.checkpoint)
        self._require_tokenizer(tokenizer)
        config = plain_config(folder)
        longest = config.get("max_position_embeddings", config.get("n_positions"))
        if isinstance(longest, int) and self.max_seq > longest:
            raise InputError(
                f"from: {folder / CONFIG}: $.max_position_embeddings: expected at least training.seq, {self.max_seq}, got "
                f"{longest}. Set training.seq to at most {longest}."
            )
        key = digest(self)
        if key not in _CHECKED:
            with torch.random.fork_rng(devices=[]):
                model = self.build()
            try:
                check_model(model, self)
            except InputError as error:
                raise InputError(f"from: {folder}: {error}") from error
            _CHECKED.add(key)

    def write(self, weights: Mapping[str, Tensor], to: Path) -> None:
        folder, model = Path(self.checkpoint), self.loaded(weights)
        module: Any = model.module
        if self.patch.given():
            save_patch(module, to / PATCH)
            detach(module)
        module.config.use_cache = True
        with quiet_transformers():
            module.save_pretrained(to)
        for file in folder.iterdir():
            if file.name in _TOKENIZER_FILES:
                shutil.copyfile(file, to / file.name)

    def loading(self, folder: Path) -> str:
        lines = [
            "from transformers import AutoModelForCausalLM",
            f"model = AutoModelForCausalLM.from_pretrained({str(folder)!r})",
        ]
        if self.patch.given():
            lines += ["import addnorm", f"addnorm.load_patch(model, {str(folder / PATCH)!r})"]
        return "\n".join(lines)

    def _require_tokenizer(self, tokenizer: TokenizerSpec) -> None:
        own = Pretrained(path=self.checkpoint).fit(())
        same = isinstance(tokenizer, Pretrained) and tokenizer.fit(()).hash == own.hash
        if not same:
            got = f"that of {tokenizer.path}" if isinstance(tokenizer, Pretrained) else repr(tokenizer.kind)
            raise InputError(
                f"from: {self.checkpoint}: expected the checkpoint's own tokenizer for the study, got {got}. Leave `tokenizer` "
                f"out of the study, or set it to {{kind: pretrained, path: {self.checkpoint}}}."
            )


def checkpoint_hash(folder: Path) -> str:
    """SHA-256 of config.json and of the files with the weights, as hex digits.

    Raises:
        InputError: there are none, or they cannot be read.
    """
    files = [folder / CONFIG, *weight_files(folder)]
    try:
        states = tuple((str(file), (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files)
        return _hash(states)
    except OSError as error:
        raise InputError(f"from: {folder}: cannot be read: {error}. Copy the checkpoint again.") from error


@cache
def _hash(states: tuple[tuple[str, int, int], ...]) -> str:
    """The hash of files, once per state of them."""
    digests = hashlib.sha256()
    for name, _, _ in states:
        path = Path(name)
        with path.open("rb") as file:
            digests.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digests.hexdigest()


def _require_checkpoint(path: Path) -> None:
    if not is_checkpoint(path):
        raise InputError(
            f"from: {path}: expected a folder with {CONFIG}, a checkpoint of Transformers, or a run of addnorm, got "
            f"{'one without' if path.is_dir() else 'no folder'}.{did_you_mean(path.name, _neighbours(path))} Write one with "
            "save_pretrained."
        )
    if plain_config(path).get("model_type") == MODEL_TYPE:
        raise InputError(
            f"from: {path / CONFIG}: $.model_type: expected a class of Transformers, got a model of addnorm. Give the run, or "
            "its export without --format hf."
        )


def _neighbours(path: Path) -> list[str]:
    parent = path.parent
    return [each.name for each in parent.iterdir() if each.is_dir() and is_checkpoint(each)] if parent.is_dir() else []


def _of_the_hub(name: str, path: Path) -> Path:
    """Folder of the hub's cache with a model, which is downloaded if it is not there."""
    if not _HUB_NAME.fullmatch(name):
        return path
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise InputError(
            f"from: {path}: no such folder, and names of the hub need Transformers. Install it: pip install "
            "'addnorm[transformers]'."
        ) from error
    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except Exception as error:  # of the network, or of the hub, of many kinds
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"from: {path}: expected a folder, got none, nor a model {name!r} in the cache of Hugging Face's hub or on it: "
            f"{type(error).__name__}: {reason}{did_you_mean(path.name, _neighbours(path))} Give the folder of a checkpoint."
        ) from error
