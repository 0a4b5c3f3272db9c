"""A model definition's numbers from a PyTorch module, by what it and its submodules say of themselves.

Only `named_children`, `named_parameters`, `named_buffers`, shapes and a few well-known attributes are asked for; no
weight is read. Each module and each parameter counts once, however many share it. Kinds go by attributes where layers
have them (`kernel_size`, `num_embeddings`, `in_features`) and by the names of classes, inherited ones too, where not.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from leap_features.model_definition.fields import number

MAX_MODULES: Final = 200_000
"""More than the largest published models have; beyond it nothing is said, rather than half of it."""
MAX_DEPTH: Final = 200
"""Modules within modules, likewise."""
MAX_TENSORS: Final = 10_000
"""Of one module itself, likewise."""

ATTENTION: Final = re.compile(r"(attention|attn)(?!.*(output|projection)$)|mha$", re.IGNORECASE)
STATE_SPACE: Final = re.compile(r"mamba|^s[46]d?$|ssm", re.IGNORECASE)
RECURRENT: Final = re.compile(r"^(rnn|lstm|gru)(base|cell|cellbase)?$|^qrnn", re.IGNORECASE)
NORMALISATION: Final = re.compile(r"^(?!_).*norm(\dd|alization)?$", re.IGNORECASE)
DROPOUT: Final = re.compile(r"dropout|droppath|stochasticdepth", re.IGNORECASE)
POOLING: Final = re.compile(r"pool(ing)?(\dd)?$", re.IGNORECASE)
ACTIVATION: Final = re.compile(
    r"(relu6?|g[er]?lu|gelu\w*|swiglu|silu|swish|mish|sigmoid|softmax|softplus|softsign|elu|celu|selu|tanh|activation)$",
    re.IGNORECASE,
)

_CHOSEN: Final = ("top_k", "num_experts_per_tok", "num_experts_per_token", "moe_top_k", "k")
_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_HEADS: Final = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")
_KEY_VALUE_HEADS: Final = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_n_heads")
_HEAD_WIDTH: Final = ("head_dim", "attention_head_size", "head_size")
_STATE_SIZE: Final = ("ssm_state_size", "state_size", "d_state")


def attribute(thing: object, name: str) -> Any:
    """An attribute, None if it is not there or cannot be had."""
    try:
        return getattr(thing, name, None)
    except Exception:  # a property may do anything
        return None


def whole(thing: object, *names: str) -> float | None:
    """The first of the attributes `names` that is a whole number above 0."""
    for name in names:
        value = attribute(thing, name)
        if isinstance(value, int) and (found := number(value)):
            return found
    return None


@dataclass(eq=False)
class _Tensor:
    """A parameter or a buffer."""

    size: float | None
    """Numbers in it, whole and unpacked; None: not initialised yet."""
    dimensions: int
    bytes: float | None
    trained: bool | None


@dataclass(eq=False)
class _Node:
    """A module and its place in the whole."""

    module: object
    name: str
    parent: _Node | None
    kind: str = ""
    classes: tuple[str, ...] = ()
    depth: int = 0
    children: list[_Node] = field(default_factory=list)
    tensors: list[_Tensor] = field(default_factory=list)
    """Its own parameters that no module before it has."""
    empty: bool = False
    """Whether it has no parameters of its own at all."""
    buffers: float | None = 0.0
    """Bytes of its own buffers."""

    def path(self) -> Iterable[_Node]:
        """The node and all that it lies in, inside out."""
        node: _Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def below(self) -> Iterable[_Node]:
        """The node and all that lie in it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children


def numbers(module: object, given: Mapping[str, float]) -> dict[str, float]:
    """The numbers of `module`; `given` are those that are known from elsewhere, where it does not say them itself."""
    nodes = _walk(module)
    if nodes is None or not any(node.children or node.tensors for node in nodes):
        return {}
    model = _Model(nodes, given)
    return {**model.layers(), **model.shape(), **model.parameters()}


