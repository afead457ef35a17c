"""Choosing the bandwidth."""

from skattn.bandwidth._rules import RULES, rule_of_thumb, spread

__all__ = ["RULES", "rule_of_thumb", "spread"]
