"""Training a forecaster on measured pairs: rewards, direct optimisation of a readout, GRPO for verbal answers, adapters."""
