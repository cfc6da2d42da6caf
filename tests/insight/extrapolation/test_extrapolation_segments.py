"""Which tokens are scored: the same ones at every length, for every model."""

import numpy as np
import pytest
import torch

import addnorm
from addnorm.data import prepare
from addnorm.data.corpora.text import Text
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.errors import InputError
from addnorm.insight.extrapolation.lengths import Lengths, parse_lengths
from addnorm.insight.extrapolation.measure import measure_length
from addnorm.insight.extrapolation.segments import held_out_segments, num_segments


def lengths(*multiples: int) -> Lengths:
    return Lengths(trained=8, multiples=multiples)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("windows")
    for index in range(12):
        words = " ".join(f"{index * 7 + i * i % 83}" for i in range(120))
        (folder / f"{index}.txt").write_text(words, encoding="utf-8")
    return prepare(Text(path=str(folder), held_out=0.3), Bytes(), folder / "data")


def test_lengths_and_their_buckets() -> None:
    found = lengths(1, 2, 4, 8)
    assert (found.tokens, found.longest, found.segment_tokens, found.ending) == ((8, 16, 32, 64), 64, 64, 4)
    assert found.edges(64) == (0, 4, 8, 16, 32, 64)
    assert found.edges(8) == (0, 4, 8)
    assert lengths(1, 2, 3).segment_tokens == 48
    assert lengths(1, 2, 3).edges(24) == (0, 4, 8, 16, 24)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "1x,2x,2x",
            "lengths: expected increasing multiples, got 1x,2x,2x. Give each once, the shortest first: --lengths 1x,2x.",
        ),
        ("4x,2x", "lengths: expected increasing multiples"),
        ("0x,1x", "got '0x'"),
        ("1,2", "got '1'"),
        ("1.5x", "got '1.5x'"),
        ("", "got ''"),
    ],
)
def test_bad_lengths(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace(".", r"\.")):
        Lengths(trained=8, multiples=parse_lengths(text))


@pytest.mark.parametrize("multiples", [(1, 2, 4), (1, 2, 3)])
@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_every_length_scores_the_same_targets_and_has_the_same_endings(dataset, objective, multiples) -> None:
    asked = lengths(*multiples)
    text = held_out_segments(dataset, objective, asked, windows=4)
    assert text.inputs.shape[1] == asked.segment_tokens
    assert all(text.inputs.shape[1] % length == 0 for length in asked.tokens)
    again = held_out_segments(dataset, objective, asked, windows=4)
    assert all(np.array_equal(getattr(text, name), getattr(again, name)) for name in ("inputs", "targets", "scored"))
    if objective == "causal":
        assert text.scored.all()
        assert np.array_equal(text.inputs[:, 1:], text.targets[:, :-1])
    else:
        assert 0.05 < text.scored.mean() < 0.3
        untouched = ~text.scored
        assert np.array_equal(text.inputs[untouched], text.targets[untouched])


