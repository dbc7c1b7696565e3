"""Finds the users' casts in expressions: `pg_depend` has the function of a cast that an expression uses, not the cast.

The server stores an expression as a tree, in which each conversion names its function or its result. Conversions by
input and output to and from strings need a cast only where the expression does not write them.
"""

from __future__ import annotations

_TREES = """
    SELECT 'pg_attrdef'::regclass::oid AS class, f.oid, f.adbin::text AS tree FROM pg_attrdef f
    UNION ALL SELECT 'pg_constraint'::regclass, k.oid, k.conbin::text FROM pg_constraint k WHERE k.conbin IS NOT NULL
    UNION ALL SELECT 'pg_class'::regclass, i.indexrelid, concat(i.indexprs::text, i.indpred::text)
    FROM pg_index i WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL
    UNION ALL SELECT 'pg_class'::regclass, p.partrelid, p.partexprs::text
    FROM pg_partitioned_table p WHERE p.partexprs IS NOT NULL
    UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid, s.stxexprs::text
    FROM pg_statistic_ext s WHERE s.stxexprs IS NOT NULL
    UNION ALL SELECT 'pg_type'::regclass, t.oid, t.typdefaultbin::text
    FROM pg_type t WHERE t.typdefaultbin IS NOT NULL
"""

_USED = r"""CASE c.castmethod
    WHEN 'f' THEN format(
        ':funcid %s :funcresulttype \d+ :funcretset \w+ :funcvariadic \w+ :funcformat [12] ', c.castfunc)
    WHEN 'b' THEN format(':resulttype %s :resulttypmod \S+ :resultcollid \d+ :relabelformat [12] ', c.casttarget)
    ELSE format(':resulttype %s :resultcollid \d+ :coerceformat [%s] ', c.casttarget, CASE WHEN EXISTS (
        SELECT FROM pg_type s WHERE s.oid IN (c.castsource, c.casttarget) AND s.typcategory = 'S')
        THEN '2' ELSE '12' END) END"""
# Formats: 1 is an explicit conversion, 2 an implicit one, which is not written; 0 is a call of the function by name.

CAST_USES = f"""
SELECT e.class AS classid, e.oid AS objid, 'pg_cast'::regclass::oid AS refclassid, c.oid AS refobjid
FROM (SELECT c.*, {_USED} AS used FROM pg_cast c WHERE c.oid >= 16384) c
JOIN ({_TREES}) e ON e.tree ~ c.used AND (c.castmethod = 'f' OR e.tree ~ format('type(id)? %s ', c.castsource))
"""
"""Every use of a cast: columns as in `pg_depend`."""
