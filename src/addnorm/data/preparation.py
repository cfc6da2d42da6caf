"""Preparation of a data set: once, and atomically.

Invariant: after concurrent starts, or a kill at any moment, the folder contains either nothing or a complete data set. The
difficulty: tokens are written for minutes, and a reader cannot distinguish a partial file from a short one. The method: all
files are written into a hidden folder beside the final one, flushed to disk, and renamed into place, which is atomic. Writers
exclude each other by a lock that the kernel releases when its holder dies, so a hidden folder that the holder of the lock
finds belongs to a dead writer. It is removed, or, if it has a journal of the same corpus, continued.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

from addnorm.catalogue import Spec
from addnorm.data.both_sides import BothSides, Separated
from addnorm.data.corpora import CorpusSpec
from addnorm.data.dataset import FILES, Dataset
from addnorm.data.token_files import JOURNAL, Tell, TokenFiles, file_digest, id_type, journal_of, pieces, silent
from addnorm.data.tokenizers import Tokenizer, TokenizerSpec
from addnorm.errors import InputError
from addnorm.store.files import disk_error, make_folder, sync

CACHE = "ADDNORM_CACHE"
"""Environment variable with the folder that holds tokens for all studies; every host of a study must see it."""
_SEPARATION = "documents on one side"
"""Part of the key of kept tokens, so that tokens of versions which trained on copies of held-out documents are not used."""
_FITTED_BYTES = 2**26
"""Text on which a tokenizer is trained, at most: memory grows with the number of distinct words in it."""
_FITTED_PIECE = 2**16
"""Characters of a piece of that text in a larger corpus: the library holds hundreds of pieces at a time."""


def prepare(
    corpus: CorpusSpec, tokenizer: TokenizerSpec, folder: Path, tell: Tell = silent, *, planned: str | None = None
) -> Dataset:
    """Open the token files of a corpus in `folder`, and make them first if they are missing.

    A complete data set with the same specs is opened without reading the corpus, so a study continues with the data it
    started with. A damaged one is made again. With `ADDNORM_CACHE`, the tokens of files and of the hub are written to that
    folder once for all studies, and `folder` refers to them; an interrupted preparation of these goes on where it stopped.

    Args:
        corpus: the spec of the corpus.
        tokenizer: the spec of the tokenizer.
        folder: the data set's folder.
        tell: called with the progress every two seconds.
        planned: hash of the data that runs were planned on; a damaged data set is not replaced by another.

    Raises:
        InputError: the corpus cannot be read, is empty or has no text on one side, the folder contains other files, or the
            text is not that of the damaged data set.
        DiskFull, JobError: the folder cannot be written; an existing data set is intact.
    """
    existing = prepared(corpus, tokenizer, folder)
    if existing is not None:
        return existing
    fingerprint = corpus.fingerprint()
    key = None if fingerprint is None else _key(corpus, tokenizer, fingerprint)
    make = partial(_make, corpus, tokenizer, key=key, tell=tell)
    cache = os.environ.get(CACHE)
    if cache and key is not None:
        # First the entry that studies share, under its own lock, then the study's folder, which only refers to it: a
        # kill between the two leaves a complete entry.
        entry = _prepared(corpus, tokenizer, Path(cache) / "tokens" / key, key, make, _is_intact)
        make, key = partial(_refer, entry), None
    return _prepared(corpus, tokenizer, folder, key, make, lambda dataset: True, planned)


def prepared(corpus: CorpusSpec, tokenizer: TokenizerSpec, folder: Path) -> Dataset | None:
    """The data set in a folder, if it is complete and was made with the same specs; else None. The corpus is not read."""
    existing = _open(folder)
    return existing if existing is not None and _has_specs(existing, corpus, tokenizer) else None


def try_preparation(corpus: CorpusSpec, tokenizer: TokenizerSpec, folder: Path) -> Dataset:
    """Make the data set in an empty folder that is thrown away, as a check of the specs; nothing is kept in the cache.

    Raises:
        InputError: as `prepare`.
    """
    _make(corpus, tokenizer, folder, None, silent)
    return Dataset.load(folder)


def _key(corpus: CorpusSpec, tokenizer: TokenizerSpec, fingerprint: str) -> str:
    content = json.dumps([_fields(corpus), _fields(tokenizer), fingerprint, _SEPARATION], sort_keys=True)
    return hashlib.sha256(content.encode("ascii")).hexdigest()[:32]


def _prepared(
    corpus: CorpusSpec,
    tokenizer: TokenizerSpec,
    folder: Path,
    key: str | None,
    make: Callable[[Path], str],
    is_intact: Callable[[Dataset], bool],
    planned: str | None = None,
) -> Dataset:
    """The data set of a folder, which `make` makes if there is none, or none that is intact."""
    make_folder(folder.parent)
    try:
        # Opened again under the lock: another process may have made the data set while this one waited.
        with _locked(folder):
            existing = _open(folder)
            if existing is not None and not is_intact(existing):
                existing = None
            if existing is not None and _has_specs(existing, corpus, tokenizer):
                return existing
            _require_own_folder(folder)
            _build(corpus, folder, existing, key, make, planned)
    except OSError as error:  # from the files written here; a corpus that cannot be read raises InputError
        raise disk_error(error, folder) from error
    return Dataset.load(folder)


def _build(
    corpus: CorpusSpec,
    folder: Path,
    existing: Dataset | None,
    key: str | None,
    make: Callable[[Path], str],
    planned: str | None,
) -> None:
    building = folder.parent / f".{folder.name}.building"
    if not journal_of(building, key):
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir()
    try:
        new_hash = make(building)
        if existing is None:
            # A small file that is missing makes the whole data set unreadable, while the tokens beside it are whole and cannot
            # be made again once the text has changed: what can be mended is left as it is.
            if planned is not None and planned != new_hash and (folder / "train.tokens").exists():
                lost = [name for name in FILES if not (folder / name).exists()]
                raise InputError(
                    f"{folder}: expected the data that the runs were planned on, got a damaged data set and a corpus whose "
                    "text has changed since. Nothing was replaced. Bring back the old text, or "
                    f"{', '.join(lost) or 'a whole copy of the folder'}, or choose another folder for a new study."
                )
            _move(building, folder)
        elif existing.hash != new_hash:
            raise InputError(
                f"{folder}: expected the data set of corpus '{corpus.kind}' with hash {new_hash[:12]}, got that of "
                f"'{existing.corpus['kind']}' with {existing.hash[:12]}. Choose another folder, or delete that one."
            )
    except InputError:
        shutil.rmtree(building, ignore_errors=True)
        raise
    finally:
        if not journal_of(building, key):  # with a journal, the next preparation goes on
            shutil.rmtree(building, ignore_errors=True)


def _open(folder: Path) -> Dataset | None:
    try:
        dataset = Dataset.load(folder)
        dataset.tokenizer()  # every worker reads it for the bytes of its ids
    except InputError:
        return None  # missing or damaged: made again in both cases
    return dataset


def _has_specs(dataset: Dataset, corpus: CorpusSpec, tokenizer: TokenizerSpec) -> bool:
    return dataset.corpus == _fields(corpus) and dataset.tokenizer_spec == _fields(tokenizer)


def _fields(spec: Spec) -> dict[str, Any]:
    # Through JSON, which turns tuples into lists, so that the comparison is with the stored form.
    fields: dict[str, Any] = json.loads(json.dumps({"kind": spec.kind, **asdict(spec)}))
    return fields


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder.parent / f".{folder.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _require_own_folder(folder: Path) -> None:
    others = sorted(path.name for path in folder.iterdir() if path.name not in FILES) if folder.is_dir() else []
    if others or (folder.exists() and not folder.is_dir()):
        raise InputError(
            f"{folder}: expected a folder for the data set alone, got {', '.join(others[:3]) or 'a file'}. "
            "Choose another folder."
        )


def _move(building: Path, folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)  # empty or a damaged data set, by the check above
    os.rename(building, folder)
    sync(folder.parent)


def _make(corpus: CorpusSpec, spec: TokenizerSpec, folder: Path, key: str | None, tell: Tell) -> str:
    """Write the four files. Returns the data set's hash."""
    separated = Separated(corpus)
    tokenizer = _tokenizer(corpus, separated, spec, folder, key)
    files = TokenFiles(folder, tokenizer, key)
    digest = hashlib.sha256()
    files.write(corpus, separated, digest, tell)
    digest.update(tokenizer.hash.encode("ascii"))
    if (episodes := corpus.episodes) is not None:  # what is scored is a part of what is learned
        episodes.require_whole(tokenizer=spec.kind, tokens=(files.sides[False].tokens, files.sides[True].tokens))
        digest.update(json.dumps(episodes.to_json()).encode("ascii"))
    train, held, both = files.sides[False], files.sides[True], separated.on_both_sides()
    _require_both_sides(corpus, train.documents + held.documents, both, train=train.bytes, held=held.bytes)
    content = {
        "hash": digest.hexdigest(),
        "tokenizer_hash": tokenizer.hash,
        "vocab": tokenizer.vocab,
        "dtype": id_type(tokenizer).str,
        "train": train.counts(),
        "held": held.counts(),
        "corpus": _fields(corpus),
        "tokenizer": _fields(spec),
        **({"both_sides": asdict(both)} if both != BothSides() else {}),
        **({} if episodes is None else {"episodes": episodes.to_json()}),
    }
    (folder / JOURNAL).unlink(missing_ok=True)
    _write_description(folder, content)
    return digest.hexdigest()


