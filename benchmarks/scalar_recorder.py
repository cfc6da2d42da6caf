"""Time that recording learned scalars takes, as a share of a training step."""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import addnorm
from addnorm.catalogue import ROOMS
from addnorm.data import prepare
from addnorm.data.corpora.stdlib import Stdlib
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.study.definition import RunSpec, Training
from addnorm.training.loop import Trainer

SIZES = {"vocab": 256, "width": 64, "depth": 8, "heads": 4, "kv_heads": 2, "hidden": 128, "max_seq": 128}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    torch.set_num_threads(1)
    corpus = Stdlib(max_bytes=1_000_000)
    training = Training(
        steps=options.steps,
        batch=4,
        seq=128,
        optimizer=ROOMS["optimizer"].make("adamw", learning_rate=6e-3, weight_decay=0.1),
    )
    print("| variant | tracked numbers | recorder, ms per step | step, ms | share |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        dataset = prepare(corpus, Bytes(), Path(folder) / "data")
        for name in ("base", "v4m5", "v4m6"):
            spec = RunSpec(
                study="benchmark",
                variant=name,
                seed=0,
                model=addnorm.preset(name, **SIZES),
                training=training,
                corpus=corpus,
                tokenizer=Bytes(),
                data_hash=dataset.hash,
            )
            trainer = Trainer(spec, dataset, torch.device("cpu"))
            spent = [0.0]

            def timed(call: Callable[[], None], spent: list[float] = spent) -> Callable[[], None]:
                def inner() -> None:
                    start = time.perf_counter()
                    call()
                    spent[0] += time.perf_counter() - start

                return inner

            trainer.scalars.before_step = timed(trainer.scalars.before_step)  # type: ignore[method-assign]
            trainer.scalars.after_step = timed(trainer.scalars.after_step)  # type: ignore[method-assign]
            inside, whole = [], []
            for _ in range(options.steps):
                spent[0], start = 0.0, time.perf_counter()
                trainer.train_step()
                whole.append(time.perf_counter() - start)
                inside.append(spent[0])
            recorder, step = statistics.mean(inside), statistics.mean(whole)
            count = len(trainer.scalars.names())
            print(f"| {name} | {count} | {recorder * 1e3:.3f} | {step * 1e3:.1f} | {recorder / step:.2%} |")


if __name__ == "__main__":
    main()
