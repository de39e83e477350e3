"""Where the gradients of a step are summed: in the slots of a buffer, one for each row.

On a small graph the slot of a row is its id. On a large one a buffer for all rows would be twice as
large as the table itself, and most of it would be zero: a batch names few rows. There each place of
a batch that names an entity has a number, and the first place that adds to the gradient of a row
becomes the row's slot. Which place is the first, depends on the order in which programs run; but
sums of whole numbers are the same in any slot.
"""

import triton
import triton.language as tl


@triton.jit
def slot_of(slots, owners, row, place, active, COMPACT: tl.constexpr):
    """Return the slot of a row and write down whose it is, if there is something to add.

    slots [E] holds slot + 1 of the rows that have one, owners [slots] row + 1; else zero. Of
    another place that is not ``active`` the result must not be used.
    """
    slot = row.to(tl.int64)
    if COMPACT:
        # What is never there is never exchanged: an inactive place only looks.
        free = tl.where(active, 0, -1).to(tl.int32)
        mine = place.to(tl.int32) + 1
        before = tl.atomic_cas(slots + slot, free, mine, sem="relaxed")
        slot = tl.where(before == 0, mine, before).to(tl.int64) - 1
    tl.store(owners + slot, row.to(tl.int32) + 1, active)
    return slot