def _tokenizer(
    corpus: CorpusSpec, separated: Separated, spec: TokenizerSpec, folder: Path, key: str | None
) -> Tokenizer:
    """The tokenizer of an interrupted preparation, or one that is trained now."""
    if journal_of(folder, key):
        return spec.load(folder)
    tokenizer = spec.fit(_training_text(corpus, separated))
    tokenizer.save(folder)
    sync(folder / "tokenizer.json")
    return tokenizer


def _training_text(corpus: CorpusSpec, separated: Separated) -> Iterator[str]:
    """Pieces of the training text for a tokenizer: all of a small corpus, every k-th piece of a large one."""
    # Every k-th piece of the whole text, not its beginning: corpora are ordered by file, and the first files may be in
    # one language.
    every = max(1, ceil((corpus.text_bytes() or 0) / _FITTED_BYTES))
    size = None if every == 1 else _FITTED_PIECE
    training = (document for document in separated.documents() if not document.held_out)
    return islice((piece for document in training for piece in pieces(document.chunks(), size)), 0, None, every)


def _write_description(folder: Path, content: Mapping[str, Any]) -> None:
    (folder / "dataset.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for name in FILES[2:]:
        sync(folder / name)
    sync(folder)


def _refer(entry: Dataset, folder: Path) -> str:
    """Describe a data set of the cache in a study's folder."""
    content = json.loads((entry.folder / "dataset.json").read_text(encoding="utf-8"))
    shutil.copyfile(entry.folder / "tokenizer.json", folder / "tokenizer.json")
    _write_description(folder, {**content, "location": str(entry.folder.absolute())})
    return entry.hash


def _is_intact(dataset: Dataset) -> bool:
    """True if the token files have the digests of the description."""
    content = json.loads((dataset.folder / "dataset.json").read_text(encoding="utf-8"))
    return all(file_digest(dataset.folder / f"{side}.tokens") == content[side]["sha256"] for side in ("train", "held"))


def _require_both_sides(corpus: CorpusSpec, documents: int, both: BothSides, *, train: int, held: int) -> None:
    if held and not train and both.left_out:
        raise InputError(
            f"corpus '{corpus.kind}': expected training text, got none. {' '.join(both.sentences())} Give other text to train "
            "on, or hold out other text."
        )
    if not train + held:
        advice = "Raise max_bytes." if getattr(corpus, "max_bytes", None) is not None else "Give other text."
        raise InputError(f"corpus '{corpus.kind}': expected text, got {documents} documents without any. {advice}")
    for side, name in ((train, "training"), (held, "held-out")):
        if not side:
            raise InputError(
                f"corpus '{corpus.kind}': expected {name} text, got none: all of its {documents} documents are on the other "
                "side. Use more text, or another held_out share."
            )
