"""How web and loops are started, watched and ended as processes, and on whose clock they decide."""
