"""Bytes that each rank sends to sum gradients are those that `addnorm plan --cluster` counts."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch

from addnorm import preset
from addnorm.data import Dataset, prepare
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.study.definition import RunSpec, Study, Training
from addnorm.supervision.cluster_estimate import Cluster, estimate_on_cluster
from addnorm.training import ranks
from addnorm.training.loop import Trainer
from synthetic_run import synthetic_run

pytestmark = pytest.mark.ranks

SIZES: dict[str, Any] = {"vocab": 258, "depth": 2, "heads": 2, "kv_heads": 1, "hidden": 24, "max_seq": 16}


def as_rank(dataset: Dataset, spec: RunSpec, place: ranks.RankPlace, results: Any) -> None:
    torch.set_num_threads(1)
    exchange, sent = ranks.RankGroup.exchange, []

    def counted(group: ranks.RankGroup, own: torch.Tensor, peer: int) -> torch.Tensor:
        sent.append(own.nbytes)
        return exchange(group, own, peer)

    ranks.RankGroup.exchange = counted  # type: ignore[method-assign]  # in this process, which was forked for it
    with ranks.met(place) as group:
        Trainer(spec, dataset, torch.device("cpu"), group).train_step()
    results.put(sum(sent))


@pytest.mark.parametrize(("devices", "width"), [(2, 16), (4, 32)])
def test_each_rank_sends_what_the_plan_says(tmp_path: Path, devices: int, width: int) -> None:
    training = Training(steps=6, batch=4, seq=16, shards=4, devices=devices)
    model = preset("llama", **SIZES, width=width)
    study = Study(name="t", seeds=(0,), variants={"v": model}, corpus=Synthetic(), training=training)
    cluster = Cluster(gpus=devices, flops_per_second=1e12, memory_bytes=10**10)
    (planned,) = estimate_on_cluster(study, cluster).variants
    dataset = prepare(Synthetic(), Bytes(), tmp_path / "data")
    spec = synthetic_run(dataset, model, training)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    places = [
        ranks.RankPlace(rank=rank, size=devices, local=rank, meeting=tmp_path / "meeting") for rank in range(devices)
    ]
    processes = [context.Process(target=as_rank, args=(dataset, spec, place, results)) for place in places]
    for process in processes:
        process.start()
    try:
        found = {results.get(timeout=120) for _ in processes}
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    loss = 4 * (devices.bit_length() - 1)  # is one more element of every sum
    assert found == {planned.tree_bytes + loss}
    assert planned.tree_bytes >= planned.ring_bytes == round(2 * (devices - 1) / devices * planned.parameters * 4)
