-- Objects of code, and what else a snapshot names without carrying it.

CREATE SCHEMA code;
SET search_path = code;
CREATE FUNCTION twice(n int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT n * 2';
COMMENT ON FUNCTION twice(int) IS 'times two';
CREATE PROCEDURE nothing() LANGUAGE plpgsql AS 'BEGIN END';
CREATE AGGREGATE product(int) (SFUNC = int4mul, STYPE = int, INITCOND = '1');
CREATE TABLE watched (id int, note text);
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER each_row BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION watch();
ALTER TABLE watched DISABLE TRIGGER each_row;
COMMENT ON TRIGGER each_row ON watched IS 'watches';
CREATE POLICY own ON watched USING (note = CURRENT_USER);
CREATE RULE no_delete AS ON DELETE TO watched DO INSTEAD NOTHING;
CREATE OPERATOR <~> (FUNCTION = int4eq, LEFTARG = int, RIGHTARG = int);
CREATE COLLATION plain (provider = libc, locale = 'C');
CREATE TEXT SEARCH CONFIGURATION words (COPY = pg_catalog.simple);
CREATE FOREIGN DATA WRAPPER wrapper; CREATE SERVER far FOREIGN DATA WRAPPER wrapper;
CREATE FOREIGN TABLE far_away (id int) SERVER far;
CREATE PUBLICATION published FOR TABLE watched;
RESET search_path;
SELECT lo_create(4711);
