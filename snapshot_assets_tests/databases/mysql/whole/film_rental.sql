-- A database of film rentals, with the kinds of objects of MySQL's sample database Sakila and data of its own.
CREATE TABLE country (
    country_id smallint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, country varchar(50) NOT NULL,
    last_update timestamp NOT NULL DEFAULT current_timestamp() ON UPDATE current_timestamp());
CREATE TABLE city (
    city_id smallint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, city varchar(50) NOT NULL,
    country_id smallint unsigned NOT NULL, KEY idx_fk_country_id (country_id),
    CONSTRAINT fk_city_country FOREIGN KEY (country_id) REFERENCES country (country_id) ON UPDATE CASCADE);
CREATE TABLE address (
    address_id smallint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, address varchar(50) NOT NULL,
    address2 varchar(50) DEFAULT NULL, district varchar(20) NOT NULL, city_id smallint unsigned NOT NULL,
    postal_code varchar(10) DEFAULT NULL, phone varchar(20) NOT NULL, location geometry NOT NULL,
    KEY idx_fk_city_id (city_id), SPATIAL KEY idx_location (location),
    CONSTRAINT fk_address_city FOREIGN KEY (city_id) REFERENCES city (city_id) ON UPDATE CASCADE);
CREATE TABLE store (
    store_id tinyint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, manager_staff_id tinyint unsigned NOT NULL,
    address_id smallint unsigned NOT NULL, UNIQUE KEY idx_unique_manager (manager_staff_id),
    CONSTRAINT fk_store_address FOREIGN KEY (address_id) REFERENCES address (address_id) ON UPDATE CASCADE);
CREATE TABLE staff (
    staff_id tinyint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, first_name varchar(45) NOT NULL,
    last_name varchar(45) NOT NULL, address_id smallint unsigned NOT NULL, picture blob DEFAULT NULL,
    email varchar(50) DEFAULT NULL, store_id tinyint unsigned NOT NULL, active tinyint(1) NOT NULL DEFAULT 1,
    username varchar(16) NOT NULL, password varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
    KEY idx_fk_store_id (store_id),
    CONSTRAINT fk_staff_store FOREIGN KEY (store_id) REFERENCES store (store_id) ON UPDATE CASCADE);
ALTER TABLE store ADD CONSTRAINT fk_store_staff FOREIGN KEY (manager_staff_id) REFERENCES staff (staff_id);
CREATE TABLE language (language_id tinyint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, name char(20) NOT NULL);
CREATE TABLE film (
    film_id smallint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, title varchar(128) NOT NULL,
    description text DEFAULT NULL, release_year year(4) DEFAULT NULL, language_id tinyint unsigned NOT NULL,
    original_language_id tinyint unsigned DEFAULT NULL, rental_duration tinyint unsigned NOT NULL DEFAULT 3,
    rental_rate decimal(4,2) NOT NULL DEFAULT 4.99, length smallint unsigned DEFAULT NULL,
    replacement_cost decimal(5,2) NOT NULL DEFAULT 19.99, rating enum('G','PG','PG-13','R','NC-17') DEFAULT 'G',
    special_features set('Trailers','Commentaries','Deleted Scenes','Behind the Scenes') DEFAULT NULL,
    KEY idx_title (title), KEY idx_fk_language_id (language_id), CHECK (length > 0),
    CONSTRAINT fk_film_language FOREIGN KEY (language_id) REFERENCES language (language_id));
CREATE TABLE film_text (
    film_id smallint NOT NULL PRIMARY KEY, title varchar(255) NOT NULL, description text DEFAULT NULL,
    FULLTEXT KEY idx_title_description (title, description));
CREATE TABLE customer (
    customer_id smallint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, store_id tinyint unsigned NOT NULL,
    first_name varchar(45) NOT NULL, last_name varchar(45) NOT NULL, email varchar(50) DEFAULT NULL,
    address_id smallint unsigned NOT NULL, active tinyint(1) NOT NULL DEFAULT 1, create_date datetime NOT NULL,
    KEY idx_last_name (last_name), KEY idx_fk_address_id (address_id),
    CONSTRAINT fk_customer_address FOREIGN KEY (address_id) REFERENCES address (address_id) ON UPDATE CASCADE);
CREATE TABLE inventory (
    inventory_id mediumint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, film_id smallint unsigned NOT NULL,
    store_id tinyint unsigned NOT NULL, KEY idx_store_id_film_id (store_id, film_id), KEY idx_fk_film_id (film_id),
    CONSTRAINT fk_inventory_film FOREIGN KEY (film_id) REFERENCES film (film_id) ON UPDATE CASCADE);
CREATE TABLE rental (
    rental_id int NOT NULL AUTO_INCREMENT PRIMARY KEY, rental_date datetime NOT NULL,
    inventory_id mediumint unsigned NOT NULL, customer_id smallint unsigned NOT NULL,
    return_date datetime DEFAULT NULL, staff_id tinyint unsigned NOT NULL,
    UNIQUE KEY idx_rental (rental_date, inventory_id, customer_id), KEY idx_fk_customer_id (customer_id),
    CONSTRAINT fk_rental_customer FOREIGN KEY (customer_id) REFERENCES customer (customer_id) ON UPDATE CASCADE);
