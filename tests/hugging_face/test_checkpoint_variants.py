"""Variants `from` a checkpoint of Transformers or a run of ours: start, identity, resume, evaluation as it is, bad input."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
import transformers
from scipy import stats
from starlette.testclient import TestClient
from test_recorded_streams import model_of
from test_recorded_streams import tokens as recorded_tokens

import addnorm
from addnorm.catalogue import room
from addnorm.cli import main
from addnorm.data import Dataset
from addnorm.data.tokenizers.pretrained import Pretrained
from addnorm.errors import InputError
from addnorm.model.neutral import neutral_start
from addnorm.optimization.optimizers._groups import parameter_groups
from addnorm.outside.foreign._use import roles_by_use
from addnorm.outside.foreign.checkpoint import Checkpoint, PatchSpec
from addnorm.outside.hugging_face.tokenizer import tokenizer_files
from addnorm.roles import roles
from addnorm.store import StudyFolder
from addnorm.store.events import read_events
from addnorm.study.definition import RunSpec
from addnorm.study.expansion import validate
from addnorm.study.foreign import ForeignModel
from addnorm.study.initial_weights import initial_model
from addnorm.study.loading import load_study
from addnorm.training.loop import Trainer, content_hash
from addnorm.training.run_weights import newest_weights
from addnorm.web.app import application
from train_here import train_here

PRODUCTS_OF_A_MATRIX: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda x, matrix: torch._grouped_mm(x, matrix[None], offs=torch.tensor([len(x)], dtype=torch.int32)),
    lambda x, matrix: torch.tensordot(x, matrix, 1),
    lambda x, matrix: torch.inner(x, matrix),
    lambda x, matrix: torch.einsum("ni,ij->nj", [x, matrix]),
    lambda x, matrix: torch.mm(input=x, mat2=matrix),
]

SIZES: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": None,
}
STUDY = """
name: patched
references: [plain]
seeds: [0, 1, 2]
corpus: {kind: synthetic, num_documents: 20}
training: {steps: 4, batch: 2, seq: 16, log_every: 2, eval_every: 4, eval_sequences: 4, checkpoint_every: 2}
model: {from: llama}
variants:
  plain: {}
  joined: {patch: {scores: signed, residual: rezero}}
  frozen: {training: {steps: 0}}
"""
DYNAMIC = PatchSpec(residual=neutral_start("residual", {"kind": "dynamic_dense", "reads": "one"}).spec)  # type: ignore[arg-type]
"""Some of its parameters are random at its neutral start."""
TOKENS = torch.arange(32).view(2, 16) * 7 % 256


def write_checkpoint(folder: Path, name: str = "LlamaForCausalLM", **settings: Any) -> Path:
    """A checkpoint with random weights and the tokenizer of bytes."""
    cls = getattr(transformers, name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = cls(cls.config_class(**{**SIZES, **settings}))
    model.save_pretrained(folder)
    addnorm.data.tokenizers.bytes.ByteTokenizer().save(folder)
    for file, content in tokenizer_files(folder, addnorm.preset("base", vocab=256)).items():
        (folder / file).write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint and a study of it. Read them only."""
    folder = tmp_path_factory.mktemp("variants")
    write_checkpoint(folder / "llama")
    (folder / "study.yaml").write_text(STUDY)
    return folder


@pytest.fixture(scope="module")
def trained(home: Path) -> StudyFolder:
    """The study, trained."""
    return train_here(load_study(home / "study.yaml"), home / "out")


def spec_of(folder: StudyFolder, variant: str) -> RunSpec:
    run = next(run for run in folder.runs() if run.spec["variant"] == variant)
    return newest_weights(run).spec


