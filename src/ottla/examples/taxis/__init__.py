"""The taxis: riders and drivers matched by place, prices by demand and supply, every ride in a table for analysis."""
