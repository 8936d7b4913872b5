"""What people did, raw: it may enter a privatizer and nothing else."""
