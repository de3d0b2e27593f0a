"""PyTorch's databases of operators, modules and optimizers on vk, compared with CPU eager.

In: a selection of cases. Out: one verdict a case and direction, a report, the coverage table.
Forbidden: tolerances looser than the databases' own, skipping a case because it fails.

``cases`` says what there is to run, ``worker`` runs it in a process that may die, ``pool`` keeps
such processes, ``records`` keeps their verdicts, ``report`` writes them down.
"""
