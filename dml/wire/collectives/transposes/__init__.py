"""All-to-alls of equal parts: rank r sends row q of its array to rank q.

The arrays of all ranks form a matrix of blocks, which an all-to-all transposes. See
docs/allreduce.md. For parts of unequal lengths there is `collectives.all_to_all`.
"""
