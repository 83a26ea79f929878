"""Sets that a context-aware learner generates, seen by the judge: is constant what should be, and the rest not?"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mnemon.core.random import stream
from mnemon.data import catalog
from mnemon.data.factors import FactorEpisodes, check_factors
from mnemon.data.images import ImageSet
from mnemon.evaluation.experiments import Evaluation
from mnemon.evaluation.judge import FactorJudge, train_judge
from mnemon.evaluation.likelihood import Estimate, TestSet
from mnemon.evaluation.set_evidence import Judged, least_evidence
from mnemon.models.agreement import agreements
from mnemon.models.context_aware import ContextAwareLearner, ContextsState
from mnemon.training.data import of_classes, preprocessing_of

FACTOR_SETS = 23
"""The random stream of this file."""
ITEMS = 10
"""Items of a generated set. Thesis, 6.4.1"""
LAST_EPOCHS = 10
"""How many epochs at the end of a training say whether it kept what it had found."""
BATCH = 20
HELD_OUT = 0.1
"""Of the training images: not for the judge's training, but to find out what it says of real images."""
CANDIDATES = 64
"""Images among which a foreign item is looked for."""


@dataclass(frozen=True, eq=False)
class RealSets:
    """Test sets, which factors are constant in each, and their values in its first item.

    Shapes: x (B, T, *X), constant bool (B, F), values (B, F)
    """

    x: Tensor
    constant: Tensor
    values: Tensor


