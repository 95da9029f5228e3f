"""Scans: rank r gets the reduction over ranks 0 … r, or 0 … r-1 (exclusive).

Operands keep the order of the ranks: the operation need not be commutative. See
docs/allreduce.md.
"""
