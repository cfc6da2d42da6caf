"""`addnorm inspect` of checkpoints of any class: equal to the measures of our own models, and honest about missing parts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from foreign import model, tokens
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn

import addnorm
from addnorm.cli import main
from addnorm.insight.probe import probe
from addnorm.statistics.over_seeds import depth_over_seeds
from addnorm.training.objective import Batch
from sampled import sampled

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 20,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT = {
    "vocab_size": 50,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 20,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
OPT = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "ffn_dim": 48,
    "num_attention_heads": 4,
    "max_position_embeddings": 20,
    "word_embed_proj_dim": 32,
}
BLOOM = {"vocab_size": 50, "hidden_size": 32, "n_layer": 3, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2}
DISTIL = {"vocab_size": 50, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 20}
STREAM = {"gradient", "rms", "exit_loss", "share", "update_rms", "cosine"}
ALL = STREAM | {"entropy", "entropy_share", "one_hot", "first_share"}
DIRECTIONS = {"query_direction", "key_direction"}

MODELS: dict[str, tuple[dict[str, Any], set[str], str | None]] = {
    "MistralForCausalLM": (GROUPED, ALL | DIRECTIONS, None),
    "Qwen3ForCausalLM": ({**GROUPED, "head_dim": 8}, ALL | DIRECTIONS, None),
    "Gemma2ForCausalLM": ({**GROUPED, "head_dim": 8}, ALL | DIRECTIONS, None),
    "Olmo2ForCausalLM": (GROUPED, ALL | DIRECTIONS, None),
    "PhiForCausalLM": (SIZES, ALL | DIRECTIONS, None),
    "CohereForCausalLM": (SIZES, ALL | DIRECTIONS, None),
    "GPTJForCausalLM": ({**GPT, "rotary_dim": 4}, ALL | DIRECTIONS, None),
    "GPTNeoXForCausalLM": (SIZES, ALL | DIRECTIONS, None),
    "OPTForCausalLM": (OPT, ALL | DIRECTIONS, None),
    "BloomForCausalLM": (BLOOM, ALL | DIRECTIONS, None),
    "MixtralForCausalLM": (GROUPED, ALL | DIRECTIONS, None),
    "RobertaForMaskedLM": (SIZES, ALL | DIRECTIONS, None),
    "DistilBertForMaskedLM": (DISTIL, ALL | DIRECTIONS, None),
    "AlbertForMaskedLM": ({**SIZES, "embedding_size": 16}, ALL | DIRECTIONS, None),
    "MambaForCausalLM": (
        {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3},
        STREAM,
        "attention of layers 0, 1, 2",
    ),
    "LlamaForCausalLM": (GROUPED, ALL | DIRECTIONS, None),
    "Qwen2ForCausalLM": (GROUPED, ALL | DIRECTIONS, None),
    "GPT2LMHeadModel": (GPT, ALL | DIRECTIONS, None),
    "BertForMaskedLM": (SIZES, ALL | DIRECTIONS, None),
    "FalconForCausalLM": (SIZES, ALL | DIRECTIONS, None),
    "StableLmForCausalLM": (GROUPED, ALL | DIRECTIONS, None),
    "GptOssForCausalLM": ({**GROUPED, "head_dim": 8}, ALL | DIRECTIONS, None),
}
"""Settings, measures that every layer has, and the part that cannot be found."""
ENCODER_DECODERS: dict[str, dict[str, Any]] = {
    "BartForConditionalGeneration": {
        "vocab_size": 50,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 20,
    },
    "T5ForConditionalGeneration": {
        "vocab_size": 50,
        "d_model": 32,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 4,
        "d_kv": 8,
    },
}


def random_model(name: str, settings: dict[str, Any]) -> Any:
    cls = getattr(transformers, name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return cls(cls.config_class(**settings)).eval()


def logits_of(foreign: nn.Module, ids: Tensor) -> Tensor:
    found: Tensor = foreign(ids).logits
    return found


def scored(seed: int = 0) -> Batch:
    ids = tokens(2, 13)
    return Batch(inputs=ids[:, :-1], targets=ids[:, 1:], mask=None)


@pytest.mark.parametrize("name", sampled(6, MODELS))
def test_every_architecture_is_measured_or_says_what_is_missing(name: str) -> None:
    settings, expected, missing = MODELS[name]
    foreign = random_model(name, settings)
    batch = scored()
    found = probe(foreign, [batch], [batch], logits_of)
    assert len(found["layers"]) == 3
    compared = {"layer", "similarity", "mean_similarity"}
    for row in found["layers"]:
        assert {key for key, value in row.items() if value is not None} - compared == expected
    assert found["layers"][-1]["exit_loss"] == pytest.approx(found["loss"], rel=1e-5)
    with torch.no_grad():
        loss = nn.functional.cross_entropy(logits_of(foreign, batch.inputs).flatten(0, 1), batch.targets.flatten())
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert ([] if missing is None else [missing]) == [sentence[: len(missing or "")] for sentence in found["missing"]]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in foreign.modules())


# GPT-2 is measured as a model of ours, and BERT's hidden tokens need the tokenizer that the folder lacks.
FOLLOWED = ("MistralForCausalLM", "Gemma2ForCausalLM", "PhiForCausalLM")
FOLLOWED = (*FOLLOWED, "MixtralForCausalLM", "FalconForCausalLM", "GptOssForCausalLM")


@pytest.mark.parametrize("name", sampled(6, FOLLOWED))
def test_the_command_shows_which_branch_reads_which(name: str, ids: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The depth matrix of the stream, on the page and in JSON, is that of `addnorm.depth_matrix` on the same tokens."""
    settings = MODELS[name][0]
    assert inspected(ids / "x", name, settings, "--json") == 0
    measured = json.loads(capsys.readouterr().out)
    (run,), (room,) = measured["runs"], measured["depth"]
    assert not [sentence for sentence in run["missing"] if sentence.startswith("depth matrices")]
    expected = addnorm.depth_matrix(random_model(name, settings), torch.tensor([[3, 4, 4, 3, 3, 4] * 2]))
    assert (room["room"], room["kind"], room["seeds"]) == ("residual", name, 1)
    assert (tuple(room["reads"]), tuple(room["sources"])) == (expected.reads, expected.sources)
    for matrix in ("weights", "shares"):
        got = torch.tensor(room[matrix]["end"], dtype=torch.float64)
        torch.testing.assert_close(got, getattr(expected, matrix), rtol=1e-3, atol=1e-4)
    heads = {"en": "which branch reads which (residual", "zh": "哪个分支读取哪个（residual"}
    for language, head in heads.items():
        assert inspected(ids / "x", name, settings, "--lang", language) == 0
        shown = capsys.readouterr().out
        assert f"{head} {name}" in " ".join(shown.split())
        assert re.search(r"^close .*\d\.\d\d", shown, re.MULTILINE)


