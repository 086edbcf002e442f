"""Grades drafts: those that were verified, and in hindsight those that were not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import DraftOutcomes, IntArray

Ids = Sequence[int]

# Requests keep their turn for so many steps: a draft needs several to be graded to its end.
_TURN_STEPS = 16


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

    def __init__(self, max_depth: int, *, max_requests: int = 32, max_pending: int = 128) -> None:
        if max_requests < 1:
            raise ValueError(f"max_requests must be >= 1, got {max_requests}")
        self.max_depth = max_depth
        self.max_requests = max_requests
        self.max_pending = max_pending
        self.dropped = 0
        self.pending = 0
        # By slot: (ids, tokens known to match, length, number, drafted_by, verified_by).
        self._pending: dict[int, list[tuple[Ids, int, int, int, int, int]]] = {}

    def drop(self, slot: int) -> None:
        """Forget the pending drafts of one request: it ended or lost its place."""
        self.pending -= len(self._pending.pop(slot, ()))

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
        older: list[int] = []
        if proposals is not None or self.pending:
            rows: list[int] = []
            in_turn: npt.NDArray[np.bool_] | None = None
            if n > self.max_requests:
                begin = step // _TURN_STEPS * self.max_requests
                in_turn = (np.arange(n) - begin) % n < self.max_requests
            if proposals is not None:
                open_rows = (matched == verified) & (proposed > verified)
                if in_turn is not None:
                    self.dropped += int(np.count_nonzero(open_rows & ~in_turn))
                    open_rows &= in_turn
                rows = open_rows.nonzero()[0].tolist()
            going: list[tuple[int, int]] = []
            if rows and proposals is not None:
                going = self._grade_bonus(
                    rows, verified.tolist(), tokens, proposals, graded, matched
                )
            if self.pending:
                older = self._grade_pending(slots.tolist(), tokens, graded.tolist(), in_turn)
            if going and proposals is not None:
                self._keep(step, going, slots, numbers, drafted_by, proposals)
        current = (
            numbers,
            drafted_by,
            np.where(verified > 0, step, -1),
            proposed,
            verified,
            accepted,
            np.zeros(n, dtype=np.int64),
            graded,
            matched,
            graded,
        )
        if older:
            rows_of_older: IntArray = np.array(older, dtype=np.int64).reshape(-1, 10).T
            out: IntArray = np.empty((10, n + rows_of_older.shape[1]), dtype=np.int64)
            for field, values in enumerate(current):
                out[field, :n] = values
            out[:, n:] = rows_of_older
            current = tuple(out)
        return DraftOutcomes(
            request=current[0],
            drafted_by=current[1],
            verified_by=current[2],
            proposed=current[3],
            verified=current[4],
            accepted=current[5],
            start=current[6],
            graded=current[7],
            matched=current[8],
            fresh=current[9],
        )

    @staticmethod
    def _grade_bonus(
        rows: list[int],
        verified: list[int],
        tokens: Sequence[Ids],
        proposals: Sequence[Ids],
        graded: IntArray,
        matched: IntArray,
    ) -> list[tuple[int, int]]:
        """Grade the token behind the verified part by the bonus token.

        Returns the rows whose draft still matches and goes on, with the tokens verified.
        """
        seen, right, going = [], [], []
        for row in rows:
            k, draft, committed = verified[row], proposals[row], tokens[row]
            # A stop inside the accepted block leaves no bonus token; -1 is no draft.
            if len(draft) <= k or len(committed) <= k or draft[k] < 0:
                continue
            seen.append(row)
            if draft[k] == committed[k]:
                right.append(row)
                if k + 1 < len(draft):
                    going.append((row, k))
        graded[seen] += 1
        matched[right] += 1
        return going

    def _keep(
        self,
        step: int,
        going: list[tuple[int, int]],
        slots: IntArray,
        numbers: IntArray,
        drafted_by: IntArray,
        proposals: Sequence[Ids],
    ) -> None:
        """Keep drafts that later tokens will grade; refuse and count what is too many.

        The choice depends on nothing that is still unknown, so that it biases no grade.
        """
        room = max(0, self.max_pending - self.pending)
        self.dropped += max(0, len(going) - room)
        going = going[:room]
        rows = [row for row, _ in going]
        pending, depth = self._pending, self.max_depth
        for (row, k), slot, number, by in zip(
            going,
            slots[rows].tolist(),
            numbers[rows].tolist(),
            drafted_by[rows].tolist(),
            strict=True,
        ):
            draft = proposals[row]
            entry = (draft, k + 1, min(len(draft), depth), number, by, step if k else -1)
            if slot in pending:
                pending[slot].append(entry)
            else:
                pending[slot] = [entry]
        self.pending += len(going)

    def _grade_pending(
        self,
        slots: list[int],
        tokens: Sequence[Ids],
        graded: list[int],
        in_turn: npt.NDArray[np.bool_] | None,
    ) -> list[int]:
        """Compare pending drafts with the tokens just committed.

        Returns rows of a `DraftOutcomes`, one after the other.
        """
        pending = self._pending
        out: list[int] = []
        for row, slot in enumerate(slots):
            drafts = pending.get(slot)
            if drafts is None:
                continue
            if in_turn is not None and not in_turn[row]:
                self.dropped += len(drafts)
                self.drop(slot)
                continue
            committed, seen, going = tokens[row], graded[row], []
            count = len(committed)
            for draft, start, length, number, by, verified_by in drafts:
                known = min(length - start, count)
                right = 0
                while right < known and draft[start + right] == committed[right]:
                    right += 1
                known = min(known, right + 1)
                if known:
                    # A token that grades several drafts counts once, for the first of them.
                    fresh = max(0, known - seen)
                    seen += fresh
                    out += (number, by, verified_by, length, 0, 0, start, known, right, fresh)
                if right == known and start + right < length:
                    going.append((draft, start + right, length, number, by, verified_by))
            self.pending -= len(drafts) - len(going)
            if going:
                pending[slot] = going
            else:
                del pending[slot]
        return out
