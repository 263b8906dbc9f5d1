"""Which values of an exported graph lie in the same memory, and who changes it: operators in place (relu_, +=, y[:, 0] = 0).

aten's schemas say what an operator's result shares memory with, and which of its operands it writes to:

    y = a.view(..)      a and y are one family; so is whatever is made a view of either
    y.add_(1)           writes to y, so that all of the family have other numbers afterwards
"""
from __future__ import annotations

from typing import Any, Dict, List, Set

import torch
from torch.utils import _pytree as pytree

from .export import short_name

Node = torch.fx.Node


def is_in_place(n: Node) -> bool:
    """Is it a method with a trailing underscore, which changes its first operand and nothing else?"""
    name = short_name(n.target)
    return name.endswith("_") and not name.startswith("_")


def _of_schema(n: Node) -> List[Any]:
    """(argument of the schema, what the node gives for it)"""
    if not hasattr(n.target, "_schema"):
        return []
    arguments = n.target._schema.arguments
    return [(a, n.args[i] if i < len(n.args) else n.kwargs.get(a.name)) for i, a in enumerate(arguments)]


def written(n: Node) -> List[Node]:
    """What the node changes in place; of a graph within the graph, all that it is given."""
    if isinstance(n.target, torch._ops.HigherOrderOperator):
        return [a for a in pytree.tree_leaves((n.args, n.kwargs)) if isinstance(a, Node) and a.op != "get_attr"]
    found = [v for a, v in _of_schema(n) if a.alias_info is not None and a.alias_info.is_write]
    return [v for v in pytree.tree_leaves(found) if isinstance(v, Node)]


class Memory:
    """Families of nodes, and which nodes have been seen so far."""

    def __init__(self) -> None:
        self.root: Dict[Node, Node] = {}  # of a view: whose memory it has
        self.seen: Set[Node] = set()

    def of(self, n: Node) -> Node:
        return self.root.get(n, n)

    def share(self, n: Node, source: Any) -> None:
        if isinstance(source, Node):
            self.root[n] = self.of(source)

    def note(self, n: Node) -> None:
        """Whose memory the node's value has. (Of operators that may return their operand itself, dropout and type_as, schemas do not
        say so; but then the graph goes on with the one node for both.)"""
        shared = [v for a, v in _of_schema(n) if a.alias_info is not None and isinstance(v, Node)]
        if shared:
            self.share(n, shared[0])

    def family(self, n: Node) -> Set[Node]:
        """All that have the same memory."""
        root = self.of(n)
        return {root, *(v for v, r in self.root.items() if r is root)}

    def is_read_later(self, n: Node) -> bool:
        return any(u not in self.seen for u in n.users)