def _walk(root: object) -> list[_Node] | None:
    """All modules, each before those in it; None: too many, or too many tensors in one."""
    nodes: list[_Node] = []
    seen: set[int] = set()
    shared: set[int] = set()
    kept: list[object] = []  # what is alive keeps its id
    waiting = [_Node(root, "", None)]
    while waiting:
        node = waiting.pop()
        if id(node.module) in seen:
            continue
        if len(nodes) >= MAX_MODULES or node.depth > MAX_DEPTH:
            return None
        seen.add(id(node.module))  # it stays alive in its node, so the id stays its own
        nodes.append(node)
        if node.parent is not None:
            node.parent.children.append(node)
        inner = _items(node.module, "named_children", MAX_MODULES)
        if len(nodes) + len(waiting) + len(inner) > MAX_MODULES:  # told before they are held: children may have no end
            return None
        waiting += [
            _Node(child, str(name), node, depth=node.depth + 1) for name, child in reversed(inner) if child is not None
        ]
        node.classes = _class_names(node.module)
        parameters = [each for _, each in _items(node.module, "named_parameters", MAX_TENSORS + 1, recurse=False)]
        if len(parameters) > MAX_TENSORS:
            return None
        node.empty = not parameters
        node.tensors = [_tensor(each) for each in parameters if id(each) not in shared]
        shared |= set(map(id, parameters))
        kept += parameters
        node.buffers = _bytes_of_buffers(node.module)
    for node in nodes:
        node.kind = _kind(node)
    return nodes


def _class_names(module: object) -> tuple[str, ...]:
    """Names of the module's class and of those that it inherits from, nearest first."""
    scripted = attribute(module, "original_name")  # TorchScript hides the class
    names = [str(base.__name__) for base in type(module).__mro__ if base is not object]
    return (*([scripted] if isinstance(scripted, str) else []), *names)


def _items(module: object, method: str, limit: int, **how: bool) -> list[tuple[str, Any]]:
    """What a method that yields names and things yields; nothing if it fails."""
    try:
        return [(name, thing) for name, thing in islice(getattr(module, method)(**how), limit)]
    except Exception:  # an odd module says nothing
        return []


def _bytes_of_buffers(module: object) -> float | None:
    sizes = [_tensor(buffer).bytes for _, buffer in _items(module, "named_buffers", MAX_TENSORS, recurse=False)]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _tensor(tensor: object) -> _Tensor:
    stored = _shape(attribute(tensor, "shape"))
    # A tensor that is packed (bitsandbytes) or kept in slices (DeepSpeed) says elsewhere what it stands for.
    packed = _shape(attribute(attribute(tensor, "quant_state"), "shape"))
    sliced = _shape(attribute(tensor, "ds_shape"))
    shape = packed or sliced or stored
    width = whole(tensor, "itemsize")
    if width is None:
        try:
            width = number(tensor.element_size())  # type: ignore[attr-defined]
        except Exception:  # not a tensor of any kind that is known
            width = None
    held = sliced or stored
    trained = attribute(tensor, "requires_grad")
    return _Tensor(
        None if shape is None else float(math.prod(shape)),
        len(shape or ()),
        None if held is None or width is None else math.prod(held) * width,
        trained if isinstance(trained, bool) else None,
    )


def _shape(given: Any) -> tuple[float, ...] | None:
    try:
        shape = tuple(number(int(size)) for size in islice(given, 100))
    except Exception:  # none, or not initialised yet
        return None
    return tuple(size for size in shape if size is not None) if None not in shape else None


def _kind(node: _Node) -> str:
    """What a single layer is; empty for modules of several layers."""
    module, name = node.module, node.classes[0]
    if node.name.startswith("lora_") or (node.parent is not None and node.parent.kind == "adapter"):
        return "adapter"
    if whole(module, "num_embeddings") and whole(module, "embedding_dim"):
        return "embedding"
    if attribute(module, "kernel_size") is not None and whole(module, "out_channels"):
        return "convolution"
    if any(RECURRENT.search(each) for each in node.classes):
        return "recurrent"
    if _features(node) and not any(_features(child) for child in node.children):
        return "linear"
    if node.children:
        return ""
    if "Linear" in node.classes:  # not initialised yet
        return "linear"
    for kind, pattern in _LEAVES.items():
        if pattern.search(name) or (kind != "activation" and any(pattern.search(base) for base in node.classes)):
            return kind
    return ""


