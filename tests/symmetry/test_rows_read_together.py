"""Rows of tables that inputs only read together, as RoBERTa's padding and its position, and rows whose length no norm sees."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.symmetry.bases.representative import canonicalised, equal_up_to, freedom_of, random_moves
from addnorm.symmetry.families import EMBEDDING_POSITION, STREAM_SCALE

TOKENS = torch.tensor([[0, 1, 2, 3, 4, 5, 0], [7, 8, 0, 1, 4, 6, 5]])
WIDTH = 4


class Read(nn.Module):
    """Tokens and places, added, through a norm or none, and a read-out that sees means."""

    def __init__(self, places: int, eps: float | None = None) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(9, WIDTH), nn.Embedding(places, WIDTH)
        self.norm = nn.Identity() if eps is None else nn.LayerNorm(WIDTH, eps)
        self.hidden, self.read = nn.Linear(WIDTH, 7), nn.Linear(7, 9)

    def out(self, x: Tensor) -> Tensor:
        read: Tensor = self.read(torch.tanh(self.hidden(self.norm(x))))
        return read


class Padded(Read):
    """Positions, in turns of four, are counted from the first that is not padding; padding has a place of its own."""

    def forward(self, tokens: Tensor) -> Tensor:
        kept = (tokens != 0).long()
        return self.out(self.tokens(tokens) + self.places((1 + kept.cumsum(1) % 4) * kept))


class Parity(Read):
    """Even tokens have one place, odd ones another; a third table knows the position."""

    def __init__(self) -> None:
        super().__init__(2)
        self.positions = nn.Embedding(12, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(tokens % 2)[:, :, None].squeeze(2)
        return self.out(x + self.positions(torch.arange(tokens.shape[1])[None]))


class Both(Read):
    """Padding has a place of its own, and each parity another: two directions, of different tables."""

    def __init__(self) -> None:
        super().__init__(5)
        self.parity = nn.Embedding(2, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        kept = (tokens != 0).long()
        places = self.places((1 + kept.cumsum(1) % 4) * kept)
        return self.out(self.tokens(tokens) + places + self.parity(tokens % 2))


class Added(Read):
    """As many positions as there are, with any token in each."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1])))


class Alone(Read):
    """One place for all tokens."""

    def __init__(self, eps: float) -> None:
        super().__init__(1, eps)
        self.hidden = nn.Linear(WIDTH, 7, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.tokens(tokens) + self.places(torch.zeros_like(tokens)))

    def out(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        read: Tensor = self.read(torch.tanh(self.hidden(y + y.mean(1, keepdim=True))))
        return read


class Beside(Alone):
    """The sum goes past the norm as well."""

    def out(self, x: Tensor) -> Tensor:
        return torch.cat([super().out(x), F.gelu(x)], -1)


def sizes(model: nn.Module) -> dict[str, int]:
    found = addnorm.symmetries(model, TOKENS, points=1)
    assert not found.refuted
    assert not found.unexplained
    return {each.name: each.size for each in found.families}


@pytest.mark.parametrize(
    ("model", "tables"),
    [
        # Padding and the rest: two parts, each with a constant.
        (lambda: Padded(5), 2),
        # Tokens against positions, and of each parity against its place.
        (lambda: Parity(), 3),
        (lambda: Both(), 4),
        (lambda: Added(12), 1),
    ],
)
def test_each_part_trades_a_constant(model, tables: int) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    made = generic(model().eval(), torch.float64)
    # Beside the basis of what is read, and the constant that goes into the bias behind it.
    assert sum(sizes(made).values()) == tables * WIDTH + WIDTH * WIDTH + WIDTH
    freedom = freedom_of(made, TOKENS)
    assert freedom.sizes()[EMBEDDING_POSITION.name] == tables * WIDTH + WIDTH
    assert freedom.staying() == {}


@pytest.mark.parametrize("model", [lambda: Padded(5), lambda: Padded(5, 1e-5), lambda: Parity(), lambda: Both()])
def test_two_copies_have_one_representative(model) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    made = generic(model().eval(), torch.float64)
    freedom = freedom_of(made, TOKENS)
    moved = random_moves(made, TOKENS, seed=1, freedom=freedom)
    assert moved.certificate.passed
    assert equal_up_to(made, moved.model, TOKENS, freedom=freedom).equal
    canonical = canonicalised(made, TOKENS, freedom=freedom)
    assert (canonical.certificate.passed, canonical.sizes) == (True, freedom.sizes())


def test_a_table_that_is_read_elsewhere_trades_nothing() -> None:
    torch.manual_seed(0)
    made = Padded(5)
    made.read = nn.Linear(WIDTH, 9, bias=False)
    made.hidden = nn.Linear(WIDTH, WIDTH)
    made.read.weight = made.tokens.weight
    made = generic(made.eval(), torch.float64)
    # The constant of all places goes into the bias behind them; that of padding alone does not.
    assert sum(sizes(made).values()) == WIDTH
    freedom = freedom_of(made, TOKENS)
    assert freedom.sizes() == {EMBEDDING_POSITION.name: WIDTH}
    assert random_moves(made, TOKENS, freedom=freedom).certificate.passed


def test_few_inputs_claim_no_parts() -> None:
    """Of 700 tokens hardly one is read twice, so that each seems to stand at one position alone."""
    torch.manual_seed(0)
    made = Added(12)
    made.tokens = nn.Embedding(700, WIDTH)
    made = generic(made.eval(), torch.float64)
    assert freedom_of(made, TOKENS).sizes()[EMBEDDING_POSITION.name] == 2 * WIDTH


def test_of_many_tokens_the_parts_of_the_example_are_known() -> None:
    torch.manual_seed(0)
    made = Padded(5)
    made.tokens = nn.Embedding(5000, WIDTH)
    made = generic(made.eval(), torch.float64)
    freedom = freedom_of(made, TOKENS)
    moved = random_moves(made, TOKENS, seed=1, freedom=freedom)
    assert moved.sizes[EMBEDDING_POSITION.name] == 3 * WIDTH
    assert moved.certificate.passed
    assert equal_up_to(made, moved.model, TOKENS, freedom=freedom).equal


def test_no_norm_sees_the_length_of_a_row() -> None:
    torch.manual_seed(0)
    with_eps = addnorm.symmetries(generic(Alone(1e-5).eval(), torch.float64), TOKENS, points=1)
    assert STREAM_SCALE.name not in {each.name for each in with_eps.families}
    assert [each.family for each in with_eps.near].count(STREAM_SCALE.name) == 8
    assert len(with_eps.near) == 9  # with the scale of all
    assert sizes(generic(Alone(1e-13).eval(), torch.float64))[STREAM_SCALE.name] == 9
    assert STREAM_SCALE.name not in sizes(generic(Beside(1e-13).eval(), torch.float64))


def test_padding_alone_may_change_its_length() -> None:
    torch.manual_seed(0)
    assert sizes(generic(Padded(5, 1e-13).eval(), torch.float64))[STREAM_SCALE.name] == 2
