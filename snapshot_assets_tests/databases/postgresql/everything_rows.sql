-- A few rows for the schema of everything.

INSERT INTO zones VALUES ('ES', 'Spain'), ('XX', 'nowhere');
INSERT INTO orders (zone, amount, label, during, v, f) VALUES
  ('ES', 2, 'a', '[2025-01-01,2025-01-02)', '[1,2,3]', 'ok'), ('ES', 3, 'b', '[2025-02-01,2025-02-02)', NULL, 'meh');
INSERT INTO orders (zone, amount, parent, label, f) VALUES ('XX', 4, 10, 'größe', 'ok');
INSERT INTO a_first VALUES (1, NULL), (2, NULL);
INSERT INTO b_second VALUES (1, 2);
UPDATE a_first SET other = 1;
INSERT INTO a_row_type_user SELECT z, ARRAY[z] FROM zones z;
INSERT INTO "Größe ""X"".""Tabelle""" ("a.b") VALUES ('x'), ('y');
INSERT INTO sales.log DEFAULT VALUES;
INSERT INTO sales.base (a, c) VALUES (1, 1);
INSERT INTO sales.inheriting (c, b, d) VALUES (1, 2, 3);
INSERT INTO sales.late VALUES ('x', 1, 1, 1);
INSERT INTO parted (at, k) VALUES ('2025-01-05', 'z'), ('2024-01-01', 'y'), ('2026-01-01', 'b'), ('2027-01-01', 'other');
INSERT INTO listed VALUES (1, 'a');
INSERT INTO refers VALUES (1, 'a');
REFRESH MATERIALIZED VIEW sales.mat;
