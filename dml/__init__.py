"""Every classic way of training on many machines: read, run, measured, compared.

minibatch → loss and gradient → pack → wire → unpack → update → Step → metrics
   data/          models/               wire/            update/      runs/, figures/
                        strategies/ compose them, train.py drives

Numbers leave a worker in one place, wire/. The same function runs over real MPI
processes and over thousands of virtual ranks (sim/).
"""
