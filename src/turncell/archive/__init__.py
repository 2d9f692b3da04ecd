"""What outlives a kernel: the register of sessions, the journal of turns, who uses what."""
