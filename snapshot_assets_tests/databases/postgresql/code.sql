-- A database with code of every kind, used in every place. Roles are those of every server.

CREATE SCHEMA util;
CREATE SCHEMA "Odd ""name""";
COMMENT ON SCHEMA util IS 'helpers';

-- An extension that only a function uses.
CREATE EXTENSION vector SCHEMA util;
COMMENT ON EXTENSION vector IS 'my comment';
CREATE FUNCTION util.length_of(v util.vector) RETURNS int LANGUAGE sql AS 'SELECT util.vector_dims(v)';

-- Types of columns, and types that only functions use.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE util.pair AS (a int, b mood);
CREATE TYPE util.lonely AS ENUM ('x');
CREATE TYPE util.nested AS (p util.pair, l util.lonely[]);
CREATE DOMAIN util.lone_domain AS int DEFAULT 3;
COMMENT ON TYPE util.lonely IS 'no column has it';

-- Base types: one with everything, and one that an operator and a table use.
CREATE TYPE util.based;
CREATE FUNCTION util.based_in(cstring, oid, int) RETURNS util.based LANGUAGE internal IMMUTABLE STRICT AS 'bpcharin';
CREATE FUNCTION util.based_out(util.based) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'bpcharout';
CREATE FUNCTION util.based_receive(internal, oid, int) RETURNS util.based LANGUAGE internal STABLE STRICT AS 'bpcharrecv';
CREATE FUNCTION util.based_send(util.based) RETURNS bytea LANGUAGE internal STABLE STRICT AS 'bpcharsend';
CREATE TYPE util.based (INPUT = util.based_in, OUTPUT = util.based_out, RECEIVE = util.based_receive,
    SEND = util.based_send, TYPMOD_IN = bpchartypmodin, TYPMOD_OUT = bpchartypmodout, INTERNALLENGTH = VARIABLE,
    ALIGNMENT = int4, STORAGE = extended, CATEGORY = 'S', PREFERRED = false, DEFAULT = 'it''s', DELIMITER = ';',
    COLLATABLE = true);
COMMENT ON TYPE util.based IS 'a base type';
CREATE TYPE small;
CREATE FUNCTION small_in(cstring) RETURNS small LANGUAGE internal IMMUTABLE STRICT AS 'int4in';
CREATE FUNCTION small_out(small) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int4out';
CREATE TYPE small (INPUT = small_in, OUTPUT = small_out, INTERNALLENGTH = 4, PASSEDBYVALUE, ALIGNMENT = int4);
CREATE FUNCTION util.of_small(small, small[]) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS 'int4eq';
CREATE FUNCTION util.same_small(small, small) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS 'int4eq';
CREATE OPERATOR util.= (FUNCTION = util.same_small, LEFTARG = small, RIGHTARG = small);
CREATE TYPE util.with_small AS (a small, b util.based);
CREATE DOMAIN util.small_domain AS small;
CREATE TABLE of_small (a small, b small[] DEFAULT '{1}', c util.with_small, d util.small_domain);

-- Functions in every language and of every kind.
CREATE FUNCTION util.twice(x int) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS 'SELECT 2 * x';
COMMENT ON FUNCTION util.twice(int) IS 'doubles';
CREATE FUNCTION util.twice(x text, VARIADIC rest text[] DEFAULT '{}') RETURNS text LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    -- a ; within, and $$ too
    RETURN x || x || coalesce(array_to_string(rest, ';'), '');
