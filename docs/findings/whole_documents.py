"""python whole_documents.py: what each rank gets of packed documents from the installed torch."""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental import _context_parallel as parallel


def shard(tokens, ranks, balancer=None):
    meshes = [DeviceMesh("cpu", list(range(ranks)), _init_backend=False, _rank=rank) for rank in range(ranks)]
    row = torch.tensor([tokens])
    return [parallel._context_parallel_shard(mesh, [row], [1], balancer)[0][0].tolist() for mesh in meshes]


for documents in ([4, 8, 4], [4, 12]):
    places = [(document, i) for document, length in enumerate(documents) for i in range(length)]
    balancer = parallel._PerDocumentHeadTailLoadBalancer([documents], 2, "cpu")
    for rank, rows in enumerate(shard(range(len(places)), 2, balancer)):
        owned = [sum(places[row][0] == document for row in rows) for document in range(len(documents))]
        work = sum(places[row][1] + 1 for row in rows)
        print(f"documents {documents}, rank {rank} of 2: {owned} tokens of each, {work} keys seen")

print(f"one document of 8 tokens: {shard(range(8), 2, parallel._HeadTailLoadBalancer(8, 2, 'cpu'))}")
print(f"5 tokens on 4 ranks without a balancer: {shard(range(5), 4)}")
