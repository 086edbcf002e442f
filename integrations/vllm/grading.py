"""Grades drafts: those that were verified, and in hindsight those that were not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import DraftOutcomes, IntArray

Ids = Sequence[int]

# Requests keep their turn for so many steps: a draft needs several to be graded to its end.
_TURN_STEPS = 16
# Columns behind the token ids of a pending draft.
_SLOT, _NUMBER, _DRAFTED_BY, _VERIFIED_BY, _LENGTH, _OFFSET, _EXTRA = range(7)


class DraftGrader:
    """Turns a step's drafts and tokens into the rows of a `DraftOutcomes`.

    A draft whose verified part was right throughout stays pending while the tokens that the
    request commits repeat it, so that the part that was cut is graded too: for deterministic
    drafts "the committed token equals the draft" has the law of "the draft would be accepted".

    Parameters
    ----------
    max_depth
        Tokens per draft at most; so many drafts of a request can be pending at most.
    max_requests
        Requests per step that get this hindsight; of more than that, the others' unverified
        tokens are dropped and counted. Whose turn it is depends on the step alone.

    Examples
    --------
    Of the draft [7, 8, 9] one token was verified; the target wrote 7, then 8, later 5:

    >>> from acclimate.controller.records import int_array
    >>> grader = DraftGrader(max_depth=3)
    >>> one, none = int_array([1]), int_array([0])
    >>> first = grader.grade(
    ...     step=2, slots=none, numbers=one, drafted_by=one, proposed=int_array([3]),
    ...     verified=one, accepted=one, tokens=[[7, 8]], proposals=[[7, 8, 9]])
    >>> first.graded.tolist(), first.matched.tolist()
    ([2], [2])
    >>> second = grader.grade(
    ...     step=3, slots=none, numbers=one, drafted_by=int_array([-1]), proposed=none,
    ...     verified=none, accepted=none, tokens=[[5]], proposals=[[]])
    >>> second.start.tolist(), second.graded.tolist(), second.matched.tolist()
    ([0, 2], [0, 1], [0, 0])
    """

    def __init__(self, max_depth: int, max_requests: int = 64) -> None:
        if max_requests < 1:
            raise ValueError(f"max_requests must be >= 1, got {max_requests}")
        self.max_depth = max_depth
        self.max_requests = max_requests
        self.dropped = 0
        self._pending: IntArray = np.empty((0, max_depth + _EXTRA - 1), dtype=np.int64)
        self._row_of_slot: IntArray = np.full(64, -1, dtype=np.int64)

    @property
    def pending(self) -> int:
        """How many drafts may still be graded."""
        return len(self._pending)

    def drop(self, slot: int) -> None:
        """Forget the pending drafts of one request: it ended or lost its place."""
        if len(self._pending):
            self._pending = self._pending[self._pending[:, self.max_depth + _SLOT] != slot]

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
        tokens: Sequence[Ids],
        proposals: Sequence[Ids] | None,
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
        n = len(tokens)
        matched = np.minimum(accepted, verified)
        graded = np.minimum(accepted + 1, verified)
        older = None
        if proposals is not None or len(self._pending):
            in_turn = None
            if n > self.max_requests:
                begin = step // _TURN_STEPS * self.max_requests
                in_turn = (np.arange(n) - begin) % n < self.max_requests
            if len(self._pending):
                older = self._grade_pending(slots, tokens, in_turn)
            if proposals is not None:
                open_rows = (matched == verified) & (proposed > verified)
                if in_turn is not None:
                    self.dropped += int((open_rows & ~in_turn).sum())
                    open_rows &= in_turn
                rows = open_rows.nonzero()[0].tolist()
                if rows:
                    self._grade_bonus(
                        step, rows, slots, numbers, drafted_by, verified, tokens, proposals,
                        graded, matched,
                    )  # fmt: skip
        count = 0 if older is None else len(older[0])
        out: IntArray = np.zeros((10, n + count), dtype=np.int64)
        out[0, :n] = numbers
        out[1, :n] = drafted_by
        out[2, :n] = step
        out[2, :n][verified == 0] = -1
        out[3, :n] = proposed
        out[4, :n] = verified
        out[5, :n] = accepted
        out[7, :n] = graded
        out[8, :n] = matched
        out[9, :n] = graded
        if older is not None and count:
            drafts, row, old_graded, old_matched = older
            details = drafts[:, self.max_depth :].T
            out[0, n:] = details[_NUMBER]
            out[1, n:] = details[_DRAFTED_BY]
            out[2, n:] = details[_VERIFIED_BY]
            out[3, n:] = details[_LENGTH]
            out[6, n:] = details[_OFFSET]
            out[7, n:] = old_graded
            out[8, n:] = old_matched
            # A token that grades several drafts counts once: the current draft comes first.
            more = (old_graded > graded[row]).nonzero()[0].tolist()
            if more:
                seen = graded.tolist()
                for index in more:
                    at, now = int(row[index]), int(old_graded[index])
                    out[9, n + index] = max(0, now - seen[at])
                    seen[at] = max(seen[at], now)
        return DraftOutcomes(
            request=out[0],
            drafted_by=out[1],
            verified_by=out[2],
            proposed=out[3],
            verified=out[4],
            accepted=out[5],
            start=out[6],
            graded=out[7],
            matched=out[8],
            fresh=out[9],
        )

    def _grade_bonus(
        self,
        step: int,
        rows: list[int],
        slots: IntArray,
        numbers: IntArray,
        drafted_by: IntArray,
        verified: IntArray,
        tokens: Sequence[Ids],
        proposals: Sequence[Ids],
        graded: IntArray,
        matched: IntArray,
    ) -> None:
        """Grade the token behind the verified part by the bonus token; keep what still matches."""
        lens = verified.tolist()
        seen, right, kept = [], [], []
        depth = self.max_depth
        for row in rows:
            k, draft, committed = lens[row], proposals[row], tokens[row]
            # A stop inside the accepted block leaves no bonus token; -1 is no draft.
            if len(draft) <= k or len(committed) <= k or draft[k] < 0:
                continue
            seen.append(row)
            if draft[k] == committed[k]:
                right.append(row)
                length = min(len(draft), depth)
                if k + 1 < length:
                    padding = [-1] * (depth - length)
                    by = step if k else -1
                    kept.append([*draft[:length], *padding, 0, 0, 0, by, length, k + 1])
        graded[seen] += 1
        matched[right] += 1
        if kept:
            fresh: IntArray = np.array(kept, dtype=np.int64)
            keep = right
            if len(kept) < len(right):
                keep = [row for row in right if lens[row] + 1 < min(len(proposals[row]), depth)]
            fresh[:, depth + _SLOT] = slots[keep]
            fresh[:, depth + _NUMBER] = numbers[keep]
            fresh[:, depth + _DRAFTED_BY] = drafted_by[keep]
            self._pending = np.concatenate((self._pending, fresh)) if self.pending else fresh

    def _grade_pending(
        self, slots: IntArray, tokens: Sequence[Ids], in_turn: npt.NDArray[np.bool_] | None
    ) -> tuple[IntArray, IntArray, IntArray, IntArray] | None:
        """Compare pending drafts with the tokens just committed.

        Returns the drafts that were graded (as they were before), the row each belongs to, how
        many of their tokens were graded and how many matched.
        """
        depth, pending = self.max_depth, self._pending
        if len(slots) and slots.max() >= len(self._row_of_slot):
            self._row_of_slot = np.full(2 * int(slots.max()) + 1, -1, dtype=np.int64)
        self._row_of_slot[slots] = np.arange(len(slots))
        at = pending[:, depth + _SLOT]
        row = np.where(at < len(self._row_of_slot), self._row_of_slot.take(at, mode="clip"), -1)
        self._row_of_slot[slots] = -1
        if in_turn is not None:
            late = (row >= 0) & ~in_turn[row]
            if late.any():
                self.dropped += int(late.sum())
                pending, row = pending[~late], row[~late]
        here = row >= 0
        waiting = None
        if not here.all():
            waiting, pending, row = pending[~here], pending[here], row[here]
        if not len(pending):
            self._pending = pending if waiting is None else waiting
            return None
        counts: IntArray = np.fromiter(map(len, tokens), dtype=np.int64, count=len(tokens))
        ends = counts.cumsum()
        flat: IntArray = np.fromiter(chain.from_iterable(tokens), np.int64, count=int(ends[-1]))
        offset = pending[:, depth + _OFFSET]
        known = np.minimum(pending[:, depth + _LENGTH] - offset, counts[row])
        most = int(known.max())
        if most == 0:
            self._pending = pending if waiting is None else np.concatenate((waiting, pending))
            return None
        ahead = np.arange(most)
        drafted = np.take_along_axis(
            pending, np.minimum(offset[:, None] + ahead, depth - 1), axis=1
        )
        committed = flat.take((ends - counts)[row][:, None] + ahead, mode="clip")
        agree = (drafted == committed) & (ahead < known[:, None])
        matched = np.logical_and.accumulate(agree, axis=1).sum(axis=1)
        graded = np.minimum(matched + 1, known)
        after = offset + matched
        going = (matched == graded) & (after < pending[:, depth + _LENGTH])
        rest = pending[going]
        rest[:, depth + _OFFSET] = after[going]
        self._pending = rest if waiting is None else np.concatenate((waiting, rest))
        some = graded > 0
        if some.all():
            return pending, row, graded, matched
        return pending[some], row[some], graded[some], matched[some]