def test_a_study_file_names_a_checkpoint_and_a_patch_at_its_neutral_start(home: Path) -> None:
    study = load_study(home / "study.yaml")
    joined = study.variants["joined"]
    assert isinstance(joined, Checkpoint)
    assert joined.checkpoint == str(home / "llama")
    assert joined.patch.residual == addnorm.residual.rezero.ReZero(alpha_init=1.0)
    assert study.tokenizer == Pretrained(path=str(home / "llama"))
    assert study.training_of("frozen").steps == 0


@pytest.mark.parametrize("patch", [PatchSpec(), DYNAMIC, PatchSpec(norm="rms")], ids=["none", "depth", "norm"])
def test_a_model_starts_where_the_checkpoint_is_at_every_seed(home: Path, patch: PatchSpec) -> None:
    spec = Checkpoint(checkpoint=str(home / "llama"), patch=patch).fitted(256, 16)
    reference = transformers.AutoModelForCausalLM.from_pretrained(home / "llama")
    models = [spec.build(seed).eval() for seed in (0, 1)]
    with torch.no_grad():
        expected = reference(TOKENS).logits
        for model in models:
            torch.testing.assert_close(model(TOKENS), expected, rtol=1e-5, atol=1e-6)


def test_the_runs_finish_and_are_ranked_and_the_frozen_one_is_the_checkpoint(trained: StudyFolder) -> None:
    assert {entry["state"] for entry in trained.status()["runs"]} == {"finished"}
    frozen = [run for run in trained.runs() if run.spec["variant"] == "frozen"]
    losses = [event["loss"] for run in frozen for event in read_events(run.events_path)[0] if event["type"] == "eval"]
    assert len(losses) == 3
    assert len(set(losses)) == 1
    found = newest_weights(frozen[0])
    trainer = Trainer(found.spec, Dataset.load(trained.path / "data"), torch.device("cpu"))
    reference = transformers.AutoModelForCausalLM.from_pretrained(trained.path.parent / "llama").state_dict()
    assert content_hash({f"module.{name}": value for name, value in reference.items()}) == content_hash(found.weights)
    assert trainer.evaluate()["loss"] == losses[0]
    ranking = addnorm.rank(trained.path)
    comparison = ranking["frozen"].versus["plain"]
    trained_losses = [value.loss for value in ranking["plain"].values]
    assert comparison.p_equivalent is not None
    assert comparison.standard_error == pytest.approx(stats.sem(trained_losses), rel=1e-9)
    assert ranking["frozen"].adjusted_mean == losses[0]
    assert any("frozen is evaluated without training" in warning for warning in ranking.warnings)
    assert ranking["joined"].versus["plain"].verdict is not None


@pytest.mark.thorough  # seconds
def test_explain_separates_what_the_scalars_of_a_patch_learned(trained: StudyFolder, capsys: Any) -> None:
    explained = addnorm.explain(trained.path)
    assert {run["variant"] for run in explained["runs"]} == {"joined"}
    assert {name.split("-")[0] for name in explained["skipped"]} == {"plain", "frozen"}
    assert all("which only a patch puts into a model of others" in reason for reason in explained["skipped"].values())
    found = explained["runs"][0]
    run = next(run for run in trained.runs() if run.name == found["run"])
    state = newest_weights(run).any_model().module.state_dict()
    alpha = [entry for entry in found["scalars"] if entry["parameter"] == "residual.alpha"]
    assert [entry["layer"] for entry in alpha] == [0, 0, 1, 1, 2, 2]
    assert [entry["final"] for entry in alpha] == state["addnorm_patch.residual.alpha"].tolist()
    assert {entry["init"] for entry in alpha} == {1.0}
    scores = [entry for entry in found["scalars"] if entry["parameter"].startswith("scores.")]
    assert {entry["layer"] for entry in scores} == {0, 1, 2}
    assert found["mechanism"] == "residual rezero, scores signed"
    assert "alpha_l" in found["formula"]
    for entry in found["scalars"]:
        moved = entry["final"] - entry["init"]
        assert entry["verdict"] in ("learned", "decayed", "undriven", "redundant direction")
        assert entry["decay_share"] is None or moved != 0
    assert main(["explain", str(run.path), "--entries"]) == 0
    assert "residual.alpha[0]" in capsys.readouterr().out
    html = addnorm.report(trained.path).html.read_text(encoding="utf-8")
    assert "residual.alpha" in html


