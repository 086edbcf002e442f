"""Step times of random models of real shapes on a GPU, as tables that simulations read."""