class Reader(torch.nn.Module):
    """Gives token 1 the probability 1/2 where the window's position is even and 1/4 where it is odd, whatever it reads."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.vocab = vocab
        self.windows: list[list[int]] = []

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.windows += tokens.tolist()
        share = torch.where(torch.arange(tokens.shape[1]) % 2 == 0, 0.5, 0.25).double()
        rest = ((1 - share) / (self.vocab - 1))[:, None].expand(-1, self.vocab).clone()
        rest[:, 1] = share
        return rest.log().expand(len(tokens), -1, -1)


def test_sums_by_position_buckets_and_endings_by_hand() -> None:
    from addnorm.insight.extrapolation.segments import Segments

    asked = lengths(1, 2)
    targets = np.zeros((3, 16), dtype=np.int64)
    targets[1] = 1  # the second segment asks for token 1 throughout
    text = Segments(inputs=np.arange(48).reshape(3, 16) % 5, targets=targets, scored=np.ones((3, 16), dtype=bool))
    reader = Reader(vocab=5)
    measured = measure_length(reader, text, asked, 8, torch.device("cpu"))
    assert reader.windows == (np.arange(48).reshape(6, 8) % 5).tolist()
    half, quarter = -np.log(0.5), -np.log(0.25)
    others_even, others_odd = -np.log(0.5 / 4), -np.log(0.75 / 4)
    even, odd = 2 * half + 4 * others_even, 2 * quarter + 4 * others_odd
    np.testing.assert_allclose(measured.nats, [even, odd] * 4, rtol=1e-13)
    assert measured.hits.tolist() == [2, 2] * 4
    assert measured.count.tolist() == [6] * 8
    assert measured.ending[1:] == (4, 12)
    assert measured.ending[0] == pytest.approx(2 * (half + quarter) + 4 * (others_even + others_odd), rel=1e-13)
    found = measured.to_json(asked, 8)
    assert [(b["from"], b["to"], b["count"]) for b in found["buckets"]] == [(0, 4, 24), (4, 8, 24)]
    assert found["window"]["count"] == sum(b["count"] for b in found["buckets"]) == 48
    assert found["window"]["loss"] == pytest.approx((even + odd) * 4 / 48, rel=1e-13)
    assert found["window"]["accuracy"] == 16 / 48
    assert found["window"]["perplexity"] == pytest.approx(np.exp(found["window"]["loss"]), rel=1e-13)


def test_only_what_is_masked_counts() -> None:
    from addnorm.insight.extrapolation.segments import Segments

    scored = np.zeros((1, 16), dtype=bool)
    scored[0, [3, 14]] = True
    text = Segments(inputs=np.zeros((1, 16), dtype=np.int64), targets=np.ones((1, 16), dtype=np.int64), scored=scored)
    measured = measure_length(Reader(vocab=5), text, lengths(1, 2), 8, torch.device("cpu"))
    assert measured.count.tolist() == [0, 0, 0, 1, 0, 0, 1, 0]
    assert measured.ending == (pytest.approx(-np.log(0.5)), 1, 1)
    with pytest.raises(InputError, match="expected scored targets at the ends of windows, got none"):
        measure_length(
            Reader(vocab=5),
            Segments(inputs=text.inputs, targets=text.targets, scored=scored & (np.arange(16) < 8)),
            lengths(1, 2),
            8,
            torch.device("cpu"),
        ).to_json(lengths(1, 2), 8)


def test_batches_and_slices_decide_nothing(dataset, monkeypatch) -> None:
    from addnorm.insight.extrapolation import measure

    asked = lengths(1, 2, 4)
    text = held_out_segments(dataset, "causal", asked, windows=6)
    model = (
        addnorm.preset("base", vocab=257, width=16, depth=1, heads=2, kv_heads=1, hidden=16, init_std=0.2)
        .build()
        .eval()
    )
    model.double()
    one = measure_length(model, text, asked, 16, torch.device("cpu"))
    monkeypatch.setattr(measure, "BATCH_TOKENS", 16)
    monkeypatch.setattr(measure, "SLICE_ENTRIES", 700)
    two = measure_length(model, text, asked, 16, torch.device("cpu"))
    # float64: sums of some hundred numbers near 5, whose matrix products are cut otherwise.
    np.testing.assert_allclose(one.nats, two.nats, rtol=1e-12)
    assert one.hits.tolist() == two.hits.tolist()


def test_a_text_too_short_for_the_longest_window() -> None:
    assert num_segments(65, lengths(1, 8), 5) == 1
    assert num_segments(10_000, lengths(1, 8), 5) == 5
    assert num_segments(10_000, lengths(1, 2, 3), 5) == 3, "3 segments of 48 hold 6 windows of 24"
    with pytest.raises(
        InputError, match=r"8x of 8 tokens needs 64 \+ 1 tokens, the held-out text has 64. Take at most 7x, or"
    ):
        num_segments(64, lengths(1, 8), 5)
    with pytest.raises(InputError, match=r"needs 48 \+ 1 tokens \(the least common multiple of the lengths\)"):
        num_segments(40, lengths(1, 2, 3), 5)
    with pytest.raises(InputError, match="Take a corpus with more text"):
        num_segments(8, lengths(1, 8), 5)
    with pytest.raises(InputError, match="windows: expected a whole number of at least 1, got 0"):
        num_segments(10_000, lengths(1, 8), 0)
