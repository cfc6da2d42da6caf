"""What people type out of habit: names of other libraries, marks of a Chinese keyboard. One line says what to write."""

from dataclasses import fields
from pathlib import Path

import pytest

from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.optimization.schedules.cosine import Cosine
from addnorm.study.definition import Study, Training
from addnorm.study.loading import load_study
from addnorm.study.problems import _OTHER_NAMES
from addnorm.words import phrases, translated

FILE = """name: tiny
seeds: [0, 1, 2]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 4, batch: 2, seq: 16}
model: {preset: base, width: 16, depth: 2}
variants:
  base: {}
"""
CASES = [
    ("steps: 4", "epochs: 4", "Training has no field 'epochs'. Write tokens. Known:"),
    ("batch: 2", "batch_size: 2", "Training has no field 'batch_size'. Write batch. Known:"),
    ("seq: 16", "seq: 16, lr: 1e-3", "Training has no field 'lr'. Write training.optimizer.learning_rate. Known:"),
    ("depth: 2", "n_layers: 2", "ModelSpec has no field 'n_layers'. Write depth. Known:"),
    ("width: 16", "d_model: 16", "ModelSpec has no field 'd_model'. Write width. Known:"),
    ("seeds: [0, 1, 2]", "random_seed: 0", "Study has no field 'random_seed'. Write seeds. Known:"),
    ("base: {}", "base: {n_heads: 2}", "$.variants.base: ModelSpec has no field 'n_heads'. Write heads. Known:"),
    ("steps: 4", "steps: 1e3", "$.training.steps: expected a whole number, got '1e3'. Write 1000."),
    ("steps: 4", "steps: １００", "$.training.steps: expected a whole number, got '１００'. Write 100."),
    ("[0, 1, 2]", "[0，1，2]", "$.seeds[0]: expected a whole number, got '0，1，2'. Write 0, 1, 2."),
    ("[0, 1, 2]", "0，1，2", "$.seeds: expected a list, got '0，1，2'. Write [0, 1, 2]."),
    ("steps: 4", "steps：4", "Training has no field 'steps：4'. Write steps: 4. Known:"),
    ("seeds: [0", "seeds：[0", "Line 2 has the full-width '：': write ':'."),
    ("steps: 4, batch", "steps: 4，batch", "Line 5 has the full-width '，': write ','."),
    ("  base: {}", "  base: ｛｝", "$.variants.base: expected a mapping with the fields of a model, got '｛｝'."),
    ("  base: {}", "  base: gpt2", "expected a mapping with the fields of a model, got 'gpt2'. Write {preset: gpt2}."),
]


@pytest.mark.parametrize(("old", "new", "expected"), CASES, ids=[new for _, new, _ in CASES])
def test_one_line_says_what_to_write(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert FILE.count(old) == 1
    file = tmp_path / "s.yaml"
    file.write_text(FILE.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_study(file)
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message
    if "YAML" not in message:  # whose own words stay English
        assert translated(message, phrases("zh")) != message


def test_a_whole_file_with_full_width_colons(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("name：tiny\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"expected a mapping, got 'name：tiny'. Line 1 has the full-width '：'"):
        load_study(file)


def test_a_preset_is_no_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "gpt2"]) == 2
    assert "gpt2 is a preset: write model: {preset: gpt2} in a study file." in capsys.readouterr().err


def test_chinese_marks_in_texts_and_comments_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(FILE + "about: 问题：哪个更好？  # 备注：无\n", encoding="utf-8")
    assert load_study(file).about == "问题：哪个更好？"
    file.write_text(FILE + 'about: "a：b"  # c：d\nseeds: [0\n', encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_study(file)
    assert "full-width" not in str(caught.value)


def test_every_place_exists_and_no_name_is_a_field_that_it_replaces() -> None:
    owners = {
        "": (ModelSpec, Study),
        "training": (Training,),
        "training.optimizer": (AdamW,),
        "training.schedule": (Cosine,),
    }
    for name, place in _OTHER_NAMES.items():
        owner, _, field = place.rpartition(".")
        known = {each.name for cls in owners[owner] for each in fields(cls)}
        assert field in known
        assert name not in known or name == field, f"{name} is a field itself"
