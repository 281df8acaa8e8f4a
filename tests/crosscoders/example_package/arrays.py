"""TopK SAEs of one model in an `.npz` file of arrays."""

import numpy as np
import torch

from crosscoders.dictionaries.saved import DenseWeights, SavedDictionary, files_key, from_dense


def recognise(path):
    if path.suffix != ".npz":
        return None
    known = {"kind": "arrays", "site": None, "checkpoints": None, "read": load}
    return SavedDictionary(path=path, key=files_key([path]), **known)


def load(saved, width):
    arrays = {name: torch.from_numpy(array) for name, array in np.load(saved.path).items()}
    k = int(arrays.pop("k"))
    return from_dense(DenseWeights(**arrays), "topk", k)
