"""The record of a run's learned scalars, `scalars.safetensors`: the only reader, for pages and for `addnorm explain`."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open

from addnorm.store.files import Damaged

NAME = "scalars.safetensors"
_NORMS = re.compile(r"(^|\.)\w*norm\.")


@dataclass(frozen=True, kw_only=True)
class ScalarRecord:
    """Sums over a run's steps, one number per scalar and kind."""

    names: tuple[str, ...]
    """Such as `scores.log_a.3[1]`."""
    effective: tuple[tuple[int | None, float | None], ...]
    """Layer and coefficient in the model, as the mechanism gave them; None in files of earlier versions."""
    steps: int
    arrays: Mapping[str, np.ndarray]
    """By key of the file, such as `value`; also the factors `R.OWNER` of mechanisms."""

    @staticmethod
    def read(path: Path) -> "ScalarRecord":
        """Read the file of a run.

        Raises:
            Damaged: a partial file, as a full disk leaves it, or one of another version.
        """
        try:
            with safe_open(path, framework="np") as file:
                metadata = file.metadata()
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  safe_open is no mapping
            itemgetter(*_PER_SCALAR)(arrays)  # all of them are there
            names = json.loads(metadata["names"])
            effective = json.loads(metadata.get("effective", "[]")) or [(None, None)] * len(names)
            record = ScalarRecord(
                names=tuple(names),
                effective=tuple((layer, value) for layer, value in effective),
                steps=int(arrays["steps"]),
                arrays=arrays,
            )
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise Damaged(
                f"{path} is not a whole record of learned scalars. A run writes it with each checkpoint: train the run again."
            ) from error
        return record

    def columns(self, *, norms: bool = False) -> list[int]:
        """Places of the scalars, without the gains and shifts of norms unless they are asked for."""
        return [place for place, name in enumerate(self.names) if norms or not _NORMS.search(name)]

    @property
    def decay_only(self) -> Float[np.ndarray, " scalar"]:
        """Value that weight decay alone would have left."""
        return np.asarray(self.arrays["init"] * np.exp(self.arrays["log_kept"]))

    def snr(self, column: int) -> float | None:
        """Mean gradient over its standard error; None where it has none."""
        # The recorder keeps sums, not gradients: the variance is that of all steps together. It is noise about a mean
        # that moves in training, so the ratio comes out too small.
        mean, mean_square = (float(self.arrays[key][column]) for key in ("mean", "mean_square"))
        error = math.sqrt(max(mean_square - mean * mean, 0.0) / (self.steps - 1)) if self.steps > 1 else 0.0
        return abs(mean) / error if error > 0 else None

    def by_decay(self, column: int) -> float | None:
        """Share of a scalar's change that weight decay made; None if it did not change."""
        decay, gradient = (abs(float(self.arrays[key][column])) for key in ("decay", "gradient"))
        return decay / (decay + gradient) if decay + gradient > 0 else None


_PER_SCALAR = ("init", "value", "log_kept", "decay", "gradient", "mean", "mean_square")
