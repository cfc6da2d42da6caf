"""Tasks with a known optimum: answers by other solvers, optimum and chance by counting every line, nothing on both sides."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from addnorm.catalogue import room
from addnorm.data import Dataset, held_batches, prepare, train_batch
from addnorm.data.corpora._tasks import Draws, TaskSpec
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.errors import InputError
from addnorm.insight.extrapolation.lengths import Lengths
from addnorm.insight.extrapolation.segments import held_out_segments
from addnorm.model.spec import ModelSpec
from addnorm.study.definition import RunSpec, Training
from addnorm.study.loading import load_study
from addnorm.supervision.data_check import check_data
from addnorm.training.loop import Trainer
from addnorm.training.objective import Batch, loss_sums, make_batch

TASKS = ("brackets", "copying", "induction", "k_hop", "permutations", "recall")
SMALL: dict[str, tuple[dict[str, Any], ...]] = {
    # Small enough that every line is enumerated, or drawn many times.
    "brackets": ({"kinds": 1, "depth": 2, "length": 15}, {"kinds": 2, "depth": 1, "length": 7}),
    "copying": ({"length": 3, "blanks": 2, "letters": 3}, {"length": 5, "blanks": 2, "letters": 3, "place": "before"}),
    "induction": (
        {"context": 1, "letters": 2, "length": 7, "questions": 1},
        {"context": 2, "letters": 3, "length": 5, "questions": 1},
    ),
    "k_hop": ({"hops": 2, "letters": 4, "questions": 1}, {"hops": 3, "least_hops": 3, "letters": 4, "questions": 1}),
    "permutations": ({"items": 3, "length": 3}, {"items": 2, "length": 7}),
    "recall": (
        {"pairs": 2, "key_letters": 1, "letters": 3, "questions": 1},
        {"pairs": 1, "key_letters": 2, "letters": 4, "questions": 1},
    ),
}
CASES = [(kind, fields) for kind, several in SMALL.items() for fields in several]


def task(kind: str, **fields: Any) -> TaskSpec:
    made = room("corpus").make(kind, **fields)
    assert isinstance(made, TaskSpec)
    return made


def lines(corpus: TaskSpec) -> dict[bool, list[str]]:
    sides: dict[bool, list[str]] = {False: [], True: []}
    for document in corpus.documents():
        sides[document.held_out] += document.read().split("\n")
    return sides


# Solvers read a line as text, and nothing of the code that wrote it.


def solve_brackets(prompt: str) -> str:
    body, kind = prompt.split("=")[0], prompt[-1]
    return str(body.count(kind) - body.count({"(": ")", "[": "]", "{": "}"}[kind]))


def solve_copying(prompt: str) -> str:
    told, copied = prompt.split("=")
    return told.replace(".", "")[len(copied)]


def solve_induction(prompt: str) -> str:
    sequence, asked = prompt.split("|")[0], prompt.split("|")[-1].rstrip("=")
    after = {sequence[i : i + len(asked)]: sequence[i + len(asked)] for i in range(len(sequence) - len(asked))}
    return after[asked]  # the last one wins


def solve_k_hop(prompt: str) -> str:
    pairs = prompt.split("=")[0]
    hops, letter = prompt.split("=")[-2]
    for _ in range(int(hops)):
        letter = pairs[2 * pairs[::2].index(letter) + 1]
    return letter


def solve_permutations(prompt: str, items: int) -> str:
    elements = ["".join(element) for element in permutations("012345"[:items])]
    # The places are followed one by one through all factors.
    ends = ["012345"[i] for i in range(items)]
    for factor in prompt.rstrip("="):
        ends = [elements["abcdefghijklmnopqrstuvwx".index(factor)][int(place)] for place in ends]
    return "abcdefghijklmnopqrstuvwx"[elements.index("".join(ends))]


def solve_recall(prompt: str) -> str:
    pairs, asked = prompt.split("=")[0], prompt.split("=")[-1]
    size = len(asked) + 1
    (value,) = {pairs[i + size - 1] for i in range(0, len(pairs), size) if pairs[i : i + size - 1] == asked}
    return value


def solver(corpus: TaskSpec) -> Callable[[str], str]:
    if corpus.kind == "permutations":
        return lambda prompt: solve_permutations(prompt, vars(corpus)["items"])
    return {
        "brackets": solve_brackets,
        "copying": solve_copying,
        "induction": solve_induction,
        "k_hop": solve_k_hop,
        "recall": solve_recall,
    }[corpus.kind]


def every_line(kind: str, fields: dict[str, Any]) -> Iterable[tuple[str, float]]:
    """Every line of a small task with its chance, made without the task's code."""
    letters = "abcdefghij"[: fields.get("letters", 0)]
    if kind == "permutations":
        elements = "abcdef"[: math.factorial(fields["items"])]
        for factors in product(elements, repeat=fields["length"]):
            text = "".join(factors)
            yield f"{text}={solve_permutations(text, fields['items'])}", len(elements) ** -fields["length"]
    elif kind == "copying":
        size = fields["length"] + fields["blanks"]
        spots = [
            set(where)
            for where in product(range(size), repeat=fields["length"])
            if list(where) == sorted(set(where))
            and (fields.get("place") != "before" or where == tuple(range(len(where))))
        ]
        for where in spots:
            for word in product(letters, repeat=fields["length"]):
                copied, rest = "".join(word), list(word)
                told = "".join(rest.pop(0) if i in where else "." for i in range(size))
                yield f"{told}={copied}", 1 / (len(spots) * len(letters) ** fields["length"])
    elif kind == "induction":
        k, n = fields["context"], fields["length"]
        for word in product(letters, repeat=n):
            sequence = "".join(word)
            for i in range(n - k):
                prompt = f"{sequence}|{sequence[i : i + k]}="
                yield prompt + solve_induction(prompt), 1 / (len(letters) ** n * (n - k))
    elif kind == "k_hop":
        hops = range(fields.get("least_hops", 1), fields["hops"] + 1)
        maps = [
            dict(zip(letters, image, strict=True))
            for image in permutations(letters)
            if len(set(_orbit(dict(zip(letters, image, strict=True)), letters[0]))) == len(letters)
        ]
        for after, order, letter, count in product(maps, permutations(letters), letters, hops):
            prompt = "".join(each + after[each] for each in order) + f"={count}{letter}="
            yield (
                prompt + solve_k_hop(prompt),
                1 / (len(maps) * math.factorial(len(letters)) * len(letters) * len(hops)),
            )
    elif kind == "recall":
        keys = ["".join(key) for key in product(letters, repeat=fields["key_letters"])]
        chosen = list(permutations(keys, fields["pairs"]))
        for told, values in product(chosen, product("0123456789", repeat=fields["pairs"])):
            text = "".join(key + value for key, value in zip(told, values, strict=True))
            for key, value in zip(told, values, strict=True):
                yield f"{text}={key}{value}", 1 / (len(chosen) * 10 ** fields["pairs"] * fields["pairs"])
    else:
        yield from _bracket_lines(fields["kinds"], fields["depth"], fields["length"])


