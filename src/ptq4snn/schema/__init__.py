"""The JSON that runs leave behind, as types; no torch, and nothing else of the package.

What is written has all keys of its type. What is read may be of an older version, or edited.
"""
