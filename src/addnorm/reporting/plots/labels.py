"""Every text that a figure draws itself, in English and Chinese; names of variants and parameters are data."""

from addnorm.errors import UnknownName

LABELS: dict[str, tuple[str, str]] = {
    "accuracy": ("held-out accuracy, %", "留出准确率，%"),
    "accuracy_at": ("accuracy, %", "准确率，%"),
    "added": ("share of the stream that a branch adds", "分支加入隐藏流的比例"),
    "at_end": ("after training", "训练之后"),
    "at_start": ("before the first step", "第一步之前"),
    "costs": ("Cost of each variant", "各模型的开销"),
    "decay_only": ("weight decay alone", "仅权重衰减"),
    "difference": (
        "difference in loss, 10⁻³ nats per token (negative is better)",
        "损失之差，每个 token 10⁻³ nats（负值更好）",
    ),
    "distance": ("distance, tokens", "距离，token"),
    "entropy": ("entropy of attention, nats", "注意力熵，nats"),
    "entry": ("entry", "元素"),
    "entry_by_layer": ("entry, by layer", "各层的元素"),
    "exit_loss": ("loss when read out here, nats per token", "在此层读出的损失，nats/token"),
    "final": ("after training, one point per seed", "训练之后，每个种子一点"),
    "first_term": ("{name}, first term", "{name}，仅第一项"),
    "flops_per_token": ("FLOPs per token, 10⁶", "每 token FLOPs，10⁶"),
    "gradient": ("gradient norm of the layer", "该层的梯度范数"),
    "init": ("at the start", "初始值"),
    "layer": ("layer", "层"),
    "loss": ("held-out loss, nats per token (lower is better)", "留出损失，nats/token（越低越好）"),
    "loss_at": ("loss, nats per token", "损失，nats/token"),
    "loss_in_windows": ("loss in windows of {length}, nats per token", "长度 {length} 的窗口内的损失，nats/token"),
    "margin": ("counts as no difference", "视为无差别"),
    "mean": ("mean and its own interval", "均值及其自身的区间"),
    "one_hot": ("share of one-hot rows of attention", "独热注意力行的比例"),
    "own_share": ("share of own QKᵀ in the scores", "自身 QKᵀ 在分数中的比例"),
    "parameters": ("parameters, 10⁶", "参数量，10⁶"),
    "peak_bytes": ("peak memory, GB", "内存峰值，GB"),
    "place_in_window": ("position in the window", "窗口内的位置"),
    "provisional": ("provisional: runs have yet to end", "暂定：还有运行未结束"),
    "ranks": ("ranks left open", "仍可能的名次"),
    "reference": ("reference (dashed: cannot be told from another)", "参考（虚线：与另一参考无法区分）"),
    "rms": ("size of the stream (root mean square)", "隐藏流的大小（均方根）"),
    "scores_of_layer": ("scores, layer {layer}", "注意力分数，第 {layer} 层"),
    "seed_value": ("one run", "单次运行"),
    "similarity": ("similarity to the attention before", "与前一层注意力的相似度"),
    "step": ("step", "步数"),
    "terms_of_layer": ("{name}, layer {layer}", "{name}，第 {layer} 层"),
    "test_length": ("test length, tokens", "测试长度，token"),
    "tokens_per_s": ("tokens per second", "token/秒"),
    "train_loss": ("training loss, nats per token", "训练损失，nats/token"),
    "value": ("value", "取值"),
    "versus": ("compared with {name}", "对比 {name}"),
    "wall_s": ("wall time of a run, s", "单次运行历时，秒"),
}

LANGUAGES = ("en", "zh")


def label(name: str, language: str, /, **values: str) -> str:
    """A text in a language.

    Raises:
        UnknownName: no such language.
    """
    if language not in LANGUAGES:
        raise UnknownName("language", language, LANGUAGES)
    return LABELS[name][LANGUAGES.index(language)].format(**values)
