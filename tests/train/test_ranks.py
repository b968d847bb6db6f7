"""Two processes train and evaluate as one does: counts are over all ranks, and no row counts twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from training import relative_difference

HERE = Path(__file__).parent


def result(folder, normalize, *, num_ranks):
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
    batch_size = 4 // num_ranks
    done = subprocess.run(
        [*command, str(HERE / "two_ranks.py"), str(folder), normalize, str(batch_size)],
        env={**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "result.pt", weights_only=True)


@pytest.mark.parametrize("normalize", ["tokens", "digits"])
def test_two_ranks_equal_one(tmp_path, normalize):
    one, two = (result(tmp_path / str(n), normalize, num_ranks=n) for n in (1, 2))
    assert relative_difference(two["change"], one["change"]) < 1e-5
    for name in ("loss", "cross_entropy", "numeric_loss", "digit_token_entropy", "digit_accuracy", "digit_density"):
        assert two["log"][name] == pytest.approx(one["log"][name], rel=1e-5)
        assert two["metrics"][f"eval_{name}"] == pytest.approx(one["metrics"][f"eval_{name}"], rel=1e-5)
