r"""The four terms of a score with rotary position and q/k biases, against the distance.

    (q_m + a)^T R (k_n + b) = q_m^T R k_n + a^T R k_n + q_m^T R b + a^T R b,        R = R_{n-m}

Su (2023) argues that the fourth term makes attention local, and that the second and third stay small because q and k point
every way. Here each is measured per layer, head and sample, their sum is held against the scores that the model computes,
and so is the argument: how far the mean direction of q and of k is from none.

    parts          what one layer's scores are made of      ours, hugging_face     where they are taken from
    terms          by distance, and the check of the sum    isotropy               mean directions
    measured       a model's terms as plain values          inspect                a run's, kept as RUN/terms.json

Source: Su (2023), the expansion after "换成偏置".
"""