CREATE TABLE payment (
    payment_id smallint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, customer_id smallint unsigned NOT NULL,
    rental_id int DEFAULT NULL, amount decimal(5,2) NOT NULL, payment_date datetime NOT NULL,
    KEY idx_fk_customer_id (customer_id), KEY fk_payment_rental (rental_id),
    CONSTRAINT fk_payment_rental FOREIGN KEY (rental_id) REFERENCES rental (rental_id) ON DELETE SET NULL);

INSERT INTO country (country, last_update)
    SELECT CONCAT(ELT(1 + seq % 4, 'Côte ', 'Åland ', 'Réunion ', 'Curaçao '), seq), '2006-02-15 04:44:00'
    FROM seq_1_to_109;
INSERT INTO city (city, country_id) SELECT CONCAT('Città ', seq), 1 + seq % 109 FROM seq_1_to_600;
INSERT INTO address (address, address2, district, city_id, postal_code, phone, location)
    SELECT CONCAT(seq, ' Straße'), IF(seq % 9, '', NULL), ELT(1 + seq % 3, 'Alberta', 'QLD', ''), 1 + seq % 600,
        IF(seq % 7, LPAD(seq, 5, '0'), NULL), seq * 7919, ST_GeomFromText(CONCAT('POINT(', seq / 7, ' ', -seq, ')'))
    FROM seq_1_to_603;
INSERT INTO language (name)
    VALUES ('English'), ('Italian'), ('Japanese'), ('Mandarin'), ('French'), ('German');
INSERT INTO film (title, description, release_year, language_id, original_language_id, rental_duration, rental_rate,
        length, replacement_cost, rating, special_features)
    SELECT CONCAT('FILM ', seq), IF(seq % 5, CONCAT('A ''tale'' of \\ "', seq, '" 映画 🎬'), NULL), 1960 + seq % 60,
        1 + seq % 6, IF(seq % 11, NULL, 2), 3 + seq % 5, 0.99 + seq % 5, 46 + seq % 140, 9.99 + seq % 20,
        1 + seq % 5, seq % 16
    FROM seq_1_to_1000;
INSERT INTO film_text SELECT film_id, title, description FROM film;
SET foreign_key_checks = 0;
INSERT INTO store (manager_staff_id, address_id) VALUES (1, 1), (2, 2);
INSERT INTO staff (first_name, last_name, address_id, picture, email, store_id, username, password) VALUES
    ('Mike', 'Hillyer', 3, x'89504e470d0a1a0a00', 'mike@example.com', 1, 'Mike', '8cb2237d0679ca88'),
    ('Jon', 'Stephens', 4, NULL, NULL, 2, 'Jon', NULL);
SET foreign_key_checks = 1;
INSERT INTO customer (store_id, first_name, last_name, email, address_id, active, create_date)
    SELECT 1 + seq % 2, CONCAT('Zoë ', seq), CONCAT('O''Brien ', seq % 100), IF(seq % 13, CONCAT(seq, '@example.com'), ''),
        5 + seq % 590, seq % 40 <> 0, '2006-02-14 22:04:36'
    FROM seq_1_to_599;
INSERT INTO inventory (film_id, store_id) SELECT 1 + seq % 1000, 1 + seq % 2 FROM seq_1_to_4581;
INSERT INTO rental (rental_date, inventory_id, customer_id, return_date, staff_id)
    SELECT '2005-05-24 22:53:30' + INTERVAL seq * 11 MINUTE, 1 + seq * 7 % 4581, 1 + seq * 31 % 599,
        IF(seq % 88, '2005-05-26 22:04:30' + INTERVAL seq * 11 MINUTE, NULL), 1 + seq % 2
    FROM seq_1_to_16044;
INSERT INTO payment (customer_id, rental_id, amount, payment_date)
    SELECT customer_id, IF(rental_id % 3000, rental_id, NULL), 0.99 + rental_id % 10, rental_date FROM rental;

CREATE VIEW customer_list AS
    SELECT cu.customer_id AS id, concat(cu.first_name, _utf8mb4' ', cu.last_name) AS name, a.address AS address,
        a.postal_code AS `zip code`, city.city AS city, country.country AS country,
        if(cu.active, _utf8mb4'active', _utf8mb4'') AS notes, cu.store_id AS sid
    FROM customer cu JOIN address a ON cu.address_id = a.address_id JOIN city ON a.city_id = city.city_id
        JOIN country ON city.country_id = country.country_id;
CREATE VIEW nicer_film_list AS
    SELECT film.film_id AS fid, film.title AS title, film.rating AS rating,
        group_concat(concat(ucase(substr(language.name, 1, 1)), lcase(substr(language.name, 2))) SEPARATOR ', ') AS spoken
    FROM film LEFT JOIN language ON film.language_id = language.language_id GROUP BY film.film_id, film.title, film.rating;
CREATE SQL SECURITY INVOKER VIEW sales_by_store AS
    SELECT concat(c.city, _utf8mb4',', cy.country) AS store, sum(p.amount) AS total_sales
    FROM payment p JOIN customer cu ON p.customer_id = cu.customer_id JOIN store s ON cu.store_id = s.store_id
        JOIN address a ON s.address_id = a.address_id JOIN city c ON a.city_id = c.city_id
        JOIN country cy ON c.country_id = cy.country_id
    GROUP BY s.store_id ORDER BY cy.country, c.city
