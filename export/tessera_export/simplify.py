# SPDX-License-Identifier: MIT
"""Make a traced graph smaller before it is compiled: every node costs compile time, some cost run time."""

import operator

import torch
from torch import Tensor, fx

#: A folded constant may have this many numbers whatever it was computed from; above, it may not outgrow its inputs
#: (weights that are repeated for every row of a degree would make the artifact three times as large).
LARGEST_FREE_CONSTANT = 65536
#: How a slice without an end is recorded.
END_OF_AXIS = 2**63 - 1


def simplify(module: fx.GraphModule) -> None:
    """Drop identities, fold what depends on weights alone, merge repeated operations, drop what nothing uses.

    Extents are read where their tensors are made, so that who asks late for one does not keep the numbers. A matrix
    product over one term becomes a multiplication, so that compiled code takes any number of rows.

    Operators of tessera:: are neither folded nor merged: exchanges are acts, not values.

    Raises:
        ValueError: the graph changes a tensor in place, so that equal operations need not give equal values.
    """
    for node in module.graph.nodes:
        if _is_mutating(node):
            raise ValueError(f"{node.target} changes a tensor in place; expected a graph of pure operations")
    _drop_identities(module.graph)
    _multiply_single_terms(module)
    _merge_repeats(module.graph)
    _fold_constants(module)
    _read_extents_at_once(module.graph)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    _drop_unused_constants(module)


def _is_mutating(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable  # noqa: SLF001


def _drop_identities(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.detach.default or _is_whole_slice(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _is_whole_slice(node: fx.Node) -> bool:
    """Whether a node is x[:] or the backward pass of it, which `x[:, a:b]` leaves behind for each axis."""
    if node.target is torch.ops.aten.slice.Tensor:
        _, _, start, end, step = (*node.args, *(0, 0, END_OF_AXIS, 1)[len(node.args) - 1 :])
    elif node.target is torch.ops.aten.slice_backward.default:
        _, _, _, start, end, step = node.args
    else:
        return False
    return start in (0, None) and step == 1 and (end is None or (isinstance(end, int) and end >= END_OF_AXIS))


def _multiply_single_terms(module: fx.GraphModule) -> None:
    """Write [N, 1] @ [1, C] as a multiplication: Inductor would decide between the two by N, and so bound N below."""
    for node in module.graph.nodes:
        if node.target is torch.ops.aten.mm.default and _shape(module, node.args[1])[0] == 1:
            node.target = torch.ops.aten.mul.Tensor


def _shape(module: fx.GraphModule, node: fx.Node) -> torch.Size:
    return operator.attrgetter(node.target)(module).shape if node.op == "get_attr" else node.meta["val"].shape


def _read_extents_at_once(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.sym_size.int and node.args[0].op != "placeholder":
            node.args[0].append(node)


def _is_pure(node: fx.Node) -> bool:
    if node.op != "call_function" or node.is_impure():
        return False
    if isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001
        is_random = torch.Tag.nondeterministic_seeded in node.target.tags
        return node.target.namespace != "tessera" and not is_random
    return True


def _merge_repeats(graph: fx.Graph) -> None:
    seen: dict[object, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op == "get_attr":
            key = ("get_attr", node.target)
        elif _is_pure(node):
            key = (node.target, _freeze(node.args), _freeze(node.kwargs))
        else:
            continue
        try:
            first = seen.setdefault(key, node)
        except TypeError:  # an argument that cannot be hashed
            continue
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _freeze(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _freeze(item)) for key, item in value.items())
    return (type(value), value)  # 1, 1.0 and True are equal but not the same argument


def _fold_constants(module: fx.GraphModule) -> None:
    graph = module.graph
    values: dict[fx.Node, object] = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            values[node] = operator.attrgetter(node.target)(module)
        elif _is_pure(node) and node.all_input_nodes and all(source in values for source in node.all_input_nodes):
            arguments = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            result = node.target(*arguments[0], **arguments[1])
            if not isinstance(result, Tensor) or _is_worth_folding(node, result, values):
                values[node] = result
    for node in [node for node in values if node.op != "get_attr"]:
        is_read_by_others = any(user not in values for user in node.users)
        if is_read_by_others and isinstance(values[node], Tensor):
            _replace_by_constant(module, node, values[node])


def _is_worth_folding(node: fx.Node, result: Tensor, values: dict[fx.Node, object]) -> bool:
    largest = max((values[source].numel() for source in node.all_input_nodes if isinstance(values[source], Tensor)),
                  default=0)  # fmt: skip
    return result.numel() <= max(LARGEST_FREE_CONSTANT, largest)


def _replace_by_constant(module: fx.GraphModule, node: fx.Node, value: Tensor) -> None:
    name = f"_folded_{node.name}"
    module.register_buffer(name, value.detach().clone(memory_format=torch.contiguous_format))
    with module.graph.inserting_before(node):
        constant = module.graph.get_attr(name)
    constant.meta = dict(node.meta)
    node.replace_all_uses_with(constant)
    module.graph.erase_node(node)


def _drop_unused_constants(module: fx.GraphModule) -> None:
    used = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    for names in (module._parameters, module._buffers):  # noqa: SLF001
        for name in [name for name in names if name not in used]:
            del names[name]
    for name in [key for key, value in vars(module).items() if isinstance(value, Tensor) and key not in used]:
        delattr(module, name)
