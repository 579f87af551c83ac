"""`ottla up`: one node or a cluster on this machine, with the processes beside the nodes."""
