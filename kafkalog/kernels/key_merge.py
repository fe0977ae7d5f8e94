"""The last offset of each key over several tables of keys, as a cleaning in pieces asks for it.

Rows are those of `SkimpyOffsetMap.entries`: the halves of a key's hash and its last offset + 1, 0
for a key that is only asked for. A hash table of row numbers, probed as the cleaner's map is: rows
that come out of such a map lie in the order of their slots, so that each table is one walk through
memory, where a sort of them all would be a dozen. Any thread.
"""

from __future__ import annotations

from kafkalog.kernels.compile import I64, I64_TABLE_OUT, I64S, I64S_OUT, Int64s, Int64Table, kernel

_LOW, _HIGH, _OFFSET = 0, 1, 2


@kernel(I64(I64_TABLE_OUT, I64S, I64S_OUT, I64S_OUT, I64S_OUT, I64S_OUT))
def merge_rows(
    rows: Int64Table,
    ends: Int64s,
    slots: Int64s,
    firsts: Int64s,
    owners: Int64s,
    kept_ends: Int64s,
) -> int:
    """Leave in each table each of its keys once, with the largest offset of all tables.

    rows       int64[n, 3]  the tables, one behind the other; out: what is left, likewise
    ends       int64[t]     where each ends
    slots      int64[s]     working memory, more than n, all 0
    firsts, owners  int64[n]  working memory
    kept_ends  int64[t]     out: where each ends in what is left
    Keys whose largest offset is 0 go. The number of rows that are left; -1 for too little memory.
    """
    count = len(rows)
    is_short = len(firsts) < count or len(owners) < count or len(kept_ends) < len(ends)
    if is_short or len(slots) <= count:
        return -1
    for row in range(count):
        low, high = rows[row, _LOW], rows[row, _HIGH]
        slot = (low & 0xFFFFFFFF) * len(slots) >> 32
        while slots[slot] != 0:
            first = slots[slot] - 1
            if rows[first, _LOW] == low and rows[first, _HIGH] == high:
                break
            slot += 1
            if slot == len(slots):
                slot = 0
        if slots[slot] == 0:
            slots[slot] = row + 1
            owners[row] = -1
        first = slots[slot] - 1
        firsts[row] = first
        rows[first, _OFFSET] = max(rows[first, _OFFSET], rows[row, _OFFSET])
    for row in range(count):
        rows[row, _OFFSET] = rows[firsts[row], _OFFSET]
    kept, row = 0, 0
    for table in range(len(ends)):
        while row < min(ends[table], count):
            first = firsts[row]
            if owners[first] != table and rows[row, _OFFSET] != 0:
                owners[first] = table
                rows[kept, _LOW] = rows[row, _LOW]
                rows[kept, _HIGH] = rows[row, _HIGH]
                rows[kept, _OFFSET] = rows[row, _OFFSET]
                kept += 1
            row += 1
        kept_ends[table] = kept
    return kept
