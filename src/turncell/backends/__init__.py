"""Agents behind one narrow seam: `base` is the contract, each sibling fulfils it."""
