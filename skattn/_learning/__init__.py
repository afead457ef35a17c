"""Learning what earns weight. What trains needs PyTorch, and is imported by `fit` only."""
