CREATE TABLE kinds (
  id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  small tinyint, exact decimal(65,30), price decimal(12,2), ratio float, wide double, flags bit(64),
  day date, moment datetime(6), instant timestamp(6) NULL, span time(6), y year,
  fixed char(20), latin varchar(200) CHARACTER SET latin1, story longtext, bytes varbinary(100), large longblob,
  word enum('a','b','ü'), several set('x','y','z'), doc json, place point SRID 4326, shape geometry, embedding vector(3),
  next_small int GENERATED ALWAYS AS (small + 1) VIRTUAL,
  slashed varchar(300) GENERATED ALWAYS AS (concat(latin, 'x\\y')) STORED,
  changed datetime DEFAULT '2024-01-01' ON UPDATE CURRENT_TIMESTAMP,
  made varchar(50) DEFAULT (concat('it''s \\ ', 1 + 2)), unseen int DEFAULT 5 INVISIBLE,
  accents varchar(30), cases varchar(30) COLLATE utf8mb4_0900_as_cs,
  CONSTRAINT slashes CHECK (small < 200 AND story <> 'it''s\\'),
  KEY downwards (ratio DESC, latin(10)), KEY computed ((small + 1)), UNIQUE KEY only_one (fixed),
  FULLTEXT KEY searched (story), KEY ignored (price) INVISIBLE, KEY members ((CAST(doc->'$.a' AS UNSIGNED ARRAY)))
) COMMENT='a \\ table''s';
INSERT INTO kinds (small, exact, price, ratio, wide, flags, day, moment, instant, span, y, fixed, latin, story, bytes,
  large, word, several, doc, place, shape, embedding, accents, cases) VALUES
  (-128, 12345678901234567890123456789012345.123456789012345678901234567891, -1234567890.12, 1.17549e-38,
   1.7976931348623157e308, 18446744073709551615, '9999-12-31', '9999-12-31 23:59:59.999999',
   '2038-01-19 03:14:07.999999', '-838:59:59', 2155, 'c ', 'ÿé', '💩', '\0\n\\''"', REPEAT('x', 70000), 'ü', 'x,z',
   '{"a": [1, 2], "b": 1.50, "c": "ü\\n"}', ST_GeomFromText('POINT(10 20)', 4326),
   ST_GeomFromText('LINESTRING(0 0,1 1)'), TO_VECTOR('[1,2.5,-3]'), 'A', 'é');
INSERT INTO kinds (small) VALUES (NULL);
CREATE TABLE events (id int NOT NULL AUTO_INCREMENT, at datetime(3) NOT NULL, v double, PRIMARY KEY (id, at), KEY (at))
  PARTITION BY RANGE COLUMNS(at) (PARTITION p0 VALUES LESS THAN ('2024-01-03'), PARTITION p1 VALUES LESS THAN (MAXVALUE));
INSERT INTO events (at, v) WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 999)
  SELECT '2024-01-01' + INTERVAL n * 7 MINUTE, n / 3 FROM s;
CREATE TABLE parent (a int, b int, PRIMARY KEY (a, b));
CREATE TABLE child (x int PRIMARY KEY, a int, b int,
  CONSTRAINT refers FOREIGN KEY (a, b) REFERENCES parent (a, b) ON DELETE CASCADE ON UPDATE SET NULL);
INSERT INTO parent VALUES (1, 2), (3, 4);
INSERT INTO child VALUES (1, 1, 2), (2, NULL, 4);
CREATE FUNCTION doubled(a int) RETURNS int DETERMINISTIC RETURN a * 2;
CREATE PROCEDURE nothing() BEGIN END;
CREATE TRIGGER before_child BEFORE INSERT ON child FOR EACH ROW SET NEW.b = NEW.b;
CREATE EVENT tidy ON SCHEDULE EVERY 1 DAY DO DELETE FROM child WHERE x < 0;
CREATE VIEW late (id, v, t) AS SELECT id, v, concat('x', v) FROM events WHERE v > 100 WITH CASCADED CHECK OPTION;
CREATE VIEW totals (n, tens) AS SELECT count(0), doubled(id div 10) FROM late GROUP BY 2;
