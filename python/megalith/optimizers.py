"""Optimizers as strings, or as objects of PyTorch or Keras, in the words of the C library.

    >>> to_words("adamw", lr=0.01)
    Optimizer(words={'optimizer': 'adamw'}, lr=0.01)
"""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, Optional


@dataclasses.dataclass
class Optimizer:
    """`words` go to the plan, `lr` to the trainer (None: the library's own). `inside`: the rate is part of the momentum, as Keras
    has it: what moved before goes on with the rate that it had."""

    words: Dict[str, Any]
    lr: Optional[float] = None
    inside: bool = dataclasses.field(default=False, repr=False)


class UnknownOptimizer(ValueError):
    """An optimizer, or a setting of one, that the C library does not have."""


NAMES = ("sgd", "adam", "adamw", "rmsprop")


def _absent(kind: str, group: Dict[str, Any], *names: str) -> None:
    for name in names:
        if group.get(name):
            raise UnknownOptimizer(f"{kind}({name}={group[name]!r}) is not supported: leave it out")


def _torch_sgd(g: Dict[str, Any]) -> Dict[str, Any]:
    _absent("SGD", g, "dampening", "maximize")
    out = {"optimizer": "sgd", "momentum": float(g["momentum"]), "weight_decay": float(g["weight_decay"])}
    return {**out, "nesterov": True} if g.get("nesterov") else out


def _torch_adam(kind: str) -> Callable[[Dict[str, Any]], Dict[str, Any]]:
    def read(g: Dict[str, Any]) -> Dict[str, Any]:
        _absent(kind, g, "amsgrad", "maximize")
        name = "adamw" if kind == "AdamW" or g.get("decoupled_weight_decay") else "adam"
        return {"optimizer": name, "beta1": float(g["betas"][0]), "beta2": float(g["betas"][1]),
                "epsilon": float(g["eps"]), "weight_decay": float(g["weight_decay"])}
    return read


def _torch_rmsprop(g: Dict[str, Any]) -> Dict[str, Any]:
    _absent("RMSprop", g, "centered", "maximize")
    return {"optimizer": "rmsprop", "rho": float(g["alpha"]), "epsilon": float(g["eps"]), "momentum": float(g["momentum"]),
            "weight_decay": float(g["weight_decay"])}


TORCH = {"SGD": _torch_sgd, "Adam": _torch_adam("Adam"), "AdamW": _torch_adam("AdamW"), "RMSprop": _torch_rmsprop}


def of_framework(thing: Any, *names: str) -> bool:
    """Is a function, or the class of an object, of a framework? What a user wrote may have the same name, and do something else.

    >>> of_framework(dataclasses.replace, "torch"), of_framework(dataclasses.replace, "dataclasses")
    (False, True)
    """
    module = getattr(thing if hasattr(thing, "__name__") else type(thing), "__module__", None)
    return (module or "").split(".")[0] in names


def held_by(optimizer: Any, module: Any) -> "tuple[set, bool]":
    """Names of the module's trained parameters that an optimizer of PyTorch has, and: has it any of another module?"""
    given = {id(p) for g in optimizer.param_groups for p in g["params"]}
    own = {id(p): k for k, p in module.named_parameters()}
    return {own[i] for i in given if i in own}, not given <= own.keys()


def _of_torch(optimizer: Any) -> Optimizer:
    kind, groups = type(optimizer).__name__, optimizer.param_groups
    if kind not in TORCH or not of_framework(optimizer, "torch"):
        raise UnknownOptimizer(f"torch.optim.{kind} is not here: use {', '.join('torch.optim.' + k for k in TORCH)}, or your own loop")
    settings = [{k: v for k, v in g.items() if k != "params"} for g in groups]
    if any(s != settings[0] for s in settings):
        raise UnknownOptimizer(f"{kind} has {len(groups)} groups of parameters with different settings: one group is "
                               "supported; freeze parameters by requires_grad_(False)")
    if optimizer.state:
        raise UnknownOptimizer(f"{kind} has a state already, of earlier steps: give a new one")
    return Optimizer(TORCH[kind](settings[0]), float(settings[0]["lr"]))


# ---- Keras, whose weight decay is apart from the gradient, and whose epsilon is added elsewhere than PyTorch's