def test_a_resumed_run_repeats_its_steps_exactly(trained: StudyFolder) -> None:
    spec, dataset = spec_of(trained, "joined"), Dataset.load(trained.path / "data")
    whole, first, second = (Trainer(spec, dataset, torch.device("cpu")) for _ in range(3))
    for _ in range(4):
        whole.train_step()
    for _ in range(2):
        first.train_step()
    second.load_state(first.state())
    for _ in range(2):
        second.train_step()
    assert content_hash(second.model.state_dict()) == content_hash(whole.model.state_dict())
    run = next(run for run in trained.runs() if run.spec["variant"] == "joined")
    assert content_hash(newest_weights(run).weights) == content_hash(whole.model.state_dict())
    moved = [p for name, p in whole.model.named_parameters() if "addnorm_patch" in name]
    assert len(moved) == 4
    assert all(bool((p != q).any()) for p, q in zip(moved, _fresh(spec, "addnorm_patch"), strict=True))


def _fresh(spec: RunSpec, part: str) -> list[torch.Tensor]:
    return [p for name, p in initial_model(spec).named_parameters() if part in name]


def test_weights_that_have_changed_are_refused_by_the_run_and_by_the_plan(
    home: Path, tmp_path: Path, capsys: Any
) -> None:
    for name in ("llama", "study.yaml"):
        (shutil.copytree if (home / name).is_dir() else shutil.copy)(home / name, tmp_path / name)
    study = load_study(tmp_path / "study.yaml", settings=["variants=[plain]", "seeds=[0]"])
    folder = train_here(study, tmp_path / "out")
    spec = spec_of(folder, "plain")
    assert isinstance(spec.model, Checkpoint)
    assert len(spec.model.content) == 64
    weights = tmp_path / "llama" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(InputError, match="expected the checkpoint that the study was planned with"):
        initial_model(spec)
    command = ["run", str(tmp_path / "study.yaml"), "--set", "variants=[plain]", "--set", "seeds=[0]"]
    assert main([*command, "--out", str(folder.path)]) == 2
    assert "content" in capsys.readouterr().err


def test_an_export_is_a_checkpoint_and_a_patch(trained: StudyFolder, tmp_path: Path, capsys: Any) -> None:
    run = next(run for run in trained.runs() if run.spec["variant"] == "joined")
    assert main(["export", str(run.path), "--to", str(tmp_path / "exported")]) == 0
    assert "addnorm.load_patch" in capsys.readouterr().out
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    addnorm.load_patch(again, tmp_path / "exported" / "patch.safetensors")
    with torch.no_grad():
        expected = newest_weights(run).any_model()(TOKENS)
        torch.testing.assert_close(again(TOKENS).logits, expected, rtol=1e-5, atol=1e-6)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")("ab").input_ids == [97, 98]


def test_inspect_probes_the_runs_and_the_others_say_what_they_need(trained: StudyFolder, capsys: Any) -> None:
    run = next(run for run in trained.runs() if run.spec["variant"] == "joined")
    measured = addnorm.inspect(run.path, sequences=2, map_sequences=1)
    assert len(measured["runs"][0]["end"]["layers"]) == 3
    assert measured["runs"][0]["start"]["layers"] != measured["runs"][0]["end"]["layers"]
    plain = next(run for run in trained.runs() if run.spec["variant"] == "plain")
    parts = "reads the parts of a model of addnorm"
    for command, said in (
        (["explain", plain.path], "which only a patch puts into a model of others"),
        (["audit", run.path], parts),
        (["inspect", run.path, "--terms"], parts),
        (["inspect", run.path, "--ablate"], parts),
        (["extrapolate", trained.path], parts),
    ):
        assert main([str(part) for part in command]) == 2
        assert said in capsys.readouterr().err


