"""Rebuilding a location whose log is lost or damaged (InfluxDB IOx, "Rebuildability")."""