class Bent(nn.Module):
    """A stream that passes a saturating function, whose branches write nothing at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(3))
        for layer in self.layers:
            nn.init.zeros_(layer[1].weight)
            nn.init.zeros_(layer[1].bias)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for number, layer in enumerate(self.layers):
            x = x + layer(x)
            x = x.tanh() if number == 1 else x
        logits: Tensor = self.head(x)
        return logits


def test_what_cannot_be_followed_is_named_with_its_size() -> None:
    model, batch = Bent(), scored()
    start = probe(model, [batch], [batch], lambda of, given: of(given))
    for layer in model.layers:
        nn.init.normal_(layer[1].weight, generator=torch.Generator().manual_seed(0))
    end = probe(model, [batch], [batch], lambda of, given: of(given))
    for found in (start, end):
        assert found["depth"]["residual"]["sources"][2] == "2.stream"
        (said,) = (sentence for sentence in found["missing"] if "not additive" in sentence)
        assert said.note["values"]["source"] == "2.stream"
        share = found["depth"]["residual"]["shares"][-1][2]
        assert f"makes {share:.0%} of close" in said
    assert start["depth"]["residual"]["sources"] == end["depth"]["residual"]["sources"]
    (room,) = depth_over_seeds([{"start": start, "end": end}])
    assert room.matrices["shares"].difference is not None
    renamed = {"depth": {"residual": {**start["depth"]["residual"], "sources": ["other"]}}}
    for other in (renamed, {}):  # another pass, or a stream that cannot be followed before training
        (room,) = depth_over_seeds([{"start": other, "end": end}])
        assert room.matrices["shares"].difference is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("probes")
    random_model("MistralForCausalLM", GROUPED).save_pretrained(root / "mistral")
    tokenizer = Tokenizer(models.WordLevel({"?": 0, "a": 3, "b": 4, "[MASK]": 5}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(root / "mistral" / "tokenizer.json"))
    (root / "text.txt").write_text("abbaab" * 20, encoding="utf-8")
    (root / "ids.json").write_text(json.dumps([3, 4, 4, 3, 3, 4] * 20), encoding="utf-8")
    return root


def test_the_command_measures_a_text_or_token_ids(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = []
    for text in ("text.txt", "ids.json"):
        arguments = [
            "--text",
            str(folder / text),
            "--length",
            "12",
            "--sequences",
            "4",
            "--map-sequences",
            "1",
            "--json",
        ]
        assert main(["inspect", str(folder / "mistral"), *arguments]) == 0
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        results.append(run)
    assert results[0]["end"] == results[1]["end"]
    assert results[0]["missing"] == []
    assert main(["inspect", str(folder / "mistral"), "--text", str(folder / "ids.json"), "--length", "12"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("cosine", "first", "q dir", "exit"))


ENCODER = {**SIZES, "pad_token_id": 0}
HEADLESS: dict[str, dict[str, Any]] = {
    "BertModel": ENCODER,
    "AlbertModel": {**ENCODER, "embedding_size": 16},
    "BertForTokenClassification": ENCODER,
    "T5EncoderModel": {"vocab_size": 50, "d_model": 32, "d_ff": 48, "num_layers": 3, "num_heads": 4, "d_kv": 8},
    **ENCODER_DECODERS,
}
"""Models that read tokens and give no number per id, and the encoders of those that have a decoder as well."""


def inspected(folder: Path, name: str, settings: dict[str, Any], *arguments: str) -> int:
    random_model(name, settings).save_pretrained(folder)
    options = ["--length", "12", "--sequences", "2", "--map-sequences", "1"]
    return main(["inspect", str(folder), "--text", str(folder.parent / "ids.json"), *options, *arguments])


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    (tmp_path / "ids.json").write_text(json.dumps([3, 4, 4, 3, 3, 4] * 20), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", sampled(6, HEADLESS))
def test_without_logits_the_rest_is_measured_and_the_missing_part_named(
    name: str, ids: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspected(ids / "x", name, HEADLESS[name], "--to", str(ids / "to"), "--json") == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["end"]["loss"] is None
    assert len(run["end"]["layers"]) >= 2
    for row in run["end"]["layers"]:
        assert not {"gradient", "exit_loss"} & row.keys()
        assert row.keys() >= {"rms", "share", "update_rms", "cosine", "entropy", "first_share"}
    *decoder, logits = (sentence for sentence in run["missing"] if not sentence.startswith("depth matrices"))
    assert logits.startswith("logits: expected one per position and id")
    assert [sentence.startswith(f"the decoder of {name}") for sentence in decoder] == [True] * (
        name in ENCODER_DECODERS
    )
    assert inspected(ids / "x", name, HEADLESS[name]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "x: measured on " in shown
    assert "Not found: logits" in shown
    assert main(["report", str(ids / "to"), "--json"]) == 0
    assert "logits: expected one per position" in Path(json.loads(capsys.readouterr().out)["report"]).read_text(
        encoding="utf-8"
    )


def test_measures_without_logits_are_those_of_the_same_model_with_a_head() -> None:
    whole = random_model("BertForMaskedLM", SIZES)
    batch = scored()
    expected = probe(whole, [batch], [batch], logits_of)
    found = probe(whole.bert, [batch], [batch], lambda model, tokens: model(tokens) and None)
    for theirs, mine in zip(found["layers"], expected["layers"], strict=True):
        assert theirs == {name: value for name, value in mine.items() if name not in ("gradient", "exit_loss")}
    assert found["sites"] == expected["sites"]


@pytest.mark.parametrize(
    ("name", "settings", "reads"),
    [
        ("ViTModel", {**ENCODER, "image_size": 8, "patch_size": 4}, "'pixel_values'"),
        (
            "WhisperForConditionalGeneration",
            {
                **ENCODER_DECODERS["BartForConditionalGeneration"],
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "decoder_start_token_id": 1,
                "pad_token_id": 0,
                "bos_token_id": 1,
                "eos_token_id": 2,
            },
            "'input_features'",
        ),
    ],
)
def test_models_that_read_something_else_are_refused(
    name: str, settings: dict[str, Any], reads: str, ids: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspected(ids / "x", name, settings) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{ids / 'x'}: expected a model that embeds tokens" in said
    assert reads in said
    assert "addnorm audit" in said


def test_the_architectures_of_the_audits_tests_are_all_here() -> None:
    """Those with a list of derived degrees of freedom; this file measures each, or names what it could not find."""
    sources = Path(__file__).parents[1] / "redundancy" / "models"
    audited = {
        family
        for path in sources.glob("test_*_classes.py")
        for family in re.findall(r"(\w+)Config\(", path.read_text())
    }
    here = {*MODELS, *HEADLESS, "ViTModel", "WhisperForConditionalGeneration"}
    assert len(audited) > 15
    assert [family for family in sorted(audited) if not any(name.startswith(family) for name in here)] == []


@pytest.mark.parametrize("name", sampled(2, ["llama", "mistral"]))
def test_measures_are_written_for_the_page_on_request(
    folder: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a class that only Transformers knows, and of one that becomes a model of this library."""
    if name == "llama":
        addnorm.save_hf(model("llama"), folder / "llama")
    text = ["--text", str(folder / "ids.json"), "--length", "12"]
    options = [*text, "--sequences", "2", "--map-sequences", "1", "--to", str(tmp_path / "to"), "--name", "mine"]
    assert main(["inspect", str(folder / name), *options, "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    place = tmp_path / "to" / "measured" / "mine"
    assert json.loads((place / "insight.json").read_text()) == run
    assert run["run"] == "mine"
    assert json.loads((place / "checkpoint.json").read_text())["folder"] == str((folder / name).resolve())
    terms = ["--terms", *text, "--samples", "2", "--to", str(tmp_path / "to"), "--name", "mine", "--json"]
    assert main(["inspect", str(folder / name), *terms]) == 0
    (found,) = json.loads(capsys.readouterr().out)["models"]
    assert json.loads((place / "terms.json").read_text())["label"] == found["label"] == "mine"
    assert main(["report", str(tmp_path / "to"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    written = {Path(path).name for path in report["files"]}
    assert {"early_exit.svg", "score_terms.svg", "checkpoints.csv"} <= written
    assert "depth.svg" in written
    assert report["not_inspected"] == {}
    assert "mine" in Path(report["report"]).read_text(encoding="utf-8")


def test_options_of_writing_are_refused_where_they_mean_nothing(
    folder: Path, tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = ["--text", str(folder / "ids.json")]
    to = ["--to", str(tmp_path / "to")]
    for arguments, message in (
        ([str(folder / "mistral"), *text, "--name", "x"], "--name: expected together with --to"),
        ([str(finished), *to], "--to: expected a checkpoint as target"),
        ([str(finished), "--ablate", *to], "--to: expected without --ablate"),
        ([str(next(finished.glob("*-s0-*"))), "--terms", *to], "--to: expected a checkpoint as target"),
        (
            [str(folder / "mistral"), *text, "--length", "12", "--to", str(next(finished.glob("*-s0-*")))],
            "that of a run",
        ),
    ):
        assert main(["inspect", *arguments]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "to").exists()


def test_a_file_of_ids_that_is_no_list_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ids.json").write_text('{"ids": [1]}')
    assert main(["inspect", str(folder / "mistral"), "--text", str(tmp_path / "ids.json")]) == 2
    assert "expected a JSON list of token ids" in capsys.readouterr().err