def test_the_page_of_a_checkpoint_shows_its_patch_and_claims_nothing_else(trained: StudyFolder) -> None:
    site = TestClient(application(trained.path), base_url="http://127.0.0.1:8321")
    joined, plain, chinese = (
        site.get(f"/model?variant={asked}").text for asked in ("joined", "plain", "joined&lang=zh")
    )
    for page in (joined, plain):
        assert "A checkpoint of Transformers" in page
        assert "as in a standard Transformer" not in page
    assert "Transformers 的检查点" in chinese
    shown = room("scores").doc("signed").summary.split(".")[0]
    assert shown in joined
    assert shown not in plain


def test_roles_are_found_by_use(home: Path, tmp_path: Path) -> None:
    llama = roles(Checkpoint(checkpoint=str(home / "llama")).fitted(256, 16).build())
    assert llama["module.lm_head.weight"] == "head"
    gpt2 = write_checkpoint(tmp_path / "gpt2", "GPT2LMHeadModel", n_embd=16, n_layer=2, n_head=2, n_positions=32)
    found = roles(Checkpoint(checkpoint=str(gpt2)).fitted(256, 16).build())
    assert found["module.transformer.h.0.attn.c_attn.weight"] == "hidden_matrix"
    assert found["module.transformer.wte.weight"] == "embedding"  # tied: one parameter gives embeddings and logits
    assert "table" not in found.values()


@pytest.mark.parametrize("name", ["Qwen3MoeForCausalLM", "MixtralForCausalLM", "GptOssForCausalLM"])
def test_experts_of_a_mixture_are_hidden_matrices_and_decay(name: str) -> None:
    """Also in the grouped product that Transformers takes unless told otherwise."""
    module = model_of(name)
    found = {}
    for experts in ("grouped_mm", "eager"):
        module.set_experts_implementation(experts)
        found[experts] = roles_by_use(module, recorded_tokens())
    assert found["grouped_mm"] == found["eager"]
    model = ForeignModel(module, found["grouped_mm"], {})
    of_role = {group["role"]: group for group in parameter_groups(model, weight_decay=0.1, decay_on="matrices")}
    decaying = {id(parameter) for parameter in of_role["matrix"]["params"]}
    experts_of = {
        name: each for name, each in module.named_parameters() if "experts" in name and name.endswith("_proj")
    }
    assert len(experts_of) == 4
    assert all(id(parameter) in decaying for parameter in experts_of.values())


@pytest.mark.parametrize("product", PRODUCTS_OF_A_MATRIX)
def test_a_product_gives_its_matrix_a_role(product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50)
            self.matrix = torch.nn.Parameter(torch.ones(8, 8))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.embedding(ids)
            return self.head(x + product(x.flatten(0, 1), self.matrix).reshape(x.shape))

    assert roles_by_use(Model(), recorded_tokens())["matrix"] == "hidden_matrix"


