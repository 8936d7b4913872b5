"""From a log to a policy with a certificate."""
