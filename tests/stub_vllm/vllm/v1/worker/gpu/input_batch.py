from dataclasses import dataclass
from typing import Any

import triton  # noqa: F401  no kernel is run


@dataclass
class InputBatch:
    num_tokens: int
    num_scheduled_tokens: Any
    num_computed_tokens_np: Any
    query_start_loc: Any
    seq_lens: Any
    input_ids: Any
    positions: Any
    is_prefilling_np: Any