def test_a_name_of_the_hub_is_taken_from_its_cache(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    cached = tmp_path / "models--me--tiny"
    shutil.copytree(home / "llama", cached / "snapshots" / ("a" * 40))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("a" * 40)
    spec, _ = Checkpoint(checkpoint="me/tiny").located(tmp_path)
    assert Path(spec.checkpoint).name == "a" * 40
    with pytest.raises(InputError, match=r"nor a model 'me/other' in the cache .* or on it"):
        Checkpoint(checkpoint="me/other").located(tmp_path)


def test_a_run_of_ours_is_a_variant_with_its_spec_and_weights(finished: Path, tmp_path: Path) -> None:
    run = next(run for run in StudyFolder(finished).runs() if run.spec["variant"] == "base")
    file = tmp_path / "ours.yaml"
    file.write_text(
        f"name: ours\ncorpus: {{kind: synthetic, num_documents: 20}}\ntraining: {{seq: 16, batch: 2}}\n"
        f"model: {{from: {run.path}}}\n"
        "variants: {as-it-is: {}, signed: {patch: {scores: signed, residual: rezero}}}\n"
    )
    study = load_study(file)
    assert study.tokenizer.kind == "bytes"
    assert study.training_of("signed").init_from == str(run.path)
    fitted = replace(study, variants={name: replace(model, vocab=256) for name, model in study.variants.items()})
    validate(fitted)
    trained = newest_weights(run).model()
    for name, model in fitted.variants.items():
        spec = RunSpec(
            study="ours",
            variant=name,
            seed=3,
            model=model,
            training=fitted.training_of(name),
            corpus=study.corpus,
            tokenizer=study.tokenizer,
            data_hash="",
        )
        torch.testing.assert_close(initial_model(spec)(TOKENS), trained(TOKENS), rtol=1e-5, atol=1e-6)


def other_keys(folder: Path) -> None:
    import safetensors.torch

    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["model.layers.9.mlp.gate_proj.weight"] = weights.pop("model.layers.0.mlp.gate_proj.weight")
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})


def unknown_class(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalML"]}))


def larger_tokenizer(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["zz"] = 300
    (folder / "tokenizer.json").write_text(json.dumps(content))


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def as_it_is(folder: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "variant", "further", "said"),
    [
        (unknown_class, "from: llama", "", ["LlamaForCausalML", "Did you mean 'LlamaForCausalLM'"]),
        (other_keys, "from: llama", "", ["model.safetensors", "model.layers.0.mlp.gate_proj.weight"]),
        (as_it_is, "from: llama, patch: {residual: gate}", "", ["patch.residual", "Those that can:", "rezero"]),
        (as_it_is, "from: llama, patch: {residual: rezeero}", "", ["patch.residual", "Did you mean 'rezero'"]),
        (
            as_it_is,
            "from: llama, patch: {residual: {kind: rezero, alpha_init: 0.5}}",
            "",
            ["patch.residual", "alpha_init", "Those that can:"],
        ),
        (as_it_is, "from: llama, patch: {norm: layer}", "", ["norm: model.layers.0", "Those that do: rms"]),
        (as_it_is, "from: llama", "tokenizer: bytes", ["checkpoint's own tokenizer", "'bytes'", "kind: pretrained"]),
        (larger_tokenizer, "from: llama", "", ["tokenizer.json", "ids below 256", "301 ids"]),
        (no_tokenizer, "from: llama", "", ["tokenizer.json", "save_pretrained"]),
        (as_it_is, "from: lama", "", ["/lama", "Did you mean 'llama'", "save_pretrained"]),
        (as_it_is, "from: llama, depth: 3", "", ["'depth'", "Known: from, patch"]),
        (as_it_is, "preset: base, patch: {scores: signed}", "", ["'patch'", "beside 'from'"]),
        (as_it_is, "from: llama, training: {recompute: true}", "", ["training.recompute", "expected false"]),
        (as_it_is, "from: llama, training: {parallel: sharded}", "", ["training.parallel", "replicated"]),
        (
            as_it_is,
            "from: llama",
            "training: {seq: 64}",
            ["max_position_embeddings", "expected at least training.seq, 64"],
        ),
    ],
)
def test_bad_input_is_one_message_with_its_path(
    home: Path, tmp_path: Path, capsys: Any, change: Callable[[Path], None], variant: str, further: str, said: list[str]
) -> None:
    shutil.copytree(home / "llama", tmp_path / "llama")
    change(tmp_path / "llama")
    file = tmp_path / "bad.yaml"
    file.write_text(f"name: bad\n{further or 'training: {seq: 16}'}\nvariants: {{it: {{{variant}}}}}\n")
    assert main(["plan", str(file)]) == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    assert "variants.it" in message
    for part in said:
        assert part in message
