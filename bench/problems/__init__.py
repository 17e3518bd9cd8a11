"""What the suites `kernelbench` and `layers` compute, as PyTorch modules that users would write."""
