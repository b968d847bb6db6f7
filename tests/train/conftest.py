import pytest

from fakes import encode, letters_vocab
from training import TEXTS


@pytest.fixture
def vocab():
    return letters_vocab()


@pytest.fixture
def rows(vocab):
    labels = [encode(vocab, text)[0] for text in TEXTS]
    return [{"input_ids": row.clamp(min=0), "labels": row} for row in labels]
