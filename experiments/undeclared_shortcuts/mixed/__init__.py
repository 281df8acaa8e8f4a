"""`mixed` with its shortcut undeclared, by rule version 2."""
