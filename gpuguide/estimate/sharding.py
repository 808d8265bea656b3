"""Over how many GPUs a replica's weights and states are sharded: what memory divides by and what collectives span."""

from __future__ import annotations

import numpy as np

from gpuguide.spec.hardware import Nodes
from gpuguide.spec.plan import Plan
from gpuguide.units import Number


def joined_ranks(*, ranks: Number, tensor_parallel: Number, nodes: Nodes) -> Number:
    """
    Of data-parallel or context ranks, those that the fast link joins.

    Parameters
    ----------
    ranks : number or array
        Ranks of one pipeline stage that exchange with each other. [-]
    tensor_parallel : number or array
        GPUs that share each of them. [-]
    nodes : Nodes
        GPUs joined by the fast link: those of one machine, or of a rack of them.

    Returns
    -------
    number or array
        At least 1. [-]

    Notes
    -----
    Tensor ranks are neighbours and pipeline stages are laid out last, so that a stage has a machine to itself before
    two stages share it. Sources: Megatron-LM (order tp-cp-ep-dp-pp), DeepSpeed (pipe, data, model), torchtitan device
    meshes.
    """
    joined: Number = np.maximum(np.minimum(ranks, nodes.all_reduce.domain_gpus / tensor_parallel), 1.0)
    return joined


def shard_ranks(*, plan: Plan, nodes: Nodes) -> Number:
    """
    GPUs over which ZeRO or FSDP shards what one tensor-parallel rank of one stage holds.

    Parameters
    ----------
    plan : Plan
        Degrees, and whether shards stay inside a node.
    nodes : Nodes
        GPUs of one machine, or of the rack that the fast link joins.

    Returns
    -------
    number or array
        All data-parallel and context ranks of a stage; where shards stay inside, the largest equal groups of them that
        a machine or rack holds. [-]

    Notes
    -----
    Each group keeps a copy. Source: Zhao et al. 2023, PyTorch FSDP, section 3.2.2, hybrid sharding (arXiv 2304.11277).
    """
    ranks = plan.data_parallel * plan.context_parallel
    held = np.maximum(nodes.all_reduce.domain_gpus, nodes.gpus_per_node) / plan.tensor_parallel
    groups = np.ceil(ranks / np.maximum(held, 1.0))
    return np.where(np.equal(plan.shard_in_node, 1), ranks / groups, ranks)
