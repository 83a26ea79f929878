import torch

from mnemon.nets.contexts import TiedContexts


def test_items_are_combined_by_bayes_rule():
    """Against a joint Gaussian of c and what the items point to, conditioned by matrix algebra."""
    torch.manual_seed(0)
    nets = TiedContexts(3, 2, 1, 1, 4).double()
    encodings = torch.randn(5, 3, dtype=torch.float64)
    evidence = nets.statistic(encodings)
    found = nets.constant(evidence.mean(0), torch.tensor(5.0, dtype=torch.float64))
    precision, pointed = evidence.chunk(2, -1)
    for k in range(2):
        noise = 1 / precision[:, k]
        seen = pointed[:, k] * noise
        covariance = torch.ones(5, 5, dtype=torch.float64) + noise.diag()
        gain = torch.linalg.solve(covariance, torch.ones(5, dtype=torch.float64))
        torch.testing.assert_close(found.mean[k, 0], gain @ seen)
        torch.testing.assert_close(found.std[k, 0] ** 2, 1 - gain.sum())


def test_a_set_of_one_item_says_what_the_item_says():
    torch.manual_seed(0)
    nets = TiedContexts(3, 2, 4, 1, 4).double()
    encodings = torch.randn(1, 3, dtype=torch.float64)
    shared, chosen = torch.zeros(2, 4).double(), torch.zeros(2).double()
    alone = nets.varying(encodings, shared, chosen)
    pooled = nets.constant(nets.statistic(encodings).mean(0), torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close(alone.mean[0], pooled.mean)
    torch.testing.assert_close(alone.std[0], pooled.std)
