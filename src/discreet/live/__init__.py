"""A learner that real people talk to: one charter, a public log, a vault for what is not yet released."""
