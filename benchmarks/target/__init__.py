"""What the RX 5600 XT's shader compiler makes of the test models, and what that should cost on the card.

In: models, RADV's null hardware. Out: statistics, predictions, a page. Forbidden: running kernels.
"""
