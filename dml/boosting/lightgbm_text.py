"""A model in LightGBM's text format, with which LightGBM predicts, plots and explains.

    Tree=0
    num_leaves=3            leaf 0        decision_type: 1 a category, 2 missing values
    left_child=-1 -2   x[2] ┤             left, 8 NaN is missing
    right_child=1 -3        └ x[0] ┬ leaf 1
    …                              └ leaf 2

The start score is part of the leaves of the first tree of each output, as in LightGBM:
start + v_1 + v_2 + … are added in the same order, so that predictions have equal bits.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dml.boosting.model import Model
from dml.boosting.tree import Tree, bits_of
from dml.types import BadInput

CATEGORY, MISSING_LEFT, NAN_IS_MISSING = 1, 2, 8
OBJECTIVES = {
    "squared": "regression",
    "logistic": "binary sigmoid:1",
    "softmax": "multiclass num_class:{classes}",
}


def to_lightgbm(model: Model, names: Sequence[str] = ()) -> str:
    """Return the text of a model.

    Args:
      model: Model.
      names: Names of the columns; empty: Column_0, Column_1, …
    """
    names = list(names) or [f"Column_{i}" for i in range(model.columns)]
    if len(names) != model.columns or any(set(name) & set(" \n=") for name in names):
        raise BadInput(
            f"expected {model.columns} names without spaces and =, got {names[:9]}; "
            "correct them"
        )
    classes = len(model.start)
    trees = list(model.trees) or [constant(output) for output in range(classes)]
    blocks = [
        block(i, tree, float(model.start[tree.output]) if i < classes else 0.0)
        for i, tree in enumerate(trees)
    ]
    header = {
        "version": "v4",
        "num_class": classes,
        "num_tree_per_iteration": classes,
        "label_index": 0,
        "max_feature_idx": model.columns - 1,
        "objective": OBJECTIVES[model.loss].format(classes=classes),
        "feature_names": " ".join(names),
        "feature_infos": " ".join(infos(model)),
        "tree_sizes": " ".join(str(len(text.encode())) for text in blocks),
    }
    lines = ["tree", *(f"{name}={value}" for name, value in header.items()), "", ""]
    end = ["end of trees", "", "feature_importances:", "", "parameters:"]
    end += ["end of parameters", "", "pandas_categorical:null", ""]
    return "\n".join(lines) + "".join(blocks) + "\n".join(end)


def infos(model: Model) -> list[str]:
    """Return the range of each column, or its categories."""
    made = ["[-inf:inf]"] * model.columns
    for column in model.categories:
        found = {
            value
            for tree in model.trees
            for c, values in zip(tree.column.tolist(), tree.sets, strict=True)
            for value in values
            if c == column
        }
        made[column] = ":".join(map(str, sorted(found))) or "none"
    return made


def constant(output: int) -> Tree:
    """Return a tree of one leaf of value 0."""
    none, sums = np.zeros(0, np.int32), np.zeros((0, 3), np.int64)
    return Tree(
        column=none,
        bin=none,
        threshold=np.zeros(0),
        missing_left=np.zeros(0, bool),
        left=none,
        right=none,
        gain=np.zeros(0),
        sets=(),
        value=np.zeros(1),
        node_sums=sums,
        leaf_sums=np.zeros((1, 3), np.int64),
        units=(1.0, 1.0),
        output=output,
    )


def block(number: int, tree: Tree, start: float) -> str:
    """Return the text of a tree, with `start` added to the values of its leaves."""
    sets = [bits_of(values) for values in tree.sets if values]
    thresholds = tree.threshold.tolist()
    kinds = (NAN_IS_MISSING + MISSING_LEFT * tree.missing_left).tolist()
    place = 0
    for i, values in enumerate(tree.sets):
        if values:
            thresholds[i], kinds[i] = place, NAN_IS_MISSING + CATEGORY
            place += 1
    weights = tree.node_sums[:, 1] * tree.units[1]
    outputs = -tree.node_sums[:, 0] * tree.units[0] / np.maximum(weights, 1e-300)
    fields: dict[str, Iterable[Any]] = {
        "num_leaves": [len(tree.value)],
        "num_cat": [len(sets)],
        "split_feature": tree.column.tolist(),
        "split_gain": tree.gain.tolist(),
        "threshold": thresholds,
        "decision_type": kinds,
        "left_child": tree.left.tolist(),
        "right_child": tree.right.tolist(),
        "leaf_value": (start + tree.value).tolist(),
        "leaf_weight": (tree.leaf_sums[:, 1] * tree.units[1]).tolist(),
        "leaf_count": tree.leaf_sums[:, 2].tolist(),
        "internal_value": (start + outputs).tolist(),
        "internal_weight": weights.tolist(),
        "internal_count": tree.node_sums[:, 2].tolist(),
    }
    if sets:
        fields["cat_boundaries"] = np.cumsum([0, *map(len, sets)]).tolist()
        fields["cat_threshold"] = np.concatenate(sets).tolist()
    fields |= {"is_linear": [0], "shrinkage": [1]}
    lines = [f"{name}={' '.join(map(repr, values))}" for name, values in fields.items()]
    return "\n".join([f"Tree={number}", *lines, "", "", ""])
