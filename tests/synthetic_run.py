"""The specification of one run on the synthetic corpus, by bytes."""

from addnorm.data import Dataset
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.model.spec import ModelSpec
from addnorm.study.definition import RunSpec, Training


def synthetic_run(
    dataset: Dataset, model: ModelSpec, training: Training, *, variant: str = "v", seed: int = 0
) -> RunSpec:
    return RunSpec(
        study="t",
        variant=variant,
        seed=seed,
        model=model,
        training=training,
        corpus=Synthetic(),
        tokenizer=Bytes(),
        data_hash=dataset.hash,
    )
