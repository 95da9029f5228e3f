"""Histogram gradient boosting whose model does not depend on the number of ranks.

`train(comm, data, settings)` runs over a split of the rows, of the columns, or a grid
of both, on real and virtual ranks. `dml.boosting.estimators`, which needs scikit-learn,
has BoostingClassifier and BoostingRegressor. The chapter is docs/boosting.md.
"""

from dml.boosting.messages import share as share
from dml.boosting.model import Model as Model
from dml.boosting.model import from_json as from_json
from dml.boosting.model import to_json as to_json
from dml.boosting.settings import Data as Data
from dml.boosting.settings import Settings as Settings
from dml.boosting.train import Trained as Trained
from dml.boosting.train import train as train
