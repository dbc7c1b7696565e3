"""Federation: the locations of several writers read as one (InfluxDB IOx, "Writer Federation")."""
