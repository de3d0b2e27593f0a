"""The report of a run: one HTML page that needs nothing else, and the same in Markdown without the plots.

In: a plan and results. Out: ``report.html`` and ``report.md``. Forbidden: measuring; judging (`verdicts` does).
"""

from torchvk_compile.bench.report.document import write_report

__all__ = ["write_report"]
