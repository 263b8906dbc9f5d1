"""`megalith.distribute`: the same batches on every rank, whatever random numbers were drawn before."""
import random

import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

import megalith  # noqa: E402

DATA = TensorDataset(torch.arange(12.0), torch.arange(12))


def orders(loader, before):
    """Labels of two epochs, after random numbers that another rank did not draw."""
    torch.manual_seed(before), random.seed(before)
    batches = megalith.distribute(loader)
    return [[y.tolist() for _, y in batches] for _ in range(2)]


@pytest.mark.parametrize("words", [{}, {"generator": True}, {"num_workers": 1}])
def test_same_batches(words):
    def loader(seed):
        more = {"generator": torch.Generator().manual_seed(seed)} if words.get("generator") else words
        return DataLoader(DATA, batch_size=4, shuffle=True, **more)
    first, second = orders(loader(1), 1), orders(loader(2), 2)
    assert first == second, "ranks would have other batches"
    assert first[0] != first[1], "all epochs have the same order"
    assert sorted(sum(first[0], [])) == list(range(12))


def test_a_loader_for_another_number_of_ranks():
    loader = DataLoader(DATA, batch_size=4, sampler=DistributedSampler(DATA, num_replicas=3, rank=1))
    with pytest.raises(megalith.BadData, match="deals its samples to 3 ranks .* this job has 1: leave the sampler out"):
        megalith.distribute(loader)
    model = megalith.Model(torch.nn.Linear(1, 12), example=torch.zeros(1, 1))
    model.compile("sgd", "cross_entropy")
    with pytest.raises(megalith.BadData, match="this job has 1"):
        model.fit(loader)


def test_looks_like_the_loader():
    loader = DataLoader(DATA, batch_size=4)
    batches = megalith.distribute(loader)
    assert len(batches) == 3 and batches.batch_size == 4 and batches.dataset is DATA and megalith.distribute(batches) is batches
