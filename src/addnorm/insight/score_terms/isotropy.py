r"""Isotropy of queries and keys, as the norm of their mean direction.

    | mean over samples and positions of  q / |q| |        0: isotropic;   1: all have one direction

N isotropic independent vectors have about N^{-1/2} by chance. Positions of one text are not independent, so N^{-1/2} is a
lower limit of what can be distinguished from 0.

Source: Su (2023) ("各向同性"): isotropic q and k make the second and third term small in the mean.
"""

from addnorm.insight.isotropy import mean_direction
from addnorm.insight.score_terms.parts import Parts


def isotropy(parts: Parts) -> list[dict[str, float]]:
    """Compute per query head the norm of the mean direction of `query` and `key` without bias, of both with bias (`…_biased`),
    and its expected size for as many isotropic vectors (`chance`)."""
    found = {
        "query": mean_direction(parts.query),
        "key": parts.repeated(mean_direction(parts.key)[None]).squeeze(0),
        "query_biased": mean_direction(parts.query + parts.query_bias[None, :, None]),
        "key_biased": parts.repeated(mean_direction(parts.key + parts.key_bias[None, :, None])[None]).squeeze(0),
    }
    chance = (parts.query.shape[0] * parts.seq) ** -0.5
    return [
        {**{name: float(values[head]) for name, values in found.items()}, "chance": chance}
        for head in range(parts.heads)
    ]
