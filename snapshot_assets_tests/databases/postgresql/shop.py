"""A schema with one of everything that a table can have."""

SHOP = """
COMMENT ON SCHEMA public IS 'shop';
CREATE SCHEMA sales;
CREATE EXTENSION vector;
CREATE TYPE mood AS ENUM ('sad', 'ok');
ALTER TYPE mood ADD VALUE 'meh' BEFORE 'ok';
COMMENT ON TYPE mood IS 'how';
CREATE DOMAIN feeling AS mood DEFAULT 'ok' NOT NULL CONSTRAINT not_sad CHECK (VALUE <> 'sad');
CREATE TYPE later AS (a int);
CREATE TYPE earlier AS (x text COLLATE "C", f feeling[]);
ALTER TYPE later ADD ATTRIBUTE e earlier;
CREATE TYPE float_range AS RANGE (subtype = float8, subtype_diff = float8mi);
CREATE TYPE unused AS ENUM ('a');
CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
CREATE SEQUENCE shared START 100 INCREMENT 5 MAXVALUE 1000 CYCLE CACHE 3;
CREATE SEQUENCE lonely;
CREATE TABLE zones (code char(2) PRIMARY KEY, name text NOT NULL);
CREATE TABLE orders (
  id bigint GENERATED ALWAYS AS IDENTITY (START 10 INCREMENT 2),
  parent bigint
    CONSTRAINT parent_fk REFERENCES orders,
  serial_no serial,
  shared_no int DEFAULT nextval('shared'),
  zone char(2) REFERENCES zones ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
  amount numeric(10,2) DEFAULT 0.00 CHECK (amount >= 0),
  taxed numeric GENERATED ALWAYS AS (amount * 1.21) STORED,
  doubled numeric GENERATED ALWAYS AS (amount * 2) VIRTUAL,
  f feeling, fs feeling[], l later, r float_range, mr float_multirange, v vector(3), z zones,
  label text COLLATE "C" CONSTRAINT label_there NOT NULL,
  at timestamptz DEFAULT now(),
  during tstzrange,
  CONSTRAINT orders_key PRIMARY KEY (id),
  CONSTRAINT label_once
    UNIQUE NULLS NOT DISTINCT (label, zone) INCLUDE (amount) WITH (fillfactor=70),
  CONSTRAINT apart EXCLUDE USING gist (during WITH &&)
) WITH (fillfactor=80, toast.autovacuum_enabled=false);
ALTER TABLE orders ALTER label SET STORAGE EXTERNAL, ALTER label SET STATISTICS 500,
  ALTER label SET COMPRESSION pglz, ALTER amount SET (n_distinct=5);
ALTER TABLE orders ADD CONSTRAINT later_check CHECK (amount < 1000) NOT VALID;
CREATE INDEX by_lower ON orders (lower(label), at DESC) WHERE amount > 1;
CREATE UNIQUE INDEX by_at ON orders (at, id);
ALTER TABLE orders REPLICA IDENTITY USING INDEX orders_key;
ALTER TABLE orders CLUSTER ON by_at;
CREATE STATISTICS st ON zone, amount FROM orders;
COMMENT ON TABLE orders IS 'all orders'; COMMENT ON COLUMN orders.amount IS 'money';
COMMENT ON CONSTRAINT parent_fk ON orders IS 'up';
COMMENT ON INDEX by_lower IS 'idx';
COMMENT ON SEQUENCE orders_serial_no_seq IS 'seq';
CREATE FUNCTION trg() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER tr BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION trg();
CREATE POLICY pol ON orders;
CREATE RULE ru AS ON DELETE TO orders DO ALSO NOTHING;
CREATE UNLOGGED TABLE sales.log (id int);
CREATE TABLE sales.base (a int, b int);
CREATE TABLE sales.heir (c int, b int NOT NULL) INHERITS (sales.base);
CREATE TABLE parted (id int, at timestamp NOT NULL, k text DEFAULT 'x') PARTITION BY RANGE (at);
CREATE TABLE p1 PARTITION OF parted FOR VALUES FROM ('2025-01-01') TO ('2025-02-01');
CREATE TABLE p2 PARTITION OF parted DEFAULT PARTITION BY LIST (k);
CREATE TABLE p2a PARTITION OF p2 DEFAULT;
CREATE INDEX parted_at ON parted (at);
CREATE INDEX own ON p1 (id);
ALTER TABLE parted ADD PRIMARY KEY (at, id, k);
CREATE VIEW a_view AS SELECT 1 AS one; CREATE VIEW z_view AS SELECT o.id, f(1) FROM orders o;
CREATE OR REPLACE VIEW a_view AS SELECT id::int AS one FROM z_view;
CREATE MATERIALIZED VIEW sales.mat WITH (fillfactor=50) AS SELECT 'ok'::mood AS m, 1 AS i WITH NO DATA;
CREATE UNIQUE INDEX mat_i ON sales.mat (i);
COMMENT ON VIEW z_view IS 'zzz';
ALTER SEQUENCE shared RESTART WITH 200;
INSERT INTO zones VALUES ('ES', 'Spain');
INSERT INTO orders (zone, label) VALUES ('ES', 'a'), ('ES', 'b');
"""
