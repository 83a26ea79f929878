"""Numbers that the papers report, with their protocol. Shown beside ours, never mixed with them."""

from __future__ import annotations

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


def paper_joint(experiment: str) -> dict[str, object]:
    """The keys of a result that hold a paper's joint bound, if one is published for this experiment."""
    value = VBM_TABLE_1.get(experiment)
    return {} if value is None else {"paper_value": value, "paper_protocol": TABLE_1}
