"""Operators that could not be translated, told all at once, with what would do instead."""
from __future__ import annotations

import dataclasses
from typing import Dict, List, Tuple


@dataclasses.dataclass
class Refusal:
    operator: str
    where: str
    why: str
    lasting: bool = False


ADVICE = {
    "nonzero": "shapes that depend on numbers cannot be planned: use a mask and torch.where",
    "masked_select": "shapes that depend on numbers cannot be planned: use a mask and torch.where",
    "unique": "shapes that depend on numbers cannot be planned",
    "sort": "no gradient flows through an order that depends on data here; use max or topk outside of the model",
    "topk": "no gradient flows through an order that depends on data here; use max outside of the model",
    "fft_fft2": "Fourier transforms are not here: use convolutions, or transform the data set beforehand",
    "deform_conv2d": "use a convolution",
    "cumsum": "use a matmul with a triangular matrix of ones",
    "grid_sample": "use a resize (torch.nn.Upsample), or resample the data set beforehand",
}


def advice(op: str) -> str:
    name = op.split(".")[1] if "." in op else op
    return ADVICE.get(name.rstrip("_"), "write it with operators that are (docs/python.md has the list)")


def all_refusals(name: str, refusals: List[Refusal]) -> str:
    """Each operator once, with the layers that have it."""
    groups: Dict[Tuple[str, str], List[str]] = {}
    for r in refusals:
        groups.setdefault((r.operator, r.why), []).append(r.where)
    lines = []
    for (op, why), places in groups.items():
        some = ", ".join(dict.fromkeys(places[:3])) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
        lines.append(f"  {some}: {op}" + (f": {why}" if why else f" is not supported: {advice(op)}"))
    return f"{len(refusals)} operators of {name} cannot be translated:\n" + "\n".join(lines)