def _orbit(after: dict[str, str], letter: str) -> Iterable[str]:
    for _ in after:
        yield letter
        letter = after[letter]


def _bracket_lines(kinds: int, depth: int, length: int) -> Iterable[tuple[str, float]]:
    pairs = ["()", "[]", "{}"][:kinds]

    def extended(text: str, chance: float) -> Iterable[tuple[str, float]]:
        if len(text) == length:
            yield text + "".join(f"={pair[0]}{text.count(pair[0]) - text.count(pair[1])}" for pair in pairs), chance
            return
        opened = {pair: text.count(pair[0]) - text.count(pair[1]) for pair in pairs}
        allowed = [pair[0] for pair in pairs if opened[pair] < depth] + [pair[1] for pair in pairs if opened[pair] > 0]
        for bracket in allowed:
            yield from extended(text + bracket, chance / len(allowed))

    return extended("", 1.0)


@pytest.mark.parametrize("kind", TASKS)
class TestEveryTask:
    def test_a_solver_that_reads_the_line_finds_every_answer(self, kind: str) -> None:
        corpus = task(kind, num_lines=300)
        layout, solve = corpus.episodes, solver(corpus)
        for line in lines(corpus)[False]:
            assert line.isascii()
            assert len(line) + 1 == layout.tokens
            assert [line[at] for at in layout.answers] == [solve(line[:at]) for at in layout.answers]

    def test_no_line_is_on_both_sides_and_the_share_is_held_out(self, kind: str) -> None:
        sides = lines(task(kind, num_lines=4000))
        assert not set(sides[False]) & set(sides[True])
        assert sum(map(len, sides.values())) == 4000
        # Binomial(4000, 0.05): standard deviation 13.8.
        assert abs(len(sides[True]) - 200) < 6 * 13.8

    def test_the_seed_alone_decides_the_lines(self, kind: str) -> None:
        first, again, other = (lines(task(kind, num_lines=50, seed=seed)) for seed in (0, 0, 1))
        assert first == again
        assert not set(first[False]) & set(other[False])

    def test_noise_changes_answers_alone_and_as_often_as_said(self, kind: str) -> None:
        clean, noisy = (task(kind, num_lines=2000, label_noise=noise) for noise in (0.0, 0.4))
        layout, wrong, answers = clean.episodes, 0, 0
        for line, printed in zip(lines(clean)[False], lines(noisy)[False], strict=True):
            changed = [at for at, letter in enumerate(line) if letter != printed[at]]
            assert set(changed) <= set(layout.answers)
            wrong, answers = wrong + len(changed), answers + len(layout.answers)
        expected = 1 - noisy.episodes.optimum_accuracy
        assert abs(wrong / answers - expected) < 6 * math.sqrt(expected * (1 - expected) / answers)


