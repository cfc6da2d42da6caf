"""Documents that addnorm cites by author and year and that have no arXiv number or DOI.

`docs/sources.md` lists them with what was taken from each, and the papers and books that docstrings cite.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A cited document."""

    key: str
    """Author and year, as docstrings, studies and messages cite it."""
    key_zh: str
    """The same in Chinese text."""
    author: str
    title: str
    """As printed."""
    title_en: str
    """Our translation; empty for an English title."""
    address: str
    """URL; empty where none is known."""


REFERENCES = (
    Reference(
        key="Anonymous (n.d.)",
        key_zh="佚名（无日期）",
        author="",
        title="问题定义及其分析",
        title_en="The problem and its analysis (a note on redundant biases without a title: its first heading)",
        address="",
    ),
    Reference(
        key="Su (2020)",
        key_zh="苏剑林（2020）",
        author="苏剑林 (Su Jianlin)",
        title="RealFormer：把残差转移到Attention矩阵上面去",
        title_en="RealFormer: moving the residual to the attention matrix",
        address="https://kexue.fm/archives/8027",
    ),
    Reference(
        key="Su (2023)",
        key_zh="苏剑林（2023）",
        author="苏剑林 (Su Jianlin)",
        title="Bias项的神奇作用：RoPE + Bias = 更好的长度外推性",
        title_en="The magic of bias terms: RoPE + bias = better length extrapolation",
        address="https://kexue.fm/archives/9577",
    ),
    Reference(
        key="Kuang (2025)",
        key_zh="Kuang（2025）",
        author="kuangpenghao (GitHub account)",
        title="Version 4",
        title_en="",
        address="https://github.com/kuangpenghao/Probabilistic_Transformer_KPH",
    ),
    Reference(
        key="Zhang (2026)",
        key_zh="Zhang（2026）",
        author="Wayland Zhang",
        title="第 13 章:残差连接与 Dropout - 训练稳定的秘密",
        title_en="Chapter 13: residual connections and dropout, the secret of stable training",
        address="https://waylandz.com/llm-transformer-book/第13章-残差连接与Dropout-训练稳定的秘密",
    ),
)

_PRINTED_RESULTS = ("kuang-2025", "source-003")  # the second is the name up to version 0.1


def names_printed_results(argument: str | Path) -> bool:
    """Return true if an argument names the results that Kuang (2025) prints instead of a file or a folder."""
    return str(argument) in _PRINTED_RESULTS