_LEAVES: Final = {
    "normalisation": NORMALISATION,
    "dropout": DROPOUT,
    "pooling": POOLING,
    "activation": ACTIVATION,
}


def _features(node: _Node) -> tuple[float, float] | None:
    """Inputs and outputs of a linear layer."""
    module = node.module
    into = whole(module, "in_features", "infeatures", "input_size_per_partition")
    outputs = whole(module, "out_features", "outfeatures", "output_size_per_partition", "nf")
    if into is None and "Conv1D" in node.classes:  # GPT-2's name for a linear layer
        into = whole(module, "nx") or (node.tensors[0].size or 0.0) / (outputs or 1.0) if node.tensors else None
    return (into, outputs) if into and outputs else None


class _Model:
    """All modules of a model, and what is found out of them together."""

    def __init__(self, nodes: list[_Node], given: Mapping[str, float]) -> None:
        self._nodes = nodes
        self._given = given
        self._by_kind: defaultdict[str, list[_Node]] = defaultdict(list)
        for node in nodes:
            self._by_kind[node.kind].append(node)
        self._attention = _innermost(nodes, ATTENTION)
        self._state_space = _innermost(nodes, STATE_SPACE)
        self._experts = _expert_holders(nodes)
        # How many attention layers lie in a module, by the id of its node.
        self._attention_within = Counter(id(node) for unit in self._attention for node in unit.path())
        self._vocabulary = self._rows_of_vocabulary()

    def layers(self) -> dict[str, float]:
        """How many layers there are of each kind."""
        counts = {
            f"{kind}_layers": float(len(self._by_kind[kind]))
            for kind in ("linear", "convolution", "normalisation", "dropout", "activation", "pooling")
        }
        counts["recurrent_layers"] = sum(
            (whole(node.module, "num_layers") or 1.0)
            * (2.0 if attribute(node.module, "bidirectional") is True else 1.0)
            for node in self._by_kind["recurrent"]
        )
        counts["attention_layers"] = float(len(self._attention))
        counts["state_space_layers"] = float(len(self._state_space))
        counts["expert_layers"] = float(len(self._experts))
        counts["embedding_tables"] = float(len(self._by_kind["embedding"]))
        blocks = _blocks(self._nodes)
        weighted = ("linear", "convolution", "recurrent")
        counts["layers"] = float(len(blocks)) or float(sum(len(self._by_kind[kind]) for kind in weighted))
        for side in ("encoder", "decoder"):
            of_side = sum(any(node.name == side for node in block.path()) for block in blocks)
            if 0 < of_side < len(blocks):
                counts[f"{side}_layers"] = float(of_side)
        return {name: count for name, count in counts.items() if count}

    def shape(self) -> dict[str, float]:
        """Widths, heads, experts, vocabulary."""
        tables = [
            (whole(node.module, "num_embeddings") or 0.0, whole(node.module, "embedding_dim") or 0.0)
            for node in self._by_kind["embedding"]
        ]
        linear = [
            (node, into, out) for node in self._by_kind["linear"] for into, out in [_features(node) or (0.0, 0.0)]
        ]
        inside = {id(node) for unit in self._attention for node in self._unit(unit).below()}
        outputs = [out for _, _, out in linear if out and out != self._vocabulary]
        outputs += [whole(node.module, "out_channels") or 0.0 for node in self._by_kind["convolution"]]
        found = {
            "embedding_rows": sum(rows for rows, _ in tables),
            "embedding_width": max((width for _, width in tables), default=0.0),
            "vocabulary": self._vocabulary,
            "max_width": max(outputs, default=0.0),
            "mean_width": sum(outputs) / len(outputs) if outputs else 0.0,
            "width": _commonest(
                [into for node, into, _ in linear if id(node) in inside] or [into for _, into, _ in linear if into]
            ),
            "heads": self._of_attention(_HEADS),
            "key_value_heads": self._of_attention(_KEY_VALUE_HEADS),
            "head_width": self._of_attention(_HEAD_WIDTH),
            "state_size": max((whole(node.module, *_STATE_SIZE) or 0.0 for node in self._state_space), default=0.0),
            "experts": max((count for _, count, _ in self._experts), default=0.0),
            "experts_per_token": max((chosen or 0.0 for _, _, chosen in self._experts), default=0.0),
        }
        if self._attention:
            between = [out for node, _, out in linear if id(node) not in inside and out != self._vocabulary]
            found["intermediate_width"] = max(between, default=0.0)
        if found["heads"]:
            found["key_value_heads"] = found["key_value_heads"] or self._given.get("key_value_heads", found["heads"])
            found["head_width"] = found["head_width"] or found["width"] / found["heads"]
        if any(child.name == "shared_expert" for holder, _, _ in self._experts for child in _beside(holder)):
            found["shared_experts"] = 1.0
        return {name: value for name, value in found.items() if value}

    def parameters(self) -> dict[str, float]:
        """Parameters by kind, and the operations on them; nothing where a parameter is not initialised yet."""
        sums: defaultdict[str, float] = defaultdict(float)
        total = trained = held = multiplied = sparse = 0.0
        tensors = 0
        known_training = known_bytes = True
        kinds = self._kinds_of_parameters()
        for node in self._nodes:
            size, own = _logical_size(node)
            if size is None:
                return {}
            kind = kinds.get(id(node)) or (node.kind if node.kind in _PARAMETER_KINDS else "")
            sums[f"{kind}_parameters"] += size
            total += size
            tensors += len(own)
            trained += sum(tensor.size or 0.0 for tensor in own if tensor.trained)
            known_training &= all(tensor.trained is not None for tensor in own)
            known_bytes &= node.buffers is not None and all(tensor.bytes is not None for tensor in own)
            held += (node.buffers or 0.0) + sum(tensor.bytes or 0.0 for tensor in own)
            if _is_sparse_table(node):
                sparse += size
            multiplied += self._multiplied(node, size, kind)
        sums.pop("_parameters", None)
        found = {"parameters": total, "parameter_tensors": float(tensors), **sums}
        if known_training:
            found["trainable_parameters"] = trained
        if known_bytes:
            found["bytes"] = held
        idle = self._idle()
        if idle is not None:
            found["active_parameters"] = total - sparse - idle
            if (flops := self._flops(multiplied - idle)) is not None:
                found["flops_per_sample"] = flops
        return {name: value for name, value in found.items() if value or name in ("parameters", "trainable_parameters")}

    def _unit(self, innermost: _Node) -> _Node:
        """The outermost module that is all of one attention layer, with its output."""
        unit = innermost
        for node in innermost.path():
            alone = self._attention_within[id(node)] == 1
            if node is not innermost and not (alone and node.parent and ATTENTION.search(node.classes[0])):
                break
            unit = node
        return unit

    def _kinds_of_parameters(self) -> dict[int, str]:
        """The kinds of parameters that go by where they are, by the id of their node."""
        kinds: dict[int, str] = {}
        for innermost in self._attention:
            kinds |= dict.fromkeys(map(id, self._unit(innermost).below()), "attention")
        for node in self._state_space:
            kinds |= dict.fromkeys(map(id, node.below()), "attention")
        for holder, _, _ in self._experts:
            kinds |= dict.fromkeys(map(id, holder.below()), "expert")
        return kinds

    def _rows_of_vocabulary(self) -> float:
        """Rows of the largest table, in a model that reads sequences."""
        if not (self._attention or self._state_space or self._by_kind["recurrent"]):
            return 0.0
        tables = [node for node in self._by_kind["embedding"] if not _is_sparse_table(node)]
        return max((whole(node.module, "num_embeddings") or 0.0 for node in tables), default=0.0)

    def _of_attention(self, names: tuple[str, ...]) -> float:
        """The largest of the numbers that attention layers have under one of `names`."""
        found = [
            next((value for node in islice(unit.path(), 2) if (value := whole(node.module, *names))), 0.0)
            for unit in self._attention
        ]
        return max(found, default=0.0)

    def _multiplied(self, node: _Node, size: float, kind: str) -> float:
        """Parameters of `node` that each token is multiplied with; a table that is the output as well counts there."""
        if node.kind == "linear":
            into, out = _features(node) or (0.0, 0.0)
            return into * out
        if node.kind in ("embedding", "convolution", "normalisation", "recurrent"):
            return 0.0
        matrices = [tensor.size or 0.0 for tensor in node.tensors if tensor.dimensions >= 2]
        return sum(matrices) if kind in ("attention", "expert") else 0.0

    def _idle(self) -> float | None:
        """Parameters of experts that a token is not sent to; None: nobody says to how many it is."""
        idle = 0.0
        for holder, count, chosen in self._experts:
            taken = chosen or self._given.get("experts_per_token")
            if not taken:
                return None
            size = sum(_logical_size(node)[0] or 0.0 for node in holder.below())
            idle += size * max(0.0, 1.0 - taken / count)
        return idle

    def _flops(self, multiplied: float) -> float | None:
        """Of one sample; None: a layer's operations depend on sizes that are not known."""
        if self._by_kind["convolution"] or self._by_kind["recurrent"]:
            return None
        if not (self._attention or self._state_space):
            return 2.0 * multiplied
        tokens = self._given.get("sequence_length")
        if not tokens:
            return None
        shape = self.shape()
        compared = shape.get("heads", 0.0) * shape.get("head_width", 0.0) or shape.get("width", 0.0)
        return tokens * (2.0 * multiplied + 4.0 * len(self._attention) * compared * tokens)


