"""What is recorded, one module for each archive: `record(folder)` writes into the folder and returns the manifest."""
