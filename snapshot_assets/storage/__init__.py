"""Objects behind one small interface, and the rules for location URIs."""
