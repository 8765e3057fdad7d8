"""Where readings of GPUs come from: NVML, or a simulation that answers alike."""
