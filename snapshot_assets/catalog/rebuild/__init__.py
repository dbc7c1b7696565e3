"""Rebuilds a lost or damaged log (FORMAT.md, "Rebuilt logs").

`inventory` reads what lies at the location; `base` finds the newest state that is proved whole, with `manifests`;
`recovered` and `from_files` take what nothing proves; `pins` and `losses` decide what is kept and name what is lost;
`new_log` writes the result. Nothing else imports this room but the command.
"""
