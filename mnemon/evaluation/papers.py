"""Numbers that the papers report, with their protocol. Shown beside ours, never mixed with them."""

from __future__ import annotations

from typing import Any

TABLE_1 = "joint bound per frame, nats, T = 64, memory sampled; VBM paper, table 1"

VBM_TABLE_1: dict[str, float] = {
    "vbm-table2-vae": 3508.5,
    "vbm-table2-statistician": 2178.5,
    "vbm-table2-dkm": 2198.3,
    "vbm-table2-gaussian": 3451.7,
    "vbm-table2-categorical": 3593.7,
    "vbm-table3-vae": 4174.8,
    "vbm-table3-statistician": 3242.3,
    "vbm-table3-dkm": 2868.0,
    "vbm-table3-gaussian": 4155.3,
    "vbm-table3-categorical": 4422.5,
}


def paper_joint(experiment: str) -> dict[str, Any]:
    """The keys of a result that hold a paper's joint bound, if one is published for this experiment."""
    value = VBM_TABLE_1.get(experiment)
    return {} if value is None else {"paper_value": value, "paper_protocol": TABLE_1}


VMA_TABLE_1_NOTE = "bound of unwritten images by 1000 samples, 30/20 alphabets; VMA paper, table 1"
_EXAMPLES = (1, 2, 3, 4, 5, 10, 19)
VMA_TABLE_1: dict[tuple[str, int], tuple[float, ...]] = {
    ("gmn", 1): (83.3, 78.9, 75.7, 72.9, 70.1, 59.9, 45.8),
    ("gmn", 2): (86.4, 84.9, 82.4, 81.0, 78.8, 71.4, 61.2),
    ("gmn", 4): (88.3, 87.3, 86.7, 85.4, 84.0, 80.2, 73.7),
    ("vma", 1): (86.5, 83.0, 79.6, 79.0, 76.5, 76.2, 73.9),
    ("vma", 2): (87.2, 83.3, 80.9, 79.3, 79.1, 77.0, 75.0),
    ("vma", 4): (87.5, 83.3, 81.2, 80.7, 79.5, 78.6, 76.7),
    ("vma", 16): (89.6, 85.1, 81.5, 81.9, 81.3, 79.8, 77.0),
}
"""Negative bounds by kind of model and classes in memory, for 1, 2, 3, 4, 5, 10 and 19 examples of each."""

VMA_ACCURACY: dict[tuple[int, int], float] = {(5, 1): 0.91, (5, 5): 0.97, (20, 1): 0.77, (20, 5): 0.90}
"""By ways and shots: 45/5 alphabets, q(a|x), no retraining. VMA, section 4.2."""


def paper_cell(kind: str, data: str, classes: int, examples: int) -> dict[str, Any]:
    """The keys of a result that hold a cell of VMA, table 1, if it has one for this model, data and memory."""
    row = VMA_TABLE_1.get((kind, classes)) if data == "omniglot" else None
    if row is None or examples not in _EXAMPLES:
        return {}
    return {"paper_value": -row[_EXAMPLES.index(examples)], "paper_protocol": VMA_TABLE_1_NOTE}


def paper_accuracy(kind: str, data: str, scorer: str, ways: int, shots: int) -> dict[str, Any]:
    """The keys of a result that hold the accuracy that the VMA paper reports, if it does."""
    value = VMA_ACCURACY.get((ways, shots))
    if (kind, data, scorer) != ("vma", "omniglot26", "address") or value is None:
        return {}
    return {"paper_value": value, "paper_protocol": "45/5 alphabets, by q(a|x), no retraining; VMA paper, section 4.2"}


KPP_TABLE_1 = "conditional bound of written frames, episode length not given; K++ paper, table 1"
_OTHER_OMNIGLOT = "; other data version (28 x 28 of Burda et al.)"
_PEER = (
    "conditional, T = K = 32, C = 100, one noise for all addresses, which is no bound; pseudo-inverse paper, ICLR 2022"
)
CONDITIONAL: dict[str, tuple[float, str, str]] = {
    "kpp-mnist": (-41.58, "nats/frame", KPP_TABLE_1),
    "kpp-omniglot": (-66.24, "nats/frame", KPP_TABLE_1 + _OTHER_OMNIGLOT),
    "kpp-blocks-mnist": (-41.58, "nats/frame", KPP_TABLE_1),
    "kpp-blocks-omniglot": (-66.24, "nats/frame", KPP_TABLE_1 + _OTHER_OMNIGLOT),
    "kpp-blocks-fashion": (3.40, "bits/dim", KPP_TABLE_1),
    "kpp-blocks-cifar10": (3.28, "bits/dim", KPP_TABLE_1),
    "kpp-read-mnist": (-41.58, "nats/frame", KPP_TABLE_1),
    "kpp-read-omniglot": (-66.24, "nats/frame", KPP_TABLE_1 + _OTHER_OMNIGLOT),
    "kpp-fashion": (3.40, "bits/dim", KPP_TABLE_1),
    "kpp-cifar10": (3.28, "bits/dim", KPP_TABLE_1),
    "kpp-dmlab": (2.88, "bits/dim", KPP_TABLE_1),
    "dkm-tsm-mnist": (-51.84, "nats/frame", KPP_TABLE_1),
    "dkm-tsm-omniglot": (-70.88, "nats/frame", KPP_TABLE_1 + _OTHER_OMNIGLOT),
    "vae-tsm-mnist": (-87.86, "nats/frame", "VAE, no memory; K++ paper, table 1"),
    "vae-tsm-omniglot": (-104.75, "nats/frame", "VAE, no memory; K++ paper, table 1" + _OTHER_OMNIGLOT),
    "pseudo-inverse-mnist": (-31.48, "nats/frame", _PEER),
    "pseudo-inverse-omniglot": (-25.68, "nats/frame", _PEER + _OTHER_OMNIGLOT),
    "pseudo-inverse-shared-mnist": (-31.48, "nats/frame", _PEER),
    "pseudo-inverse-shared-omniglot": (-25.68, "nats/frame", _PEER + _OTHER_OMNIGLOT),
}
"""Conditional numbers by preset: value, unit, protocol."""


def paper_conditional(experiment: str, unit: str = "nats/frame") -> dict[str, Any]:
    """The keys of a result that hold a paper's conditional number in this unit, if one is published."""
    value, its_unit, protocol = CONDITIONAL.get(experiment, (0.0, "", ""))
    return {"paper_value": value, "paper_protocol": protocol} if its_unit == unit else {}
