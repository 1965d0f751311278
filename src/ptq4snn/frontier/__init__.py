"""The smallest model that keeps an accuracy or an agreement: which widths are tried, judged and taken."""
