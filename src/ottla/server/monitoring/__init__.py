"""What a node shows of itself: metrics, lag of groups, traces, and the HTTP server for them."""
