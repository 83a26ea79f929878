import torch

from mnemon.memories import MixtureMemory, seeding
from mnemon.memories.frames import Frames


def frames(codes, **options):
    return Frames.gather("test", codes, codes.shape[-1], **options)


def is_item(seeds, codes):
    return (seeds[..., :, None, :] == codes[..., None, :, :]).all(-1).any(-1)


def test_seeds_are_distinct_items():
    codes = torch.randn(3, 20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for pick in (seeding.pick_kmeans, seeding.pick_random):
        seeds = pick(frames(codes), 7, torch.Generator().manual_seed(1))
        assert seeds.shape == (3, 7, 2)
        assert is_item(seeds, codes).all()
        assert all(len(torch.unique(s, dim=0)) == 7 for s in seeds)


def test_masked_items_are_never_picked():
    codes = torch.arange(10.0)[:, None].double()
    mask = torch.arange(10) < 4
    for pick in (seeding.pick_kmeans, seeding.pick_random):
        for seed in range(20):
            seeds = pick(frames(codes, mask=mask), 4, torch.Generator().manual_seed(seed))
            assert sorted(seeds[:, 0].tolist()) == [0, 1, 2, 3]


def test_next_seed_is_drawn_by_squared_distance():
    """Three points at 0, 1 and 3; given that 0 came first, 3 follows with chance 9/10."""
    codes = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64).expand(30_000, 3, 1)
    seeds = seeding.pick_kmeans(frames(codes), 2, torch.Generator().manual_seed(0))[..., 0]
    first = seeds[seeds[:, 0] == 0]
    share = (first[:, 1] == 3).double().mean()
    assert abs(share - 0.9) < 5 * (0.09 / len(first)) ** 0.5
    assert abs((seeds[:, 0] == 0).double().mean() - 1 / 3) < 5 * (2 / 9 / 30_000) ** 0.5


def test_weights_are_multiplicities():
    codes = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(20_000, 2, 1)
    weights = torch.tensor([3.0, 1.0], dtype=torch.float64).expand(20_000, 2)
    first = seeding.pick_kmeans(frames(codes, weights=weights), 1, torch.Generator().manual_seed(0))[..., 0, 0]
    assert abs((first == 0).double().mean() - 0.75) < 5 * (3 / 16 / 20_000) ** 0.5


def test_equal_items_do_not_stop_it():
    seeds = seeding.pick_kmeans(frames(torch.ones(5, 2)), 3, None)
    assert torch.equal(seeds, torch.ones(3, 2))


def test_fewer_items_than_seeds_start_over():
    seeds = seeding.pick_random(frames(torch.tensor([[1.0], [2.0]])), 5, None)[:, 0]
    assert sorted(seeds.tolist()) in ([1, 1, 1, 2, 2], [1, 1, 2, 2, 2])


def test_large_episodes_are_seeded_from_a_subset(monkeypatch):
    monkeypatch.setattr(seeding, "MAX_SEEDING_ITEMS", 50)
    codes = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    weights = (torch.arange(400) % 2).float()
    for pick in (seeding.pick_kmeans, seeding.pick_random):
        assert is_item(pick(frames(codes), 6, None), codes).all()
        assert is_item(pick(frames(codes, weights=weights), 6, None), codes[1::2]).all()


def test_seeding_has_no_gradient():
    codes = torch.randn(9, 3, requires_grad=True)
    memory = MixtureMemory(3, 2, num_clusters=2)
    start = memory._start("kmeans++", memory.prior(), Frames.gather("write", codes, 3), None)
    assert not start.mu_b.requires_grad