@dataclass(frozen=True, eq=False)
class FactorStudy:
    """A trained learner, test sets, the judge, and which context stands for which factor."""

    evaluation: Evaluation
    model: ContextAwareLearner

    @classmethod
    def of(cls, evaluation: Evaluation) -> FactorStudy:
        model, data = evaluation.model, evaluation.test.data
        if not isinstance(model, ContextAwareLearner):
            raise ValueError(f"--part factors: expected a context-aware learner, got {evaluation.config.model.kind}")
        factors = check_factors(data, "--part factors")
        if factors.shape[1] != model.num_contexts:
            raise ValueError(
                f"--part factors: expected images of {model.num_contexts} factors, one for each context, got "
                f"{factors.shape[1]} in {data.name}"
            )
        return cls(evaluation, model)

    def real_sets(self, constant: str | None = None) -> Iterator[RealSets]:
        """Batches of test sets until `num_episodes` were seen; of the run's own kind unless another is given."""
        test, config = self.evaluation.test, self.evaluation.config.data
        batch = max(1, min(BATCH, len(test.data) // config.episode_length))
        sampler = FactorEpisodes(config.episode_length, batch, constant or config.constant)  # type: ignore[arg-type]
        factors = check_factors(test.data, "real_sets")
        wanted = -(-self.evaluation.num_episodes // batch)
        for at in itertools.count():
            batches = sampler.epoch(test.data, seed=self.evaluation.seed, epoch=at)
            for i in range(len(batches)):
                index, known = batches[i][0], batches.roles(i).constant
                assert known is not None
                x = test.draw(index, self.generator(at, i))
                yield RealSets(x, known.to(test.device), factors[index[:, 0]].to(test.device))
                wanted -= 1
                if not wanted:
                    return

    def generator(self, *numbers: int) -> torch.Generator:
        return stream(self.evaluation.seed, FACTOR_SETS, *numbers, device=str(self.evaluation.test.device))

    @cached_property
    def choices(self) -> tuple[Tensor, Tensor]:
        """Inferred and true patterns of test sets. Shapes: (E, K) both"""
        inferred, known = [], []
        for sets in self.real_sets():
            state = self.model.write(sets.x)
            inferred.append(self.model.patterns[state.log_choice.argmax(-1)].bool())
            known.append(sets.constant)
        return torch.cat(inferred), torch.cat(known)

    @cached_property
    def order(self) -> list[int]:
        """The context that stands for each factor: their own order with supervision, else that which agrees best."""
        if self.model.supervised:
            return list(range(self.model.num_contexts))
        best = int(agreements(*self.choices).argmax())
        return list(list(itertools.permutations(range(self.model.num_contexts)))[best])

    def contexts_of(self, factors: Tensor) -> Tensor:
        """A pattern of factors as one of contexts. Shapes: (*B, F) -> (*B, K)"""
        chosen = torch.zeros_like(factors)
        chosen[..., self.order] = factors
        return chosen

    def write(self, sets: RealSets) -> ContextsState:
        """With a given, which here only says which posterior is meant: all contexts' posteriors are computed."""
        return self.model.write(sets.x, constant=self._allowed(sets.constant))

    def _allowed(self, constant: Tensor) -> Tensor | None:
        chosen = self.contexts_of(constant)
        known = (chosen[:, None].float() == self.model.patterns).all(-1).any(-1)
        return chosen if bool(known.all()) else None

    @cached_property
    def real_images(self) -> tuple[ImageSet, ImageSet]:
        """Training images for the judge, and held-out ones: no copies of the former where the data tell which are."""
        config = self.evaluation.config.data
        data = of_classes(catalog.load(config.name, "train", root=self.evaluation.root), config)
        if data.groups is None:
            return data.split_off(HELD_OUT)
        return data.split_off_groups(max(1, round(HELD_OUT * len(data.groups.unique()))))

    @cached_property
    def judge(self) -> FactorJudge:
        device = self.evaluation.test.device
        return train_judge(self.real_images[0], preprocessing_of(self.evaluation.config.data), device=device)

    @cached_property
    def least(self) -> Tensor:
        """Evidence for its value that a real image has: see `least_evidence`. Shapes: -> (F)"""
        test, held_out = self.evaluation.test, self.real_images[1]
        images = TestSet.of(held_out, test.preprocessing, test.device).draw(
            torch.arange(len(held_out)), self.generator(5)
        )
        return least_evidence(self.judge.log_probs(images), check_factors(held_out, "least").to(test.device))

    def look(self, x: Tensor) -> Judged:
        """Sets as the judge sees them. Shapes: (B, n, *X)"""
        return Judged(self.judge.log_probs(x), self.least)


def factor_sets(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Pseudo-accuracy of a; the judge's own accuracy; generated sets of every pattern; synthesis of two sets.

    Real test sets are judged like generated ones: where the judge errs, they are not constant either. And so are real
    sets one of whose items is foreign, which a good judge finds out.
    """
    study = FactorStudy.of(evaluation.with_options("factors"))
    record, names = study.evaluation.record, evaluation.test.data.factor_names
    with torch.no_grad():
        yield from _pseudo_accuracy(study)
    judged = _judge_test(study)
    for at, name in enumerate(names):
        yield record(Estimate.of(judged[:, at]), "judge_accuracy", "share", note=f"{name}; the judge on real images")
    with torch.no_grad():
        ways = (False, True) if study.model.priors is not None else (False,)
        for pattern, settled in itertools.product(itertools.product((False, True), repeat=len(names)), ways):
            if not (settled and all(pattern)):  # nothing varies
                yield from _sampled(study, pattern, settled=settled)
        yield from _real(study)
        yield from _foreign(study)
        for settled in ways:
            yield from _conditional(study, settled=settled)
        yield from _synthesis(study)


def _pseudo_accuracy(study: FactorStudy) -> Iterable[dict[str, Any]]:
    inferred, known = study.choices
    right = (inferred[:, study.order] == known).all(-1)
    told = "a by its bound" if study.model.supervised else "a by q(a | X), contexts in their best order"
    note = f"{told}; {len(known)} unseen sets"
    yield study.evaluation.record(Estimate.of(right.double()), "pseudo_accuracy", "share", note=note)
    kept = None if study.model.supervised else kept_accuracy(study.evaluation.history)
    if kept is not None:
        note = f"mean of the last {LAST_EPOCHS} epochs of the training, the same validation sets in each"
        yield study.evaluation.record(kept, "kept_accuracy", "share", note=note, split="validation")


def kept_accuracy(history: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """Pseudo-accuracy on validation sets over the last epochs of a training, whose mean a lost one pulls down. Every
    epoch asks the same sets, so there is no interval. None without such metrics."""
    last = [row for row in history if row["kind"] == "validation" and row["epoch"]][-LAST_EPOCHS:]
    if not last or "agreement" not in last[-1]:
        return None
    return Estimate(statistics.fmean(row["agreement"] for row in last), math.nan, len(last))


def _judge_test(study: FactorStudy, limit: int = 4000) -> Tensor:
    test = study.evaluation.test
    index = torch.randperm(len(test.data), generator=stream(0, FACTOR_SETS))[:limit]
    found = study.judge.values(test.draw(index, study.generator(1)))
    return (found.cpu() == check_factors(test.data, "judge")[index]).double()


def _kind(kind: str, settled: bool) -> str:
    return f"{kind}, what varies settled" if settled else kind


def _sampled(study: FactorStudy, pattern: tuple[bool, ...], *, settled: bool) -> Iterable[dict[str, Any]]:
    """New sets with the given factors constant, from the prior. Thesis, figures 6.3 and 6.6"""
    model, number = study.model, study.evaluation.num_episodes
    factors = torch.tensor(pattern, device=study.evaluation.test.device).expand(number, -1)
    chosen = study.contexts_of(factors)
    seen = bool((chosen[0].float() == model.patterns).all(-1).any())
    kind = "from the prior" if seen else "from the prior, a pattern never trained on"
    options: dict[str, Any] = {"settled": settled, "generator": study.generator(2)}
    drawn = model.sample_sets(model.prior_state((number,)), ITEMS, constant=chosen, **options)
    yield from _verdicts(study, study.look(drawn), factors, _kind(kind, settled))


def _real(study: FactorStudy) -> Iterable[dict[str, Any]]:
    """Test sets themselves: what a perfect model could reach before this judge."""
    sets = list(study.real_sets())
    found = Judged.join([study.look(some.x) for some in sets])
    yield from _verdicts(study, found, torch.cat([some.constant for some in sets]), "real sets")


def _foreign(study: FactorStudy) -> Iterable[dict[str, Any]]:
    """Real sets whose last item has another value of what is constant: how many still pass, by either criterion."""
    test, names = study.evaluation.test, study.evaluation.test.data.factor_names
    factors = check_factors(test.data, "foreign").to(test.device)
    for at, name in enumerate(names):
        parts = []
        for i, sets in enumerate(study.real_sets()):
            generator = study.generator(6, at, i)
            tried = torch.randint(len(factors), (len(sets.x), CANDIDATES), device=test.device, generator=generator)
            other = factors[tried, at] != sets.values[:, at, None]
            foreign = tried.take_along_dim(other.int().argmax(-1, keepdim=True), -1)
            mine = sets.constant[:, at] & other.any(-1)
            if bool(mine.any()):
                parts.append(study.look(torch.cat((sets.x[:, :-1], test.draw(foreign, generator)), 1)[mine]))
        if not parts:
            continue
        found, note = Judged.join(parts), f"real sets with one foreign item; {name} constant but for it"
        same = _agreed(found.values)[..., at].all(-1).double()
        yield study.evaluation.record(Estimate.of(same), "constant_sets", "share", note=note)
        fits = found.fits[..., at].all(-1).double()
        yield study.evaluation.record(Estimate.of(fits), "consistent_sets", "share", note=note)


def _conditional(study: FactorStudy, *, settled: bool) -> Iterable[dict[str, Any]]:
    """Sets like given ones: the constant factors carried over, the others varied. Thesis, figure 6.4"""
    found, constant, values = [], [], []
    for i, sets in enumerate(study.real_sets()):
        chosen = study.contexts_of(sets.constant)
        state = study.write(sets)
        options: dict[str, Any] = {"at_mean": True, "settled": settled, "generator": study.generator(3, i)}
        found.append(study.look(study.model.sample_sets(state, ITEMS, constant=chosen, **options)))
        constant.append(sets.constant)
        values.append(sets.values)
    together, known, wanted = Judged.join(found), torch.cat(constant), torch.cat(values)
    kind = _kind("given a set", settled)
    yield from _verdicts(study, together, known, kind)
    same = (_majority(together.values) == wanted) | ~known
    carried = same.all(-1).double()
    yield study.evaluation.record(Estimate.of(carried), "carried", "share", note=f"{kind}: most items have its value")


def _synthesis(study: FactorStudy) -> Iterable[dict[str, Any]]:
    """Sets made of two: one gives the first factor, the other the second. Nothing where the test sets make no such
    pair. Thesis, figure 6.7"""
    model, found, wanted = study.model, [], []
    for i, sets in enumerate(study.real_sets("one")):
        first, rest = sets.constant[:, 0], sets.constant[:, 1]
        pairs = min(int(first.sum()), int(rest.sum()))
        if not pairs:
            continue
        one, other = (torch.nonzero(part)[:pairs, 0] for part in (first, rest))
        state = study.write(sets)
        chosen = study.contexts_of(sets.constant)
        mixed, together = model.combine([state[one], state[other]], [chosen[one], chosen[other]])
        drawn = model.sample_sets(mixed, ITEMS, constant=together, at_mean=True, generator=study.generator(4, i))
        found.append(study.judge.values(drawn)[..., :2])
        wanted.append(torch.stack((sets.values[one, 0], sets.values[other, 1]), -1))
    if not found:
        return
    right = (torch.cat(found) == torch.cat(wanted)[:, None]).all(-1).double()
    note = f"of two sets; {len(right)} pairs"
    yield study.evaluation.record(
        Estimate.of(right.mean(-1)), "synthesis_items", "share", note=f"{note}; items with both"
    )
    carried = (_majority(torch.cat(found)) == torch.cat(wanted)).all(-1).double()
    yield study.evaluation.record(
        Estimate.of(carried), "synthesis", "share", note=f"{note}; sets most of whose items are"
    )


def _verdicts(study: FactorStudy, judged: Judged, constant: Tensor, kind: str) -> Iterable[dict[str, Any]]:
    """Per factor: where it should be constant, the share of sets in which it is; elsewhere its entropy.

    constant_sets    all items of the set have one most likely value
    consistent_sets  there is a value that no item contradicts: see `set_evidence`
    support          the probability that the judge gives this value
    Shapes: constant bool (B, F)
    """
    found = judged.values
    agreed, fits, support = _agreed(found), judged.fits.double(), judged.support
    names = study.evaluation.test.data.factor_names
    for at, name in enumerate(names):
        mine = constant[:, at]
        others = " and ".join(other for k, other in enumerate(names) if k != at and bool(constant[mine][:, k].all()))
        what = f"{name} constant" + (f" with {others}" if others else "")
        if bool(mine.any()):
            share = agreed[mine][..., at].double()
            consistent = fits[mine][..., at]
            for metric, values in (
                ("constant_sets", share.amin(-1)),
                ("constant_items", share.mean(-1)),
                ("consistent_sets", consistent.amin(-1)),
                ("consistent_items", consistent.mean(-1)),
                ("support", support[mine][..., at].mean(-1)),
            ):
                yield study.evaluation.record(Estimate.of(values), metric, "share", note=f"{kind}; {what}")
        if bool((~mine).any()):
            spread = relative_entropy(found[~mine][..., at], study.judge.num_values[at])
            yield study.evaluation.record(Estimate.of(spread), "spread", "share", note=f"{kind}; {name} varying")


def _agreed(found: Tensor) -> Tensor:
    """Items that have the most frequent value. Shapes: (B, n, F) -> bool (B, n, F)"""
    return found == _majority(found)[:, None]


def _majority(found: Tensor) -> Tensor:
    """The most frequent value in each set. Shapes: (B, n, F) -> (B, F)"""
    return found.mode(1).values


def relative_entropy(found: Tensor, num_values: int) -> Tensor:
    """Entropy of the values in each set, relative to the mean of as many uniform draws. Shapes: (B, n) -> (B)"""
    n = found.shape[-1]
    uniform = torch.randint(num_values, (2000, n), generator=stream(0, FACTOR_SETS, n, num_values))
    return _entropy(found.cpu(), num_values) / _entropy(uniform, num_values).mean()


def _entropy(found: Tensor, num_values: int) -> Tensor:
    shares = torch.nn.functional.one_hot(found, num_values).double().mean(-2)
    return -torch.where(shares > 0, shares * shares.clamp(min=1e-12).log(), 0.0).sum(-1)
