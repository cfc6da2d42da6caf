r"""The four terms of a score with rotary position and q/k biases, against the distance.

    (q_m + a)^T R (k_n + b) = q_m^T R k_n + a^T R k_n + q_m^T R b + a^T R b,        R = R_{n-m}

Su (2023) argues that the fourth term makes attention local, and that the second and third are small because q and k are
isotropic. Here each term is measured per layer, head and sample, their sum is compared with the scores that the model computes,
and the isotropy is measured as the norm of the mean direction of q and of k.

    parts          factors of one layer's scores            ours, hugging_face     their sources
    terms          terms by distance, check of the sum      measured               terms and isotropy as plain values
    inspect        a run's terms, in RUN/terms.json

Source: Su (2023), the expansion after "换成偏置".
"""
