"""Values that others wrote: decoded under limits, because one record must not end the process that reads it."""
