"""`addnorm.testing.check`, and a norm that is one file."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from addnorm import preset, testing
from addnorm.catalogue import ROOMS, add_plugin, remove_plugin
from addnorm.errors import InputError
from addnorm.norm import NormSpec
from addnorm.norm.rms import RMSNorm
from addnorm.reduction import Reduction
from addnorm.residual.scale import Scale
from addnorm.testing.contract import shrunk

pytestmark = pytest.mark.plain  # the laws themselves run with the shape checker in test_siblings

CAPPED = '''
"""Capped norm: a root mean square norm whose entries are bounded.

    y = cap * tanh(x / sqrt(mean(x^2) + 1e-5) / cap) * gamma
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.norm import NormSpec
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Capped(NormSpec):
    """A bounded norm."""

    cap: float = 3.0
    """Largest absolute entry before the gain."""

    @classmethod
    def reduces_to(cls):
        return (Reduction(settings={"cap": 1e30}, to={"norm": "rms"}),)

    def build(self, dim: int, *, shift: bool) -> nn.Module:
        return CappedNorm(dim, self.cap)


class CappedNorm(nn.Module):
    def __init__(self, dim: int, cap: float) -> None:
        super().__init__()
        self.cap, self.weight = cap, nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        scaled = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return (self.cap * torch.tanh(scaled / self.cap)).to(self.weight.dtype) * self.weight
'''


@pytest.fixture
def capped(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "capped.py"
    file.write_text(CAPPED)
    yield file
    remove_plugin("capped")


def test_a_norm_is_one_file(capped: Path) -> None:
    testing.check(capped)
    assert "capped" not in ROOMS["norm"].kinds(), "a check leaves the catalogue as it was"
    add_plugin(capped)
    spec = shrunk(preset("llama", norm={"kind": "capped", "cap": 2.0}), depth=2)
    model = spec.build(seed=0)
    norms = [module for module in model.modules() if type(module).__name__ == "CappedNorm"]
    assert len(norms) == 5, "two branches per layer and the final norm"
    model(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
    assert all(norm.weight.grad is not None for norm in norms)
    assert all(norm.cap == 2.0 for norm in norms)


def test_a_loaded_plugin_stays_loaded(capped: Path) -> None:
    add_plugin(capped)
    testing.check(str(capped))
    assert "capped" in ROOMS["norm"].kinds()


@dataclass(frozen=True, kw_only=True)
class Leaking(NormSpec):
    """A norm over the sequence, defined beside the check."""

    def build(self, dim: int, *, shift: bool) -> nn.Module:
        return SequenceNorm(dim)


class SequenceNorm(RMSNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x - x.mean(1, keepdim=True))


@dataclass(frozen=True, kw_only=True)
class Undefaulted(NormSpec):
    """A norm that cannot be tried."""

    eps: float
    """Added to the variance."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, dim: int, *, shift: bool) -> nn.Module:
        return RMSNorm(dim, eps=self.eps)


def test_specs_and_classes_are_checked() -> None:
    testing.check(Scale(alpha=0.3))
    testing.check(Scale)
    for leaking in (Leaking, Leaking()):
        with pytest.raises(testing.BrokenLaw, match=r"^norm 'test_check' breaks the law 'is_causal': changing token 1"):
            testing.check(leaking)
    testing.check(Undefaulted(eps=1e-5))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Undefaulted, "Undefaulted: expected a default for every field, .* got none for eps"),
        (RMSNorm(4), r"check: expected a spec .*ResidualSpec, .*got RMSNorm\(\(4,\).* Pass the spec whose build"),
        (Path("nowhere.py"), "nowhere.py: no such file"),
    ],
    ids=["no default", "a module", "no file"],
)
def test_what_cannot_be_checked_is_refused(given: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        testing.check(given)


def test_the_package_is_imported_without_torch() -> None:
    code = "import sys; from addnorm import testing; assert testing.check; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
