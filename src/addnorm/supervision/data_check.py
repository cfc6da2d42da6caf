"""Check of a study's data before anything is written: that there is text on both sides, and enough of it for a sequence.

A small corpus is prepared as a run would, in a folder that is thrown away. Of a larger one the documents are read and
counted, as long as that takes seconds.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from addnorm.data import Episodes
from addnorm.data.both_sides import Separated
from addnorm.data.corpora import CorpusSpec
from addnorm.data.preparation import try_preparation
from addnorm.errors import InputError
from addnorm.study.definition import Study, Training

PREPARED_BYTES = 2**21
"""Largest text that is prepared: a second, most of it for training a tokenizer."""
READ_BYTES = 2**25
"""Largest text that is read."""


def check_data(study: Study) -> list[str]:
    """Check what preparing the data and cutting its first sequence would refuse.

    Returns:
        Sentences about the data: text on both sides, fewer sequences than asked for, what was not looked at.

    Raises:
        InputError: there is no text, or too little; the message has the place and the file.
    """
    try:
        return _checked(study)
    except InputError as error:
        raise InputError(f"study '{study.name}': $.corpus: {error}") from error


def _checked(study: Study) -> list[str]:
    corpus, training = study.corpus, study.training
    if not corpus.is_local:
        return ["The corpus is not read before the study is run, because it is fetched."]
    size = _size(corpus)
    if size > READ_BYTES:
        return [f"The corpus is not read before the study is run: {size / 1e6:,.0f} MB or more."]
    if size > PREPARED_BYTES:
        return _counted(study)
    with TemporaryDirectory(prefix="addnorm-plan-") as folder:
        dataset = try_preparation(corpus, study.tokenizer, Path(folder))
        dataset.require(training.seq)
        windows = (len(dataset.held) - 1) // training.seq
        sentences = [*_task(dataset.episodes), *dataset.both_sides.sentences()]
    sentences += _last_evaluation(training, windows)
    if windows < training.eval_sequences:
        sentences.append(
            f"training.eval_sequences: the held-out text has {windows} sequences of {training.seq} tokens; all are used "
            f"where {training.eval_sequences} were asked for."
        )
    return sentences


def _size(corpus: CorpusSpec) -> int:
    """Bytes of a corpus, counted up to the largest that is read."""
    known = corpus.text_bytes()
    if known is not None:
        return known
    size = 0
    for document in corpus.documents():
        for text in document.chunks():
            size += len(text.encode("utf-8", "surrogatepass"))
            if size > READ_BYTES:
                return size
    return size


def _counted(study: Study) -> list[str]:
    separated, sides = Separated(study.corpus), {False: 0, True: 0}
    for document in separated.documents():
        for text in document.chunks():
            encoded = text.encode("utf-8", "surrogatepass")
            sides[document.held_out] += len(encoded)
            separated.read(document, encoded)
        sides[document.held_out] += 1  # its separator
    sentences = [*_task(study.corpus.episodes), *separated.on_both_sides().sentences()]
    for held_out, name in ((False, "training"), (True, "held-out")):
        if sides[held_out] < study.training.seq + 1:
            raise InputError(
                f"expected at least {study.training.seq} + 1 {name} tokens, one sequence and its last target, got "
                f"{sides[held_out]} bytes. Use more text, another held_out share, or a shorter sequence. {' '.join(sentences)}"
            )
    return [*sentences, *_last_evaluation(study.training, sides[True] // study.training.seq)]


def _last_evaluation(training: Training, windows: int) -> list[str]:
    """Cost of an evaluation that has a size of its own: a forward pass, a third of a training step per token."""
    if training.final_sequences is None or not training.steps:
        return []
    scored = windows if training.last_sequences is None else min(windows, training.last_sequences)
    share = scored * training.seq / (3 * training.steps * training.tokens_per_step)
    return [
        f"training.final_sequences: the evaluation after the last step scores at most {scored} of {windows} held-out sequences "
        f"of {training.seq} tokens, which takes {share:.1%} of the time of a run's steps."
    ]


def _task(episodes: Episodes | None) -> list[str]:
    return [] if episodes is None else [episodes.sentence()]