_PARAMETER_KINDS: Final = frozenset({"linear", "convolution", "embedding", "normalisation", "recurrent"})


def _innermost(nodes: list[_Node], pattern: re.Pattern[str]) -> list[_Node]:
    """Modules whose class name says what they are, with parameters, and none of the kind with parameters within."""
    named = [node for node in nodes if not node.kind and pattern.search(node.classes[0])]
    with_parameters = [node for node in named if any(each.tensors or each.kind == "linear" for each in node.below())]
    outer = {id(above) for node in with_parameters for above in islice(node.path(), 1, None)}
    return [node for node in with_parameters if id(node) not in outer]


def _expert_holders(nodes: list[_Node]) -> list[tuple[_Node, float, float | None]]:
    """Modules that hold experts, how many, and how many of them a token is sent to (None: not said)."""
    found = []
    inside: set[int] = set()
    for node in nodes:
        if node.name != "experts" or id(node) in inside:
            continue
        inside |= set(map(id, node.below()))
        around = [node, *_beside(node), *islice(node.path(), 1, 2)]
        listed = len(node.children) if len(node.children) > 1 and _alike(node.children) else None
        count = listed or next((value for each in around if (value := whole(each.module, *_EXPERTS))), None)
        if count and count > 1:
            chosen = next((value for each in around if (value := whole(each.module, *_CHOSEN))), None)
            found.append((node, float(count), chosen))
    return found


