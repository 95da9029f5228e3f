"""Predicted seconds, memory and price of training a transformer on a cluster.

    Shape    layers, width, heads, vocabulary ...   ┐
    Device   peak, memory, links, network           ├─ Runs ─┬─ seconds by part
    Mesh     tensor, stage, data, context ...       ┘        └─ bytes by part

`Runs` holds one column for each size; an entry of a column is one run or one mesh, so
the same formulas predict a single run and all meshes of 4,096 devices. `physics` has
the numbers that all devices share, `calibration` the two constants of each device and
precision, fitted to published runs (`published`, `fitting`, `validation`).
"""
