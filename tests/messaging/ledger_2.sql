BEGIN TRANSACTION;
CREATE TABLE inbox (
    arrival INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL, team TEXT NOT NULL,
    sender TEXT NOT NULL, sender_key TEXT NOT NULL, recipient TEXT NOT NULL, to_key TEXT NOT NULL,
    body TEXT NOT NULL, time REAL NOT NULL, thread TEXT, origin TEXT NOT NULL, sequence INTEGER NOT NULL,
    state TEXT NOT NULL, detail TEXT,
    receipted TEXT,                    -- the last state whose receipt the broker took
    injecting INTEGER NOT NULL DEFAULT 0,
    hidden INTEGER NOT NULL DEFAULT 0,
    place INTEGER,                     -- its turn among all that came; NULL: something before it is missing
    route TEXT, role TEXT,             -- how it reached the agent, and as whose words
    UNIQUE (team, to_key, sender_key, id));
INSERT INTO "inbox" VALUES(1,'fa37efee16304f64','default','Alice','alice','Bob','bob','old',1000.0,NULL,'ace9affebbed10fa',1,'stored',NULL,NULL,0,0,1,NULL,NULL);
CREATE TABLE meta (origin TEXT NOT NULL);
INSERT INTO "meta" VALUES('ace9affebbed10fa');
CREATE TABLE outbox (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, team TEXT NOT NULL,
    sender TEXT NOT NULL, sender_key TEXT NOT NULL, recipient TEXT NOT NULL, to_key TEXT NOT NULL,
    body TEXT NOT NULL, time REAL NOT NULL, thread TEXT, sequence INTEGER NOT NULL,
    state TEXT NOT NULL, detail TEXT,
    told TEXT,                         -- the last state that the sender heard of
    attempts INTEGER NOT NULL DEFAULT 0,
    hidden INTEGER NOT NULL DEFAULT 0, -- dropped after it was settled: kept for its id only
    due REAL,                          -- when to publish (again); NULL: when the receiver appears
    route TEXT, role TEXT              -- how it reached its receiver, and as whose words
);
INSERT INTO "outbox" VALUES(1,'fa37efee16304f64','default','Alice','alice','Bob','bob','old',1000.0,NULL,1,'stored',NULL,'queued',1,0,NULL,NULL,NULL);
INSERT INTO "outbox" VALUES(2,'c048cc90576fc827','default','Alice','alice','Bob','bob','waits',1000.0,NULL,2,'queued',NULL,'queued',0,0,1000.0,NULL,NULL);
CREATE TABLE pairs (
    team TEXT NOT NULL, to_key TEXT NOT NULL, sender_key TEXT NOT NULL, origin TEXT NOT NULL,
    next INTEGER NOT NULL,             -- every sequence below it has been released or will never come
    PRIMARY KEY (team, to_key, sender_key, origin)) WITHOUT ROWID;
INSERT INTO "pairs" VALUES('default','bob','alice','ace9affebbed10fa',2);
CREATE TABLE registry (
    team TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL, seen REAL NOT NULL,
    PRIMARY KEY (team, key)) WITHOUT ROWID;
INSERT INTO "registry" VALUES('default','alice','Alice',1000.0);
INSERT INTO "registry" VALUES('default','bob','Bob',1000.0);
CREATE TABLE sequences (
    team TEXT NOT NULL, sender_key TEXT NOT NULL, to_key TEXT NOT NULL, last INTEGER NOT NULL,
    PRIMARY KEY (team, sender_key, to_key)) WITHOUT ROWID;
INSERT INTO "sequences" VALUES('default','alice','bob',2);
CREATE INDEX outbox_pending ON outbox (team, sender_key, to_key, sequence)
    WHERE state IN ('queued', 'sent');
CREATE INDEX outbox_untold ON outbox (team, sender_key) WHERE told IS NOT state;
CREATE INDEX inbox_waiting ON inbox (team, to_key, place) WHERE state = 'stored';
CREATE INDEX inbox_unreceipted ON inbox (team, to_key) WHERE receipted IS NOT state;
CREATE INDEX inbox_sequence ON inbox (team, to_key, sender_key, origin, sequence);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('outbox',2);
INSERT INTO "sqlite_sequence" VALUES('inbox',1);
COMMIT;