def _beside(node: _Node) -> list[_Node]:
    return [child for child in node.parent.children if child is not node] if node.parent is not None else []


def _alike(nodes: list[_Node]) -> bool:
    return len({node.classes[0] for node in nodes}) == 1


def _blocks(nodes: list[_Node]) -> list[_Node]:
    """Modules of several layers that stand in a list of their like, outermost ones only."""
    blocks: list[_Node] = []
    inside: set[int] = set()
    for node in nodes:
        is_list = node.name != "experts" and any(name in ("ModuleList", "Sequential") for name in node.classes)
        members = [child for child in node.children if child.children]
        if id(node) in inside or not is_list or not members or len(members) < len(node.children) or not _alike(members):
            continue
        blocks += members
        inside |= {id(each) for each in node.below()}
    return blocks


def _logical_size(node: _Node) -> tuple[float | None, list[_Tensor]]:
    """Parameters that a module itself stands for, unpacked, and its tensors; None: one is not initialised yet."""
    sizes = [tensor.size for tensor in node.tensors]
    if None in sizes:
        return None, node.tensors
    size = sum(value for value in sizes if value is not None)
    features = _features(node) if node.kind == "linear" else None
    if features and size < math.prod(features) and (node.buffers or all(each.empty for each in node.below())):
        size += math.prod(features)  # quantised: the weights are buffers, or no tensors at all
    return size, node.tensors


def _is_sparse_table(node: _Node) -> bool:
    return node.kind == "embedding" and (
        any("EmbeddingBag" in name for name in node.classes) or attribute(node.module, "sparse") is True
    )


def _commonest(values: list[float]) -> float:
    return Counter(values).most_common(1)[0][0] if values else 0.0