END
$body$;
CREATE FUNCTION util.is_short(x text) RETURNS boolean IMMUTABLE LANGUAGE sql RETURN length(x) < 20;
CREATE FUNCTION util.next_number() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN (random() * 1000)::int; END $$;
CREATE FUNCTION util.bucket(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT util.twice(x) / 10';
CREATE FUNCTION "Odd ""name"""."F ""n"""(a util.nested, OUT b util.lonely, OUT c int) LANGUAGE sql AS
    $$ SELECT 'x'::util.lonely, 1 $$;
CREATE FUNCTION util.defaulted(d util.lone_domain DEFAULT 5) RETURNS SETOF util.pair LANGUAGE sql ROWS 7 COST 3
    SET search_path = util, public SET work_mem = '8MB' SECURITY DEFINER AS $$ SELECT 1, 'ok'::mood $$;
CREATE PROCEDURE util.log_it(x int) LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.audit VALUES (x); END $$;
COMMENT ON PROCEDURE util.log_it(int) IS 'logs';
CREATE FUNCTION util.win(x int) RETURNS int8 LANGUAGE internal WINDOW AS 'window_row_number';

-- Aggregates of every kind.
CREATE FUNCTION util.add_up(state int, x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT state + x';
CREATE FUNCTION util.finish(state int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT -state';
CREATE FUNCTION util.finish_of(state int, x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT -state';
CREATE AGGREGATE util.total(int) (SFUNC = util.add_up, STYPE = int, INITCOND = '0', PARALLEL = safe);
CREATE AGGREGATE util.full_total(int) (
    SFUNC = util.add_up, STYPE = int, SSPACE = 64, FINALFUNC = util.finish_of, FINALFUNC_EXTRA,
    FINALFUNC_MODIFY = shareable, COMBINEFUNC = util.add_up, INITCOND = '5', MSFUNC = util.add_up,
    MINVFUNC = util.add_up, MSTYPE = int, MFINALFUNC = util.finish, MINITCOND = '1', SORTOP = OPERATOR(pg_catalog.<));
CREATE AGGREGATE util.counted(*) (SFUNC = int8inc, STYPE = int8, INITCOND = '0');
CREATE AGGREGATE util.middle(float8 ORDER BY anyelement) (
    SFUNC = ordered_set_transition, STYPE = internal, FINALFUNC = percentile_disc_final, FINALFUNC_EXTRA);
CREATE AGGREGATE util.ranked(VARIADIC "any" ORDER BY VARIADIC "any") (
    SFUNC = ordered_set_transition_multi, STYPE = internal, FINALFUNC = rank_final, FINALFUNC_EXTRA, HYPOTHETICAL);
COMMENT ON AGGREGATE util.total(int) IS 'sums';
COMMENT ON AGGREGATE util.counted(*) IS 'counts';
COMMENT ON AGGREGATE util.middle(float8 ORDER BY anyelement) IS 'middle';

-- Operators with commutator and negator, classes and families.
CREATE FUNCTION util.pair_lt(util.pair, util.pair) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT ($1).a < ($2).a';
CREATE FUNCTION util.pair_le(util.pair, util.pair) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT ($1).a <= ($2).a';
CREATE FUNCTION util.pair_eq(util.pair, util.pair) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT ($1).a = ($2).a';
CREATE FUNCTION util.pair_ge(util.pair, util.pair) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT ($1).a >= ($2).a';
CREATE FUNCTION util.pair_gt(util.pair, util.pair) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT ($1).a > ($2).a';
CREATE FUNCTION util.pair_ne(util.pair, util.pair) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT ($1).a <> ($2).a';
CREATE FUNCTION util.pair_cmp(util.pair, util.pair) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT ($1).a - ($2).a';
CREATE FUNCTION util.pair_int(util.pair, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT ($1).a < $2';
CREATE FUNCTION util.pair_int_cmp(util.pair, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT ($1).a - $2';
CREATE FUNCTION util.bang(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT -$1';
CREATE OPERATOR util.<< (FUNCTION = util.pair_lt, LEFTARG = util.pair, RIGHTARG = util.pair,
    COMMUTATOR = OPERATOR(util.>>), NEGATOR = OPERATOR(util.>>=), RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR util.<<= (FUNCTION = util.pair_le, LEFTARG = util.pair, RIGHTARG = util.pair,
    COMMUTATOR = OPERATOR(util.>>=), NEGATOR = OPERATOR(util.>>));
CREATE OPERATOR util.=== (FUNCTION = util.pair_eq, LEFTARG = util.pair, RIGHTARG = util.pair,
    COMMUTATOR = OPERATOR(util.===), NEGATOR = OPERATOR(util.!==), HASHES, MERGES, RESTRICT = eqsel, JOIN = eqjoinsel);
CREATE OPERATOR util.!== (FUNCTION = util.pair_ne, LEFTARG = util.pair, RIGHTARG = util.pair,
    NEGATOR = OPERATOR(util.===));
CREATE OPERATOR util.>>= (FUNCTION = util.pair_ge, LEFTARG = util.pair, RIGHTARG = util.pair,
    COMMUTATOR = OPERATOR(util.<<=), NEGATOR = OPERATOR(util.<<));
CREATE OPERATOR util.>> (FUNCTION = util.pair_gt, LEFTARG = util.pair, RIGHTARG = util.pair,
    COMMUTATOR = OPERATOR(util.<<), NEGATOR = OPERATOR(util.<<=));
CREATE OPERATOR util.<< (FUNCTION = util.pair_int, LEFTARG = util.pair, RIGHTARG = int);
CREATE OPERATOR util.!! (FUNCTION = util.bang, RIGHTARG = int);
COMMENT ON OPERATOR util.=== (util.pair, util.pair) IS 'equal';
COMMENT ON OPERATOR util.!! (NONE, int) IS 'prefix';
CREATE OPERATOR FAMILY util.pair_family USING btree;
CREATE OPERATOR CLASS util.pair_ops DEFAULT FOR TYPE util.pair USING btree FAMILY util.pair_family AS
    OPERATOR 1 util.<<, OPERATOR 2 util.<<=, OPERATOR 3 util.===, OPERATOR 4 util.>>=, OPERATOR 5 util.>>,
    FUNCTION 1 util.pair_cmp(util.pair, util.pair);
ALTER OPERATOR FAMILY util.pair_family USING btree ADD
    OPERATOR 1 util.<< (util.pair, int), FUNCTION 1 (util.pair, int) util.pair_int_cmp(util.pair, int);
COMMENT ON OPERATOR CLASS util.pair_ops USING btree IS 'by a';
COMMENT ON OPERATOR FAMILY util.pair_family USING btree IS 'pairs';
CREATE FUNCTION util.pair_less(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $2 - $1';
CREATE OPERATOR CLASS util.backwards FOR TYPE int USING btree AS
    OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <, FUNCTION 1 util.pair_less(int, int);

-- Casts of every kind.
CREATE FUNCTION util.pair_text(util.pair) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ($1).a::text';
CREATE CAST (util.pair AS text) WITH FUNCTION util.pair_text(util.pair) AS ASSIGNMENT;
CREATE CAST (util.lonely AS int) WITH INOUT;
CREATE CAST (mood AS text) WITH INOUT AS IMPLICIT;
COMMENT ON CAST (util.pair AS text) IS 'its number';

-- Collations, and text search.
CREATE COLLATION util.plain (provider = libc, locale = 'C');
CREATE COLLATION util.mixed (provider = libc, lc_collate = 'C', lc_ctype = 'C.UTF-8');
COMMENT ON COLLATION util.plain IS 'bytes';
CREATE TEXT SEARCH DICTIONARY util.stems (TEMPLATE = snowball, language = 'english', stopwords = 'english');
CREATE TEXT SEARCH CONFIGURATION util.search (PARSER = "default");
ALTER TEXT SEARCH CONFIGURATION util.search ADD MAPPING FOR asciiword, word WITH util.stems, simple;
ALTER TEXT SEARCH CONFIGURATION util.search ADD MAPPING FOR int WITH simple;
CREATE TEXT SEARCH TEMPLATE util.template (INIT = dsimple_init, LEXIZE = dsimple_lexize);
CREATE TEXT SEARCH PARSER util.parser (START = prsd_start, GETTOKEN = prsd_nexttoken, END = prsd_end,
    HEADLINE = prsd_headline, LEXTYPES = prsd_lextype);
COMMENT ON TEXT SEARCH CONFIGURATION util.search IS 'ours';
COMMENT ON TEXT SEARCH DICTIONARY util.stems IS 'stems';

-- Functions in every place: defaults, checks, generated columns, indexes, partition keys, domains, statistics, views.
CREATE DOMAIN short AS text DEFAULT util.twice('a', 'b') CONSTRAINT short_check CHECK (util.is_short(VALUE));
CREATE TYPE util.span AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = float8mi);
CREATE TABLE audit (x int, at text DEFAULT util.twice('at'));
CREATE TABLE things (
    id int PRIMARY KEY DEFAULT util.next_number(),
    name short,
    pair util.pair,
    doubled int GENERATED ALWAYS AS (util.twice(id)) STORED,
    plain text COLLATE util.plain,
    feeling mood,
    span util.span,
    CONSTRAINT checked CHECK (util.twice(id) < 100000)
);
CREATE INDEX by_function ON things (util.twice(id)) WHERE util.is_short(plain);
CREATE INDEX by_class ON things (pair util.pair_ops);
CREATE INDEX backwards ON things (id util.backwards);
CREATE INDEX by_collation ON things (plain COLLATE util.mixed);
CREATE INDEX searched ON things USING gin (to_tsvector('util.search', plain));
ALTER TABLE things ADD CONSTRAINT apart EXCLUDE USING btree (doubled WITH =);
CREATE STATISTICS util.guess ON (util.twice(id)), id FROM things;
CREATE TABLE parted (id int, part int) PARTITION BY RANGE (util.bucket(part));
CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (5);
CREATE TABLE util.parted_high PARTITION OF parted FOR VALUES FROM (5) TO (MAXVALUE) PARTITION BY LIST (id);
CREATE TABLE util.parted_leaf PARTITION OF util.parted_high DEFAULT;

-- Functions that need tables, and tables that need those.
CREATE FUNCTION util.thing_name(t things) RETURNS text LANGUAGE sql STABLE AS 'SELECT t.name::text';
CREATE FUNCTION util.audited() RETURNS SETOF audit LANGUAGE sql BEGIN ATOMIC SELECT x, at FROM audit; END;
CREATE FUNCTION util.counting(a audit DEFAULT NULL) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1';
CREATE TABLE aaa_after (n int DEFAULT util.counting(), x int CHECK (util.twice(x) > 0));

-- Views that call functions, and functions that need views.
CREATE VIEW shown AS SELECT t.id, util.thing_name(t) AS name, util.twice(t.id) AS double, t.pair OPERATOR(util.===) t.pair AS same
    FROM things t;
CREATE VIEW aaa_totals AS SELECT util.total(x) AS total, util.middle(0.5) WITHIN GROUP (ORDER BY x) AS mid FROM audit;
CREATE FUNCTION util.of_view(s shown) RETURNS int LANGUAGE sql AS 'SELECT s.id';
CREATE FUNCTION util.every_shown() RETURNS SETOF shown LANGUAGE sql BEGIN ATOMIC SELECT * FROM shown; END;
CREATE VIEW above AS SELECT util.of_view(s) AS id FROM util.every_shown() s;
CREATE MATERIALIZED VIEW kept AS SELECT util.twice(1) AS two;
CREATE INDEX kept_index ON kept (util.twice(two));
CREATE FUNCTION util.view_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;

-- Triggers, rules and policies, in every state.
CREATE FUNCTION util.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.audit VALUES (1);
    RETURN NEW;
END $$;
CREATE TRIGGER noted AFTER INSERT OR UPDATE OF name ON things FOR EACH ROW WHEN (NEW.id > 5)
    EXECUTE FUNCTION util.note('argument', '2');
CREATE TRIGGER "Odd; ""one""" BEFORE DELETE ON things FOR EACH STATEMENT EXECUTE FUNCTION util.note();
CREATE TRIGGER off AFTER INSERT ON things FOR EACH ROW EXECUTE FUNCTION util.note();
ALTER TABLE things DISABLE TRIGGER off;
CREATE TRIGGER replicas AFTER INSERT ON things REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT
    EXECUTE FUNCTION util.note();
ALTER TABLE things ENABLE REPLICA TRIGGER replicas;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON audit DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION util.view_change();
ALTER TABLE audit ENABLE ALWAYS TRIGGER late;
COMMENT ON TRIGGER noted ON things IS 'notes';
CREATE TRIGGER of_parts AFTER INSERT ON parted FOR EACH ROW EXECUTE FUNCTION util.note();
ALTER TABLE util.parted_leaf DISABLE TRIGGER of_parts;
CREATE TRIGGER of_leaf BEFORE INSERT ON util.parted_leaf FOR EACH ROW EXECUTE FUNCTION util.view_change();
CREATE TRIGGER instead INSTEAD OF INSERT ON shown FOR EACH ROW EXECUTE FUNCTION util.view_change();
CREATE RULE copied AS ON INSERT TO audit WHERE NEW.x > 1000 DO ALSO INSERT INTO aaa_after VALUES (1, 1);
CREATE RULE "No deletes" AS ON DELETE TO aaa_after DO INSTEAD NOTHING;
ALTER TABLE aaa_after DISABLE RULE "No deletes";
CREATE RULE rewritten AS ON UPDATE TO above DO INSTEAD (UPDATE things SET name = 'x' WHERE id = NEW.id; NOTIFY changed);
COMMENT ON RULE copied ON audit IS 'copies';
ALTER TABLE things ENABLE ROW LEVEL SECURITY;
CREATE POLICY everyone ON things USING (util.is_short(name::text)) WITH CHECK (id > 0);
CREATE POLICY narrow ON things AS RESTRICTIVE FOR SELECT TO pg_monitor, pg_read_all_data USING (true);
CREATE POLICY adding ON things FOR INSERT TO PUBLIC WITH CHECK (id IN (SELECT x FROM audit));
COMMENT ON POLICY everyone ON things IS 'all';