def _keras_sgd(c: Dict[str, Any]) -> Dict[str, Any]:
    """Keras keeps lr times what the library keeps: Session.set_lr turns one into the other where the rate changes."""
    if c.get("weight_decay"):
        raise UnknownOptimizer("SGD(weight_decay=) of Keras shrinks weights apart from the gradient: use AdamW")
    out = {"optimizer": "sgd", "momentum": float(c["momentum"])}
    return {**out, "nesterov": True} if c.get("nesterov") and c["momentum"] else out


def _keras_adam(c: Dict[str, Any]) -> Dict[str, Any]:
    decay = float(c.get("weight_decay") or 0)
    return {"optimizer": "adamw" if decay else "adam", "beta1": float(c["beta_1"]), "beta2": float(c["beta_2"]),
            "epsilon": float(c["epsilon"]), "epsilon_hat": True, "weight_decay": decay}


def _keras_rmsprop(c: Dict[str, Any]) -> Dict[str, Any]:
    if c.get("weight_decay"):
        raise UnknownOptimizer("RMSprop(weight_decay=) of Keras shrinks weights apart from the gradient: use AdamW")
    _absent("RMSprop", c, "centered")
    return {"optimizer": "rmsprop", "rho": float(c["rho"]), "epsilon": float(c["epsilon"]), "inside": True,
            "momentum": float(c["momentum"])}


KERAS = {"SGD": _keras_sgd, "Adam": _keras_adam, "AdamW": _keras_adam, "RMSprop": _keras_rmsprop}


def _of_keras(optimizer: Any) -> Optimizer:
    kind, c = type(optimizer).__name__, optimizer.get_config()
    if kind not in KERAS or not of_framework(optimizer, "keras"):
        raise UnknownOptimizer(f"keras.optimizers.{kind} is not here: use {', '.join('keras.optimizers.' + k for k in KERAS)}")
    rate = c.get("learning_rate")
    if not isinstance(rate, (int, float)):
        raise UnknownOptimizer("a schedule inside of a Keras optimizer is not supported: give a number, and a callback "
                               "(megalith.callbacks.LearningRateScheduler)")
    _absent(kind, c, "amsgrad", "clipnorm", "clipvalue", "global_clipnorm", "use_ema", "gradient_accumulation_steps",
            "loss_scale_factor")
    if getattr(optimizer, "_exclude_from_weight_decay", None) or getattr(optimizer, "_exclude_from_weight_decay_pattern", None):
        raise UnknownOptimizer(f"{kind}.exclude_from_weight_decay is not supported: leave it out")
    if getattr(optimizer, "built", False) and int(optimizer.iterations) > 0:
        raise UnknownOptimizer(f"{kind} has a state already, of {int(optimizer.iterations)} steps: give a new one")
    words = KERAS[kind](c)
    return Optimizer(words, _decimal(rate), bool(words.get("momentum")))


def _decimal(rate: float) -> float:
    """Keras holds the rate as a float: 0.1 is what was meant by 0.10000000149.

    >>> _decimal(0.10000000149011612)
    0.1
    """
    return float(f"{rate:.7g}")


def to_words(optimizer: Any, lr: Optional[float] = None) -> Optimizer:
    """An optimizer as the library knows it; raises UnknownOptimizer, with what there is."""
    if isinstance(optimizer, str):
        if optimizer.lower() not in NAMES:
            raise UnknownOptimizer(f"optimizer={optimizer!r} is not known: use one of {', '.join(NAMES)}, or an object of "
                                   "torch.optim or keras.optimizers")
        return Optimizer({"optimizer": optimizer.lower()}, lr)
    if isinstance(optimizer, dict):  # {"optimizer": "sgd", "momentum": 0.9, "lr": 0.1}
        words = dict(optimizer)
        rate = words.pop("lr", lr)
        return Optimizer(words, rate)
    if hasattr(optimizer, "param_groups"):
        found = _of_torch(optimizer)
    elif hasattr(optimizer, "get_config"):
        found = _of_keras(optimizer)
    else:
        raise UnknownOptimizer(f"a {type(optimizer).__name__} is no optimizer: use one of {', '.join(NAMES)}, or an object of "
                               "torch.optim or keras.optimizers")
    return dataclasses.replace(found, lr=found.lr if lr is None else lr)
