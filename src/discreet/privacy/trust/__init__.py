"""Who adds the noise, and to what."""
