-- Rows for the database with code in every place (`../code.sql`).

INSERT INTO of_small VALUES ('1', '{2,3}', ROW('4', 'five'), '6'), (NULL, DEFAULT, NULL, NULL);
INSERT INTO things (id, name, pair, plain, feeling, span) VALUES
    (1, 'one', ROW(1, 'ok'), 'first', 'happy', '[1,2)'), (20, DEFAULT, ROW(2, 'sad'), 'second', NULL, NULL);
INSERT INTO audit SELECT n, 'at ' || n FROM generate_series(1, 100) n;
INSERT INTO aaa_after VALUES (1, 2), (DEFAULT, 3);
INSERT INTO parted SELECT n, n FROM generate_series(1, 60) n;
REFRESH MATERIALIZED VIEW kept;
