"""Text data files, CSV and JSON lines: values as text and back, written and read in blocks of bounded memory."""
