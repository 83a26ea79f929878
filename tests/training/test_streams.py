"""Random numbers of a batch do not depend on how many processes share it."""

import pytest
import torch

from mnemon.training.streams import EpisodeShard

DRAWS = {
    "rand": lambda n, g: torch.rand((n, 3), generator=g),
    "randn": lambda n, g: torch.randn(n, 2, generator=g, dtype=torch.float64),
    "gamma": lambda n, g: torch._standard_gamma(torch.full((n, 50), 8.0), generator=g),
    "bernoulli": lambda n, g: torch.bernoulli(torch.full((n, 4), 0.3), generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
def test_shards_make_up_the_whole(name):
    draw = DRAWS[name]
    whole = [draw(6, g := torch.Generator().manual_seed(5)), draw(6, g)]
    parts = []
    for index in range(3):
        generator = torch.Generator().manual_seed(5)
        with EpisodeShard(generator, 2, index, 3):
            parts.append([draw(2, generator), draw(2, generator)])
    for k in range(2):
        assert torch.equal(torch.cat([part[k] for part in parts]), whole[k])


def test_other_draws_are_left_alone():
    own, other = (torch.Generator().manual_seed(1) for _ in range(2))
    with EpisodeShard(own, 2, 1, 3):
        assert torch.equal(
            torch.rand(2, 3, generator=other), torch.rand(2, 3, generator=torch.Generator().manual_seed(1))
        )
        assert torch.rand(5, generator=own).shape == (5,)
