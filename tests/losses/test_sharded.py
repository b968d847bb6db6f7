"""Heads that FSDP2 shards, on two gloo processes, against one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(HERE / "sharded.py"), str(folder)],
        env={**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize("case", ["digit_entropy from_hidden", "emo from_hidden", "dist2 numeric_from_hidden"])
@pytest.mark.parametrize(
    "group",
    ["own_group {} tied=False", "group_with_norm {} tied=False", "root_group {} tied=False", "root_group {} tied=True"],
)
def test_value_and_gradients_are_those_of_one_process(result, group, case):
    differences = result["differences"][group.format(case)]
    assert "value" in differences
    assert any("embed_tokens" in name for name in differences)
    assert max(differences.values()) < 1e-5, differences


def test_another_sharding_is_named(result):
    assert "sharded as (Shard(dim=0),) and not, or not only, by FSDP2" in result["errors"]["tensor_parallel"]
