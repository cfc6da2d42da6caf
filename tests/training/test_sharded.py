"""Weights that are shared out: every kind of state that travels between layers gives the bits of one rank."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch

from addnorm import preset
from addnorm.catalogue import ROOMS
from addnorm.data import Dataset, prepare
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.study.definition import Training
from addnorm.training.loop import Trainer, content_hash
from addnorm.training.ranks import RankPlace, Ranks, met
from sampled import sampled
from synthetic_run import synthetic_run

pytestmark = pytest.mark.ranks

SIZES: dict[str, Any] = {"vocab": 258, "width": 16, "depth": 3, "heads": 2, "kv_heads": 1, "hidden": 24, "max_seq": 16}
CASES: list[dict[str, Any]] = [
    {"scores": "weighted", "tied": True},
    {"dropout": 0.1},
    {"scores": "sum", "attention": "streaming"},
    {"scores": "sum", "attention": "running"},
    {"scores": "accumulated_projections"},
    {"residual": "streams"},
    {"values": "first"},
    {"objective": "masked"},
    {"scores": "weighted", "training": {"recompute": True}},
    {"training": {"precision": "bfloat16"}},
    {"training": {"optimizer": ROOMS["optimizer"].make("lion"), "clip": None}},
    {"training": {"optimizer": ROOMS["optimizer"].make("schedule_free")}},
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepare(Synthetic(), Bytes(), tmp_path_factory.mktemp("data") / "data")


def trained(dataset: Dataset, case: dict[str, Any], ranks: Ranks | None = None) -> tuple[list[Any], int]:
    """Every measurement of four steps and an evaluation, and the hash of the weights; and the numbers that the optimizer
    updates here."""
    changes = {name: value for name, value in case.items() if name != "training"}
    settings = {"steps": 6, "batch": 4, "seq": 16, "shards": 4, "eval_sequences": 12, **case.get("training", {})}
    spec = synthetic_run(dataset, preset("llama", **SIZES, **changes), Training(**settings))
    trainer = Trainer(spec, dataset, torch.device("cpu"), ranks, sharded=ranks is not None)
    found: list[Any] = []
    for _ in range(4):
        step = trainer.train_step()
        found.append((step.loss.item(), step.grad_norm.item()))
    found.append(trainer.evaluate())  # three batches: in the last round one rank has none of its own
    held = sum(tensor.numel() for group in trainer.optimizer.param_groups for tensor in group["params"])
    with trainer.final_weights() as weights:
        return [*found, content_hash(weights) if ranks is None or ranks.rank == 0 else None], held


def as_rank(dataset: Dataset, case: dict[str, Any], place: RankPlace, results: Any) -> None:
    torch.set_num_threads(1)
    with met(place) as ranks:
        found = trained(dataset, case, ranks)
    if place.rank == 0:
        results.put(found)


@pytest.mark.parametrize(
    ("case", "size"),
    sampled(
        len(CASES),
        [
            *(pytest.param(case, 2, marks=[pytest.mark.soak] if at % 2 else []) for at, case in enumerate(CASES)),
            (CASES[0], 4),
        ],
    ),
    ids=str,
)
def test_ranks_compute_the_bits_of_one(dataset: Dataset, case: dict[str, Any], size: int, tmp_path: Path) -> None:
    import torch.distributed.fsdp

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        expected, whole = trained(dataset, case)
    finally:
        torch.set_num_threads(threads)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    places = [RankPlace(rank=rank, size=size, local=rank, meeting=tmp_path / "meeting") for rank in range(size)]
    processes = [context.Process(target=as_rank, args=(dataset, case, place, results)) for place in places]
    for process in processes:
        process.start()
    try:
        found, held = results.get(timeout=120)
        assert found == expected
        assert whole / size <= held < whole / size * 1.5  # vectors are on all ranks
    finally:
        for process in processes:
            process.join(10)
            process.kill()