@pytest.mark.parametrize(("kind", "fields"), CASES)
class TestCounted:
    """Against every line of a small task."""

    def test_prompts_optimum_and_chance(self, kind: str, fields: dict[str, Any]) -> None:
        noise = 0.25
        layout = task(kind, **fields, label_noise=noise).episodes
        clean = task(kind, **fields)
        every = Counter[str]()
        for line, chance in every_line(kind, fields):
            every[line] += chance  # type: ignore[assignment]
        assert sum(every.values()) == pytest.approx(1.0)
        assert len({line[: layout.answers[0]] for line in every}) >= clean._num_prompts()
        # A count of the wrong parity is never right, but noise may print it.
        never_right = set("0123456789"[: fields["depth"] + 1]) if kind == "brackets" else set()
        answers = sorted({line[at] for line in every for at in layout.answers} | never_right)
        for at in layout.answers:
            # The printed answer given what is before it, with the noise of this answer; earlier ones are told as they are.
            seen: dict[str, Counter[str]] = defaultdict(Counter)
            for line, chance in every.items():
                for letter in answers:
                    printed = (1 - noise) * (letter == line[at]) + noise / len(answers)
                    seen[line[:at]][letter] += chance * printed  # type: ignore[assignment]
            entropy = sum(-p * math.log(p / given.total()) for given in seen.values() for p in given.values() if p)
            assert layout.optimum_loss == pytest.approx(entropy, abs=1e-9)
            assert layout.optimum_accuracy == pytest.approx(sum(max(given.values()) for given in seen.values()))
            alone = Counter[str]()
            for given in seen.values():
                alone.update(given)
            assert layout.chance_loss == pytest.approx(sum(-p * math.log(p) for p in alone.values() if p), abs=1e-9)
            assert layout.chance_accuracy == pytest.approx(max(alone.values()))
        assert clean.episodes.optimum_loss == 0.0
        assert clean.episodes.optimum_accuracy == 1.0

    def test_a_line_that_is_drawn_again_is_on_its_side_again(self, kind: str, fields: dict[str, Any]) -> None:
        sides = lines(task(kind, **fields, num_lines=3000, held_out=0.3))
        assert not set(sides[False]) & set(sides[True])
        assert sides[True]

    def test_the_lines_are_drawn_as_often_as_counted(self, kind: str, fields: dict[str, Any]) -> None:
        corpus, count = task(kind, **fields), 20_000
        every = Counter[str]()
        for line, chance in every_line(kind, fields):
            every[line] += chance  # type: ignore[assignment]
        drawn = Counter(corpus._line(Draws(number)) for number in range(count))
        assert set(drawn) <= set(every)
        # Chi-squared over cells of at least five expected lines, rare lines together: six standard deviations.
        often = [line for line, chance in every.items() if chance * count >= 5]
        cells = [(drawn[line], every[line] * count) for line in often]
        rest = 1 - sum(every[line] for line in often)
        cells += [(count - sum(drawn[line] for line in often), rest * count)] if rest * count >= 5 else []
        squared = sum((seen - expected) ** 2 / expected for seen, expected in cells)
        degrees = len(cells) - 1
        assert squared < degrees + 6 * math.sqrt(2 * degrees)


