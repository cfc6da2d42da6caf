"""Writes the table of laws in docs/guide/own-mechanism.md and its Chinese twin: `python docs/mechanism_laws.py`.

A law's sentence is the first line of its docstring; the Chinese sentences are here.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from addnorm.testing.contract import fields_are_documented, spec_round_trips
from addnorm.testing.laws import LAWS
from addnorm.testing.reductions import reduces_as_declared

GUIDE = Path(__file__).parent / "guide"
PAGES = {"en": GUIDE / "own-mechanism.md", "zh": GUIDE / "own-mechanism.zh-CN.md"}
MARKS = ("<!-- laws -->", "<!-- end of laws -->")
CHECKED = {
    "spec_round_trips": spec_round_trips,
    **LAWS,
    "reduces_as_declared": reduces_as_declared,
    "fields_are_documented": fields_are_documented,
}
"""The laws in the order in which a plug-in is checked; the last is about style."""
ZH: Mapping[str, str] = {
    "spec_round_trips": "规格（spec）转成普通值再转回来，与原来相等。",
    "runs": "模型能构建并算出 logits，每个方法都返回其所在类别所要求的东西。",
    "repeats_itself": "评估模式下，对同样的词元计算两次，结果逐位相同。",
    "leaves_inputs_alone": "机制不写入传给它的张量。",
    "keeps_shape_and_dtype": "logits 的形状为 [batch, seq, vocab]，dtype 与模型相同、位数不减，且有限；在 autocast 下也如此。",
    "runs_on_its_device": "所有张量都在模型所在的设备上：在不做计算的 meta 设备上前向一次，不会遇到 CPU 上的张量。",
    "has_finite_gradients": "每个参数在初始值处和别处都有有限的梯度。",
    "keeps_sequences_apart": "评估模式下，一个序列单独计算与和其他序列一起计算，logits 相同。",
    "is_causal": "评估模式下，改变一个词元不影响它之前的 logits，并影响从它起的某个 logit。",
    "ignores_padding": "序列之后的填充不影响真实位置的 logits。",
    "decodes_with_a_cache": "用缓存分段读取序列，得到与一次完整前向相同的 logits。",
    "survives_its_state_dict": "载入另一个模型的 state dict 之后，逐位算出相同的结果。",
    "starts_the_same": "初始值只取决于种子，与全局随机数生成器无关；换一个种子，值就不同。",
    "shares_one_weight": "若分数机制声明到某层为止共用一个权重，则这些层全部参与，且都用这个权重。",
    "is_viewed_and_traced": "各种分析都适用：每个位点都看得到隐藏流，系数对应到层，读取是各贡献之和。",
    "reduces_as_declared": "机制所声明的等同关系都成立（float64，其余参数随机）。",
    "fields_are_documented": "规格的每个字段后面都有一行说明。",
}
_HEADS = {"en": ("law", "what must hold"), "zh": ("规则", "必须成立的事")}


def table(language: str) -> str:
    """The table of all laws."""
    sentences = {name: (law.__doc__ or "").strip().splitlines()[0] for name, law in CHECKED.items()}
    if language == "zh":
        sentences = dict(ZH)
    rows = [_HEADS[language], ("---", "---"), *((f"`{name}`", sentences[name]) for name in CHECKED)]
    return "\n".join(f"| {left} | {right} |" for left, right in rows)


def page(language: str) -> str:
    """The page with the table as it is today."""
    text = PAGES[language].read_text(encoding="utf-8")
    first, last = MARKS
    return re.sub(f"{first}.*{last}", lambda _: f"{first}\n\n{table(language)}\n\n{last}", text, flags=re.S)


if __name__ == "__main__":
    for name, path in PAGES.items():
        path.write_text(page(name), encoding="utf-8")
