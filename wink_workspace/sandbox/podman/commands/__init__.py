"""Commands in containers: started, probed, watched and ended; and services beside them."""
