"""What runs on a user's own device."""
