"""Run by test_sharded.py on two ranks: heads that FSDP2 shards against one process; rank 0 writes the differences."""

import copy
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

import digitloss as dl
from digitloss.errors import ModelError
from digitloss.losses import Head
from fakes import encode, letters_vocab, small_llama

ROWS = ("a12.5 b_7,468", "_c3 b0.04a_92", "aaaaaaaaaaaaa", "bb b_ 7c acab")  # few digits on the second rank


class WithLoss(nn.Module):
    """The objective in the forward of a sharded model, where its head can be read."""

    def __init__(self, model, objective, path):
        super().__init__()
        self.model, self.objective, self.path = model, objective, path

    def forward(self, labels, num_items):
        hidden = self.model.model(input_ids=labels.clamp(min=0), use_cache=False).last_hidden_state
        call = getattr(self.objective, self.path)
        head = Head.from_model(self.model, check=False)
        return dist.get_world_size() * call(hidden, head, labels, num_items_in_batch=num_items)


def relative_error(got, expected):
    return float((got - expected).norm() / expected.norm())


def differences(shard, loss, path, *, is_tied):
    """Relative differences of value and gradients on two ranks from those of one process."""
    vocab, rank = letters_vocab(), dist.get_rank()
    labels = torch.cat([encode(vocab, row) for row in ROWS])
    num_items = (labels[:, 1:] != -100).sum()
    model = small_llama(len(vocab) + 3, tie=is_tied)
    alone = WithLoss(copy.deepcopy(model), dl.Objective(vocab, loss), path)
    expected = alone(labels, num_items) / dist.get_world_size()
    expected.backward()
    sharded = WithLoss(model, dl.Objective(vocab, loss), path)
    shard(sharded)
    value = sharded(labels[2 * rank : 2 * rank + 2], num_items)
    value.backward()
    total = value.detach() / dist.get_world_size()
    dist.all_reduce(total)
    pairs = zip(sharded.named_parameters(), alone.parameters(), strict=True)
    found = {"value": relative_error(total, expected.detach())}
    for (name, ours), theirs in pairs:
        if theirs.grad is not None and theirs.grad.norm() > 0:
            found[name] = relative_error(ours.grad.full_tensor(), theirs.grad)
    return found


def own_group(module):
    fully_shard(module.model.lm_head)
    fully_shard(module)


def root_group(module):
    fully_shard(module)


def group_with_norm(module):
    """As accelerate does."""
    fully_shard([module.model.model.norm, module.model.lm_head])
    fully_shard(module)


def message(head):
    hidden, labels = torch.zeros(1, 3, head.shape[1]), torch.zeros(1, 3, dtype=torch.long)
    try:
        dl.Objective(letters_vocab()).from_hidden(hidden, head, labels)
    except ModelError as error:
        return str(error)
    raise AssertionError("no error")


def main(folder):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    results = {}
    for shard in (own_group, group_with_norm, root_group):
        for loss, path in (("digit_entropy", "from_hidden"), ("emo", "from_hidden"), ("dist2", "numeric_from_hidden")):
            for is_tied in (False, True):
                if is_tied and shard is not root_group:
                    continue  # FSDP2 does not share a parameter between groups
                results[f"{shard.__name__} {loss} {path} tied={is_tied}"] = differences(
                    shard, loss, path, is_tied=is_tied
                )
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    errors = {"tensor_parallel": message(distribute_tensor(torch.zeros(20, 4), mesh, [Shard(0)]))}
    if dist.get_rank() == 0:
        Path(folder, "result.json").write_text(json.dumps({"differences": results, "errors": errors}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
