"""Back-off models on disk: what is read is what was written, and nothing else is taken for one."""

from pathlib import Path

import numpy as np
import pytest

from acclimate.integrations.ngram_files import NgramHeader, load_backoff, save_backoff
from acclimate.predictors.ngram import train_backoff


def test_a_model_comes_back_as_it_was(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [(rng.integers(0, 49_152, 60), 1) for _ in range(20)]
    model = train_backoff(texts, order=3)
    header = NgramHeader(model="m", variant="general", order=3, texts=20, tokens=1180, seed=0)
    path = tmp_path / "backoff-general.npz"

    save_backoff(path, model, header)
    again, said = load_backoff(path)

    assert said == header
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    text = texts[3][0][:30]
    for ours, theirs in zip(model.draft(text, 4), again.draft(text, 4), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"no numbers here")
    with pytest.raises(ValueError, match="must hold a back-off model"):
        load_backoff(path)
    np.savez(path, header=np.array([object()], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="must hold a back-off model"):
        load_backoff(path)
    with pytest.raises(FileNotFoundError):
        load_backoff(tmp_path / "none.npz")