def test_every_corpus_with_episodes_is_tested_here() -> None:
    corpora = room("corpus")
    assert (
        {kind for kind in corpora.kinds() if issubclass(corpora.spec_class(kind), TaskSpec)} == set(TASKS) == set(SMALL)
    )


@pytest.fixture(scope="module")
def recalled(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepare(task("recall", num_lines=600), Bytes(), tmp_path_factory.mktemp("recall") / "data")


class TestData:
    def test_windows_begin_with_episodes_and_answers_alone_are_scored(self, recalled: Dataset) -> None:
        assert recalled.episodes == task("recall").episodes
        period, decode = 41, Bytes().fit([]).decode
        known = {side: set(text) for side, text in lines(task("recall", num_lines=600)).items()}
        held = next(iter(held_batches(recalled, 4, 2 * period)))
        for side, windows in ((False, train_batch(recalled, 0, 3, 16, 2 * period)), (True, held)):
            batch = make_batch("causal", windows, recalled, seed=0, step=0, device=torch.device("cpu"))
            assert batch.mask is not None
            assert batch.count == len(windows) * 8
            for row, targets, mask in zip(windows, batch.targets, batch.mask, strict=True):
                first, second = decode(row[: period - 1]), decode(row[period : 2 * period - 1])
                assert {first, second} <= known[side]
                asked = [line[at] for line in (first, second) for at in (27, 31, 35, 39)]
                assert decode(targets[mask].numpy()) == "".join(asked)

    def test_every_training_episode_can_be_drawn(self, recalled: Dataset) -> None:
        starts = {
            bytes(row[:27].astype(np.uint8)) for step in range(40) for row in train_batch(recalled, 1, step, 64, 41)
        }
        episodes = {line[:27].encode() for line in lines(task("recall", num_lines=600))[False]}
        assert len(episodes - starts) <= 12  # of 570; each is missed with probability 1.1 %

    def test_the_loss_of_the_answers_reaches_the_optimum(self, tmp_path: Path) -> None:
        corpus = task("induction", num_lines=4000, label_noise=0.3)
        data = prepare(corpus, Bytes(), tmp_path / "data")
        (windows,) = held_batches(data, 10_000, data.episodes.tokens if data.episodes else 0)
        batch = make_batch("causal", windows, data, seed=0, step=0, device=torch.device("cpu"))
        best = _best_logits(batch, solver(corpus), corpus, data)
        sums = loss_sums(best, batch)
        layout = corpus.episodes
        # Binomial: the share of right answers has standard deviation below 0.5 / sqrt(count).
        bound = 6 * 0.5 / math.sqrt(sums.count)
        assert abs(int(sums.hits) / sums.count - layout.optimum_accuracy) < bound
        right, wrong = layout.optimum_accuracy, 0.3 / 6
        assert abs(float(sums.loss) - layout.optimum_loss) < bound * math.log(right / wrong)

    def test_data_of_text_are_as_before(self, tmp_path: Path) -> None:
        data = prepare(room("corpus").make("synthetic", num_documents=4), Bytes(), tmp_path / "data")
        assert data.episodes is None
        assert "episodes" not in (tmp_path / "data" / "dataset.json").read_text()
        assert len(set(train_batch(data, 0, 0, 64, 32)[:, 0])) > 10  # windows begin anywhere


def _best_logits(batch: Batch, solve: Callable[[str], str], corpus: TaskSpec, data: Dataset) -> torch.Tensor:
    """The logarithms of the chances of each answer, in place of a model."""
    layout, decode = corpus.episodes, Bytes().fit([]).decode
    logits = torch.full((*batch.inputs.shape, 256), -50.0, dtype=torch.float64)
    letters = torch.tensor([ord(letter) for letter in corpus._answers()])
    wrong = vars(corpus)["label_noise"] / len(letters)
    for row, inputs in enumerate(batch.inputs):
        text = decode(inputs.numpy())
        for at in layout.answers:
            logits[row, at - 1, letters] = math.log(wrong)
            # The question with its own letters; earlier printed answers do not matter to it.
            logits[row, at - 1, ord(solve(text[:at]))] = math.log(layout.optimum_accuracy)
    return logits


class TestUse:
    def test_an_evaluation_records_the_excess_over_the_optimum(self, tmp_path: Path) -> None:
        corpus = task("recall", num_lines=600, label_noise=0.2)
        data = prepare(corpus, Bytes(), tmp_path / "data")
        model = ModelSpec(vocab=256, width=8, depth=1, heads=2, kv_heads=2, hidden=8, max_seq=64)
        spec = RunSpec(
            study="s",
            variant="plain",
            seed=0,
            model=model,
            training=Training(steps=2, batch=2, seq=41, eval_sequences=4),
            corpus=corpus,
            tokenizer=Bytes(),
            data_hash=data.hash,
        )
        measured = Trainer(spec, data, torch.device("cpu")).evaluate()
        assert measured["excess"] == measured["loss"] - corpus.episodes.optimum_loss
        assert measured["accuracy"] * 16 == pytest.approx(round(measured["accuracy"] * 16))  # of 4 x 4 answers

    def test_longer_windows_score_the_same_answers(self, recalled: Dataset) -> None:
        segments = held_out_segments(recalled, "causal", Lengths(trained=41, multiples=(1, 2)), 4)
        assert segments.scored.sum() == 4 * segments.scored.size // 41
        windows = next(iter(held_batches(recalled, 100, 41)))
        short = {bytes(row[1:][recalled.episodes.scored(41)].astype(np.uint8)) for row in windows}  # type: ignore[union-attr]
        cut = segments.targets[segments.scored].reshape(-1, 4)
        assert {bytes(row.astype(np.uint8)) for row in cut} <= short

    def test_plan_says_optimum_and_chance(self) -> None:
        study = load_study("depth-tasks", profile="recall", settings=["corpus.num_lines=600"])
        assert check_data(study)[0] == (
            "The loss is that of the answers alone: 6 of the 43 tokens of an episode. Optimum: 0.0000 nats, accuracy 100.0%. "
            "Without the prompt: 2.3026 nats, 10.0%."
        )

    def test_what_is_scored_is_a_part_of_the_data_hash(
        self, recalled: Dataset, tmp_path: Path, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(type(task("recall")), "_places", lambda self: (27,))
        assert prepare(task("recall", num_lines=600), Bytes(), tmp_path / "data").hash != recalled.hash


STUDY = """
name: small
references: []
seeds: [0]
model: {{preset: base, width: 8, depth: 1, heads: 2, kv_heads: 2, hidden: 8, max_seq: 64, objective: {objective}}}
variants: {{plain: {{}}}}
corpus: {corpus}
tokenizer: {tokenizer}
training: {{steps: 2, batch: 2, seq: {seq}, eval_sequences: 4}}
"""


class TestRefusals:
    @pytest.mark.parametrize(
        ("kind", "fields", "message"),
        [
            ("k_hop", {"hops": 10}, r"k_hop\.hops: expected from 1 to 9, and fewer than letters, got 10"),
            ("k_hop", {"hops": 8}, r"k_hop\.hops: expected from 1 to 9, and fewer than letters, got 8"),
            ("k_hop", {"least_hops": 3}, r"k_hop\.least_hops: expected from 1 to hops, 2, got 3"),
            ("k_hop", {"questions": 9}, r"k_hop\.questions: expected from 1 to letters, 8, got 9"),
            ("k_hop", {"letters": 27}, r"k_hop\.letters: expected a whole number from 3 to 26, got 27"),
            ("permutations", {"items": 5}, r"permutations\.items: expected from 2 to 4, so that .*, got 5"),
            (
                "permutations",
                {"items": 2, "length": 6},
                "at least 100 different prompts, .* got 64. Make the task larger",
            ),
            ("induction", {"context": 24}, r"induction\.context: expected from 1 to below length, 24, got 24"),
            ("recall", {"pairs": 17}, r"recall\.pairs: expected from 1 to 16, the number of different keys, got 17"),
            ("recall", {"questions": 0}, r"recall\.questions: expected from 1 to pairs, 8, got 0"),
            ("brackets", {"depth": 10}, r"brackets\.depth: expected a whole number from 1 to 9, got 10"),
            ("brackets", {"kinds": 4}, r"brackets\.kinds: expected a whole number from 1 to 3, got 4"),
            ("copying", {"place": "within"}, r"copying\.place: expected one of 'among', 'before', got 'within'"),
            ("copying", {"length": 0}, r"copying\.length: expected a whole number from 1 to 1000, got 0"),
            (
                "copying",
                {"label_noise": 1.0},
                r"copying\.label_noise: expected a probability of at least 0 and below 1",
            ),
            ("recall", {"num_lines": 1}, r"recall\.num_lines: expected a whole number of at least 2"),
            ("recall", {"held_out": 0.0}, r"recall\.held_out: expected a share of the text between 0 and 1"),
        ],
    )
    def test_a_dial_out_of_range_names_field_and_range(self, kind: str, fields: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message) as refused:
            task(kind, **fields)
        assert "\n" not in str(refused.value)

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"seq": 40}, "training.seq: expected a multiple of 41, .* got 40. .* Set it to 41"),
            (
                {"tokenizer": "{kind: bpe, vocab: 300}"},
                "tokenizer: expected bytes, because .* got bpe. Set tokenizer: bytes",
            ),
            ({"objective": "masked"}, r"variants\.plain\.objective: expected causal, .*, got masked"),
        ],
    )
    def test_a_study_that_would_not_score_answers_is_refused(
        self, changed: dict[str, Any], message: str, tmp_path: Path
    ) -> None:
        file = tmp_path / "small.yaml"
        settings = {"seq": 41, "tokenizer": "bytes", "objective": "causal", "corpus": "{kind: recall}"}
        file.write_text(STUDY.format(**settings))
        load_study(file)
        file.write_text(STUDY.format(**{**settings, **changed}))
        with pytest.raises(InputError, match=message):
            load_study(file)

    def test_a_window_within_an_episode_is_refused(self, recalled: Dataset) -> None:
        with pytest.raises(InputError, match="expected a multiple of 41"):
            train_batch(recalled, 0, 0, 2, 40)
        with pytest.raises(InputError, match="expected a multiple of 41"):
            held_batches(recalled, 2, 50)
