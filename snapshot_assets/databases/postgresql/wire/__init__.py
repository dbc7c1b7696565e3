"""Encodes Arrow values as the bytes that the receive functions of PostgreSQL's types read, a batch at a time.

COPY's binary stream carries these bytes, so that rows go into their table directly. `layout` builds binary arrays,
`numbers` has numeric, `texts` the types whose values travel as the text of their output function, `arrays` the arrays
of those types.
"""
