"""Training on several processes: tables and caches in shards, one for each process of torchrun.

``shards`` says which rank owns an entity, ``world`` moves tensors between ranks, ``meeting`` lets
queries of one rank meet entities of others. On these stand the sampler, the learner and the
ranking of a shard, which agree with those of one process.
"""
