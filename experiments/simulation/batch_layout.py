"""How a simulated engine keeps its batch in arrays: the columns and rows that its kernels share.

A request's state is one row of ``state``; ``running`` and ``queue`` hold rows. ``cursor`` counts
what is in the arrays. A request decodes when all but its last token is computed.
"""

from __future__ import annotations

# Columns of a request's state.
(
    PROMPT,
    OUTPUT,
    LIMIT,
    SAMPLED,
    COMPUTED,
    COMMITTED,
    DRAFTS,
    RUN,
    DRAFTED_BY,
    BLOCKS,
    SLOT,
    FIRST_NS,
    LAST_NS,
    ARRIVAL_NS,
) = range(14)
COLUMNS = 14

# Entries of the cursor: the queue's ends, running requests, free slots, free blocks of cache.
HEAD, TAIL, RUNNING, FREE_SLOTS, FREE_BLOCKS = range(5)

# Entries of the limits.
SEATS, BUDGET, BLOCK_TOKENS, PREFILL_FIRST = range(4)

# Rows of what `schedule_kernels.look` returns.
NUMBER, AT_HAND, DRAFTS_NOW, COMMITTED_NOW, CONTEXT, LEFT, ROW, SLOT_NOW, BY = range(9)

WRONG = 1 << 40
"""Id of a draft token that the target does not write; the true token at offset o has id o."""
