"""The six experiments: from a plan's settings to the tasks that answer its question.

In: a `Context`. Out: `Task`s, one per record. Forbidden: settings that are not in the plan; writing results.
"""

from torchvk_compile.bench.experiments.ablations import ablation_tasks
from torchvk_compile.bench.experiments.kernels import addition_tasks, product_tasks
from torchvk_compile.bench.experiments.memory import memory_tasks
from torchvk_compile.bench.experiments.training import cifar_tasks, mnist_tasks
from torchvk_compile.bench.measure import Tasks

EXPERIMENTS: dict[str, Tasks] = {
    "E1": addition_tasks,
    "E2": product_tasks,
    "E3": mnist_tasks,
    "E4": cifar_tasks,
    "E5": memory_tasks,
    "E6": ablation_tasks,
}
"""By the plan's key, in the plan's order."""
