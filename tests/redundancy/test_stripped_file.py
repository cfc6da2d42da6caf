"""The file of a stripped model, written and read back by the Python functions."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toys
from toys import WIDTH, data, seeded

import addnorm
from addnorm.errors import InputError
from addnorm.redundancy.rewriting.stripped_file import load_stripped


def test_a_saved_model_is_read_back_into_its_class(tmp_path: Path) -> None:
    model, x = seeded(toys.PostNorm), data(2, 4, WIDTH)
    stripped, certificate = addnorm.audit(model, x, methods="numeric").strip()
    certificate.save(stripped, tmp_path / "s.safetensors")
    (tmp_path / "ordinary").touch()
    assert (tmp_path / "s.safetensors").stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    again = seeded(toys.PostNorm)
    load_stripped(again, tmp_path / "s.safetensors")
    assert again.state_dict().keys() == stripped.state_dict().keys()
    with torch.no_grad():
        assert torch.equal(again(x), stripped(x))
    with pytest.raises(InputError, match="expected parameters of Convolved, got attention"):
        load_stripped(seeded(toys.Convolved), tmp_path / "s.safetensors")


def test_a_failed_certificate_saves_nothing(tmp_path: Path) -> None:
    stripped, certificate = addnorm.audit(seeded(toys.Attention), data(2, 4, WIDTH), methods="numeric").strip()
    worst = replace(certificate.compared[0], difference=1.0)
    failed = replace(certificate, compared=(worst,))
    with pytest.raises(InputError, match="expected a certificate that passed, got one that failed"):
        failed.save(stripped, tmp_path / "s.safetensors")
    assert not list(tmp_path.iterdir())
    failed.save(stripped, tmp_path / "s.safetensors", force=True)
    assert list(tmp_path.iterdir())
