"""Grades drafts: those that were verified, and in hindsight those that were not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from acclimate.controller.records import DraftOutcomes, IntArray
from acclimate.predictors.compiled import compiled

Ids = Sequence[int]
Flat = tuple[IntArray, IntArray]
"""Token ids of several rows one after the other, and how many belong to each row."""

_COLUMNS = 10  # fields of a `DraftOutcomes`, in its order
# Columns of a pending draft: where its request lives, its number, and what the draft was.
_SLOT, _NUMBER, _DRAFTED_BY, _VERIFIED_BY, _START, _LENGTH = range(6)


class DraftGrader:
    """Turns a step's drafts and tokens into the rows of a `DraftOutcomes`.

    A draft whose verified part was right throughout stays pending while the tokens that the
    request commits repeat it, so that the part that was cut is graded too: for deterministic
    drafts "the committed token equals the draft" has the law of "the draft would be accepted".

    Parameters
    ----------
    max_depth
        Tokens per draft at most; so many drafts of a request can be pending at most.
    max_pending
        Drafts pending at most. What finds no room is dropped and counted; which drafts those are
        depends on nothing that is still unknown, so that it biases no grade.

    Examples
    --------
    Of the draft [7, 8, 9] one token was verified; the target wrote 7, then 8, later 5:

    >>> from acclimate.controller.records import int_array
    >>> grader = DraftGrader(max_depth=3)
    >>> one, none = int_array([1]), int_array([0])
    >>> first = grader.grade(
    ...     step=2, slots=none, numbers=one, drafted_by=one, proposed=int_array([3]),
    ...     verified=one, accepted=one,
    ...     tokens=flat_ids([[7, 8]]), proposals=flat_ids([[7, 8, 9]]))
    >>> first.graded.tolist(), first.matched.tolist()
    ([2], [2])
    >>> second = grader.grade(
    ...     step=3, slots=none, numbers=one, drafted_by=int_array([-1]), proposed=none,
    ...     verified=none, accepted=none,
    ...     tokens=flat_ids([[5]]), proposals=None)
    >>> second.start.tolist(), second.graded.tolist(), second.matched.tolist()
    ([0, 2], [0, 1], [0, 0])
    """

    def __init__(self, max_depth: int, *, max_pending: int = 512) -> None:
        if max_pending < 1:
            raise ValueError(f"max_pending must be >= 1, got {max_pending}")
        self.max_depth = max_depth
        self.max_pending = max_pending
        self.dropped = 0
        self.pending = 0
        self._ids = np.zeros((max_pending, max(max_depth, 1)), dtype=np.int64)
        self._about = np.zeros((max_pending, 6), dtype=np.int64)

    def drop(self, slot: int) -> None:
        """Forget the pending drafts of one request: it ended or lost its place."""
        if self.pending:
            self.pending = _drop(self._ids, self._about, self.pending, slot)

    def grade(
        self,
        *,
        step: int,
        slots: IntArray,
        numbers: IntArray,
        drafted_by: IntArray,
        proposed: IntArray,
        verified: IntArray,
        accepted: IntArray,
        tokens: Flat,
        proposals: Flat | None,
    ) -> DraftOutcomes:
        """Grade one step; all arguments share the order of its decode requests.

        Parameters
        ----------
        step
            Number of the step.
        slots, numbers
            Where the request's state lives (a small number that is used again), and the
            request's number in the loop.
        drafted_by, proposed, verified, accepted
            Of the drafts that were at hand, as in `DraftOutcomes`.
        tokens
            What each request committed in the step.
        proposals
            Ids of the whole drafts, beyond the verified part; empty where they are unknown.
            None: no new draft can be graded in hindsight.
        """
        drafts = proposals or (np.zeros(0, dtype=np.int64), np.zeros_like(slots))
        rows, self.pending, dropped = _grade(
            step,
            slots,
            numbers,
            drafted_by,
            proposed,
            verified,
            accepted,
            *tokens,
            *drafts,
            self._ids,
            self._about,
            self.pending,
        )
        self.dropped += dropped
        return DraftOutcomes(
            request=rows[0],
            drafted_by=rows[1],
            verified_by=rows[2],
            proposed=rows[3],
            verified=rows[4],
            accepted=rows[5],
            start=rows[6],
            graded=rows[7],
            matched=rows[8],
            fresh=rows[9],
        )


def flat_ids(lists: Sequence[Ids]) -> Flat:
    """Return all ids one after the other, and how many belong to each list.

    >>> ids, lens = flat_ids([[7, 8], [], [9]])
    >>> ids.tolist(), lens.tolist()
    ([7, 8, 9], [2, 0, 1])
    """
    lens = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    return np.fromiter(chain.from_iterable(lists), dtype=np.int64), lens


@compiled("i8(i8[:,::1], i8[:,::1], i8, i8)")
def _drop(pending_ids: IntArray, pending: IntArray, n_pending: int, slot: int) -> int:
    """Close the ranks without the drafts of one slot; return how many are left."""
    kept = 0
    for p in range(n_pending):
        if pending[p, _SLOT] != slot:
            pending_ids[kept] = pending_ids[p]
            pending[kept] = pending[p]
            kept += 1
    return kept


@compiled(
    "Tuple((i8[:,::1], i8, i8))(i8, i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1],"
    "i8[::1], i8[::1], i8[::1], i8[::1], i8[:,::1], i8[:,::1], i8)"
)
def _grade(
    step: int,
    slots: IntArray,
    numbers: IntArray,
    drafted_by: IntArray,
    proposed: IntArray,
    verified: IntArray,
    accepted: IntArray,
    committed: IntArray,
    committed_lens: IntArray,
    drafts: IntArray,
    draft_lens: IntArray,
    pending_ids: IntArray,
    pending: IntArray,
    n_pending: int,
) -> tuple[IntArray, int, int]:
    """Return the rows of a `DraftOutcomes`, the drafts now pending, and those dropped."""
    n = slots.shape[0]
    out = np.zeros((_COLUMNS, n + n_pending), dtype=np.int64)
    row_of_slot = np.full(int(slots.max()) + 1 if n else 0, -1)
    begin = np.zeros(n, dtype=np.int64)
    seen = np.zeros(n, dtype=np.int64)
    goes_on = np.zeros(n, dtype=np.bool_)
    at, draft_at = 0, 0
    for r in range(n):
        row_of_slot[slots[r]] = r
        begin[r] = at
        k = verified[r]
        matched = min(accepted[r], k)
        graded = min(accepted[r] + 1, k)
        # All verified tokens were right: the bonus token grades the next one. A stop inside the
        # accepted block leaves no bonus token; -1 is no draft.
        if (
            matched == k
            and draft_lens[r] > k
            and committed_lens[r] > k
            and drafts[draft_at + k] >= 0
        ):
            graded += 1
            if drafts[draft_at + k] == committed[at + k]:
                matched += 1
                goes_on[r] = draft_lens[r] > k + 1
        out[0, r] = numbers[r]
        out[1, r] = drafted_by[r]
        out[2, r] = step if k > 0 else -1
        out[3, r] = proposed[r]
        out[4, r] = k
        out[5, r] = accepted[r]
        out[7, r] = graded
        out[8, r] = matched
        out[9, r] = graded
        seen[r] = graded
        at += committed_lens[r]
        draft_at += draft_lens[r]
    n_out, kept = n, 0
    for p in range(n_pending):
        slot = pending[p, _SLOT]
        r = row_of_slot[slot] if slot < row_of_slot.shape[0] else -1
        start, length = pending[p, _START], pending[p, _LENGTH]
        known, right = 0, 0
        if r >= 0:
            known = min(length - start, committed_lens[r])
            while right < known and pending_ids[p, start + right] == committed[begin[r] + right]:
                right += 1
            known = min(known, right + 1)
        if known:
            out[0, n_out] = pending[p, _NUMBER]
            out[1, n_out] = pending[p, _DRAFTED_BY]
            out[2, n_out] = pending[p, _VERIFIED_BY]
            out[3, n_out] = length
            out[6, n_out] = start
            out[7, n_out] = known
            out[8, n_out] = right
            # A token that grades several drafts counts once, for the first of them.
            out[9, n_out] = max(0, known - seen[r])
            seen[r] = max(seen[r], known)
            n_out += 1
        if right == known and start + right < length:
            pending_ids[kept] = pending_ids[p]
            pending[kept] = pending[p]
            pending[kept, _START] = start + right
            kept += 1
    dropped, draft_at = 0, 0
    for r in range(n):
        if goes_on[r]:
            if kept == pending.shape[0]:
                dropped += 1
            else:
                length = 0
                while (
                    length < min(draft_lens[r], pending_ids.shape[1])
                    and drafts[draft_at + length] >= 0
                ):
                    pending_ids[kept, length] = drafts[draft_at + length]
                    length += 1
                pending[kept, _SLOT] = slots[r]
                pending[kept, _NUMBER] = numbers[r]
                pending[kept, _DRAFTED_BY] = drafted_by[r]
                pending[kept, _VERIFIED_BY] = step if verified[r] > 0 else -1
                pending[kept, _START] = verified[r] + 1
                pending[kept, _LENGTH] = length
                kept += 1 if length > pending[kept, _START] else 0
        draft_at += draft_lens[r]
    return out[:, :n_out].copy(), kept, dropped
