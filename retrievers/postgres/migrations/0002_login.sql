-- The login that the service uses where it is given only the owner's. Whoever may read it owns the schema.
CREATE TABLE login (
    name text NOT NULL,
    password text NOT NULL,
    one boolean PRIMARY KEY DEFAULT true CHECK (one)
);
