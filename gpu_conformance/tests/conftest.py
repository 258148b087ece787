"""One thread per process, as in a run: small tensors gain nothing by more, and a process with two must not fork."""

import torch

torch.set_num_threads(1)
