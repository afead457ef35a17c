"""The one operation: attention of queries over keys.

`Attention` says what weight, an engine sums `Products`, `attend` returns their `Moments`;
`BlockReader` hands out the weights themselves, for what needs each of them.
"""

from skattn._attention._attend import attend, attend_blocks, attend_exactly
from skattn._attention._attention import Attention, KeyScale, Products
from skattn._attention._blocks import BlockReader, TopWeights, WeightBlock, read_blocks
from skattn._attention._moments import Moments, Want, merge
from skattn._attention._resources import Resources, run_blocks, single_threaded_blas, slices

__all__ = [
    "Attention",
    "BlockReader",
    "KeyScale",
    "Moments",
    "Products",
    "Resources",
    "TopWeights",
    "Want",
    "WeightBlock",
    "attend",
    "attend_blocks",
    "attend_exactly",
    "merge",
    "read_blocks",
    "run_blocks",
    "single_threaded_blas",
    "slices",
]
