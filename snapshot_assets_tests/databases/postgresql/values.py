"""Values of every type of the server that a column can have, at their edges."""

from __future__ import annotations

from snapshot_assets.databases.sql import literal

DEFINITIONS = """
CREATE EXTENSION vector;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'ha''ppy', 'größe');
CREATE DOMAIN feeling AS mood CHECK (VALUE <> 'sad');
CREATE DOMAIN price AS numeric(10, 2) DEFAULT 0 CHECK (VALUE >= 0);
CREATE DOMAIN dear AS price CHECK (VALUE >= 100);
CREATE DOMAIN moment AS timestamptz;
CREATE DOMAIN numbers AS int4[];
CREATE TYPE pair AS (a int4, b text);
CREATE DOMAIN good_pair AS pair CHECK ((VALUE).a > 0);
CREATE TYPE float_range AS RANGE (subtype = float8, subtype_diff = float8mi);
"""

TYPES: dict[str, tuple[str, ...]] = {
    "bool": ("true", "false"),
    "int2": ("-32768", "32767", "0"),
    "int4": ("-2147483648", "2147483647"),
    "int8": ("-9223372036854775808", "9223372036854775807"),
    "float4": ("NaN", "-0", "Infinity", "-Infinity", "1.1754944e-38", "3.4028235e+38", "1e-45", "0.1"),
    "float8": ("NaN", "-0", "Infinity", "-Infinity", "5e-324", "1.7976931348623157e+308", "0.1"),
    "numeric": ("NaN", "Infinity", "-Infinity", "0.00", "-1.5e130000", "1e-16000", "12345678901234567890.123456789"),
    "numeric(10,2)": ("0", "-99999999.99", "99999999.99", "0.10"),
    "numeric(38,0)": ("9" * 38, "-" + "9" * 38),
    "numeric(38,38)": ("0." + "9" * 38, "0." + "0" * 37 + "1"),
    "numeric(39,1)": ("9" * 38 + ".9", "NaN"),
    "numeric(3,-2)": ("12300", "-99900"),
    "numeric(2,5)": ("0.00012",),
    "money": ("-92233720368547758.08", "92233720368547758.07", "0.10"),
    "text": ("", "a\tb\\n\n'\"", "größe 中文 🙂", "NULL", "\\N", "x" * 10000),
    "varchar": ("", " a "),
    "varchar(5)": ("ab   ", "中文中文中"),
    "bpchar": ("ab  ", ""),
    "char(5)": ("ab", "", "     "),
    "name": ("Some Name", "x" * 63),
    '"char"': ("a", "", "\\377", "\\001"),
    "bytea": ("\\x", "\\x00ff5c27"),
    "date": ("4714-11-24 BC", "5874897-12-31", "1970-01-01", "1582-10-10"),
    "time": ("00:00:00", "23:59:59.999999"),
    "time(0)": ("12:34:56",),
    "timetz": ("24:00:00+15:59", "00:00:00.000001-15:59:59"),
    "timestamp": ("4714-11-24 00:00:00 BC", "294246-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999"),
    "timestamptz": ("4714-11-24 00:00:00+00 BC", "294246-12-31 23:59:59.999999+00", "2025-03-30 01:00:00+00"),
    "interval": ("-178000000 years", "1 mon -2 days +03:04:05.000006", "0", "infinity", "-1 mons +1 day"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "json": ('{"b": 1,  "a": 1, "a":2 }', "null", '"x"', "[1.10, 1e400]"),
    "jsonb": ('{"b": 1, "a": [1.10, 12345678901234567890]}', "null", '"\\u00e9"'),
    "jsonpath": ("$.a[*] ? (@ > 1)",),
    "bit(5)": ("10101",),
    "bit varying": ("", "1", "101"),
    "inet": ("192.168.0.1", "192.168.0.0/24", "::1", "2001:db8::/32"),
    "cidr": ("192.168.0.0/24", "10.0.0.1/32"),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "oid": ("0", "4294967295"),
    "xid": ("4294967295",),
    "xid8": ("18446744073709551615",),
    "cid": ("7",),
    "tid": ("(4294967295,65535)",),
    "regclass": ("pg_class", "-", 'public."odd \'name"'),
    "regcollation": ('"C"',),
    "regconfig": ("simple",),
    "regdictionary": ("simple",),
    "regnamespace": ("public",),
    "regoper": ("||/",),
    "regoperator": ("+(integer,integer)", "-(NONE,integer)"),
    "regproc": ("now", "-"),
    "regprocedure": ("sum(integer)",),
    "regrole": ("postgres",),
    "regtype": ("integer", "timestamp with time zone", "public.mood"),
    "refcursor": ("c1",),
    "aclitem": ("postgres=r/postgres",),
    "pg_lsn": ("FFFFFFFF/FFFFFFFF", "0/0"),
    "pg_snapshot": ("10:20:10,14,15",),
    "txid_snapshot": ("10:20:10,14,15",),
    "tsvector": ("'a':1A 'quo''te':2",),
    "tsquery": ("'a' & !'b' <-> 'c'",),
    "point": ("(0.1,-0)", "(NaN,Infinity)"),
    "line": ("{1,2,3}",),
    "lseg": ("[(0,0),(1,0.1)]",),
    "box": ("(1,1),(0,0)",),
    "path": ("((0,0),(1,1))", "[(0,0),(1,1)]"),
    "polygon": ("((0,0),(1,1),(1,0))",),
    "circle": ("<(0,0),1.5>",),
    "int4range": ("[1,5)", "empty", "(,)"),
    "int8range": ("[1,)",),
    "numrange": ("[1.10,2.2]", "(,NaN)"),
    "daterange": ("[2025-01-01,infinity)",),
    "tsrange": ('["2025-01-01 00:00:00",infinity]',),
    "tstzrange": ('["2025-01-01 00:00:00+00",)',),
    "int4multirange": ("{[1,5),[7,8)}", "{}"),
    "int8multirange": ("{[1,5)}",),
    "nummultirange": ("{[1.10,2.2]}",),
    "datemultirange": ("{[2025-01-01,2025-01-02)}",),
    "tsmultirange": ('{["2025-01-01 00:00:00","2025-01-02 00:00:00")}',),
    "tstzmultirange": ('{["2025-01-01 00:00:00+00","2025-01-02 00:00:00+00")}',),
    "int4[]": ("{1,NULL,3}", "{}", "[0:1]={1,2}", "{{1,2},{3,4}}"),
    "text[]": ('{a,"b,c","",NULL,"NULL","q\\"\\\\"}',),
    "timestamptz[]": ('{infinity,"2025-01-01 00:00:00+00"}',),
    "numeric(10,2)[]": ("{1.50,NaN}",),
    # User-defined types.
    "mood": ("sad", "ha'ppy", "größe"),
    "mood[]": ("{sad,NULL,ok}",),
    "feeling": ("ok",),
    "price": ("0.00", "12.30"),
    "dear": ("100.00",),
    "moment": ("2025-01-01 00:00:00+00",),
    "numbers": ("{1,2}",),
    "pair": ('(1,"a,b")', "(,)", '(,"")'),
    "pair[]": ('{"(1,a)",NULL}',),
    "good_pair": ("(1,)",),
    "float_range": ("[0.1,0.2)",),
    "float_multirange": ("{[0.1,0.2)}",),
    "vector(3)": ("[1,2.5,-3]",),
}
"""Values in the text form of the type; the server prints each in this form or in its canonical one."""

SYSTEM_VALUES = {
    "pg_node_tree": "SELECT ev_action FROM pg_rewrite LIMIT 2",
    "pg_ndistinct": "SELECT stxdndistinct FROM pg_statistic_ext_data",
    "pg_dependencies": "SELECT stxddependencies FROM pg_statistic_ext_data",
    "pg_mcv_list": "SELECT stxdmcv FROM pg_statistic_ext_data",
}
"""Queries for values of types that the server prints but does not read."""

NEVER_STORED = {"gtsvector", "pg_brin_bloom_summary", "pg_brin_minmax_multi_summary", "xml"}
"""Types without a value in any column: internal types of indexes, and XML, without which this server is built."""


def every_type_script() -> str:
    """Create one table, `t`, that has a column of every type and rows of all values, and NULL."""
    columns = ", ".join(f"c{number} {name}" for number, name in enumerate(TYPES))
    rows = max(map(len, TYPES.values())) + 1
    script = [DEFINITIONS, 'CREATE TABLE "odd \'name" ();', f"CREATE TABLE t (n int4, {columns});"]
    for row in range(rows):
        values = [literal(values[row]) if row < len(values) else "NULL" for values in TYPES.values()]
        script.append(f"INSERT INTO t VALUES ({row}, {', '.join(values)});")
    return "\n".join(script)
