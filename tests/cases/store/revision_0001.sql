-- A database of revision 0001, as SQLite's `.dump` writes it. Never edit: it is what old installations have.
BEGIN TRANSACTION;
CREATE TABLE allocation (
	token TEXT NOT NULL, 
	workload TEXT DEFAULT '' NOT NULL, 
	group_name TEXT DEFAULT '' NOT NULL, 
	idx INTEGER DEFAULT '0' NOT NULL, 
	attempt INTEGER DEFAULT '0' NOT NULL, 
	backend TEXT DEFAULT '' NOT NULL, 
	native TEXT DEFAULT '' NOT NULL, 
	node TEXT DEFAULT '' NOT NULL, 
	submitted_at DOUBLE DEFAULT '0' NOT NULL, 
	started_at DOUBLE DEFAULT '0' NOT NULL, 
	ended_at DOUBLE DEFAULT '0' NOT NULL, 
	state TEXT DEFAULT '' NOT NULL, 
	exit_code INTEGER, 
	signal INTEGER DEFAULT '0' NOT NULL, 
	cause TEXT DEFAULT '' NOT NULL, 
	reason TEXT DEFAULT '' NOT NULL, 
	evidence TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_allocation PRIMARY KEY (token)
);
INSERT INTO "allocation" VALUES('llama-replica-0-1-x7k2p','llama','replica',0,1,'local','4000','',120.0,0.0,140.0,'',80,0,'application','','');
CREATE TABLE event (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at DOUBLE DEFAULT '0' NOT NULL, 
	workload TEXT DEFAULT '' NOT NULL, 
	task TEXT DEFAULT '' NOT NULL, 
	attempt INTEGER DEFAULT '0' NOT NULL, 
	kind TEXT DEFAULT '' NOT NULL, 
	phase TEXT DEFAULT '' NOT NULL, 
	reason TEXT DEFAULT '' NOT NULL, 
	data TEXT DEFAULT '{}' NOT NULL
);
INSERT INTO "event" VALUES(1,140.0,'llama','replica/0',1,'move','waiting','ended with code 80','{}');
CREATE TABLE lease (
	id INTEGER NOT NULL, 
	owner TEXT DEFAULT '' NOT NULL, 
	node TEXT DEFAULT '' NOT NULL, 
	pid BIGINT DEFAULT '0' NOT NULL, 
	start TEXT DEFAULT '' NOT NULL, 
	boot TEXT DEFAULT '' NOT NULL, 
	fence BIGINT DEFAULT '0' NOT NULL, 
	expires_at DOUBLE DEFAULT '0' NOT NULL, 
	renewed_at DOUBLE DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_lease PRIMARY KEY (id)
);
INSERT INTO "lease" VALUES(1,'','',0,'','',5,0.0,0.0);
CREATE TABLE meta (
	"key" TEXT NOT NULL, 
	value TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_meta PRIMARY KEY ("key")
);
CREATE TABLE remuda_revision (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT remuda_revision_pkc PRIMARY KEY (version_num)
);
INSERT INTO "remuda_revision" VALUES('0001');
CREATE TABLE task (
	workload TEXT NOT NULL, 
	group_name TEXT NOT NULL, 
	idx INTEGER NOT NULL, 
	backend TEXT DEFAULT '' NOT NULL, 
	phase TEXT DEFAULT '' NOT NULL, 
	attempt INTEGER DEFAULT '0' NOT NULL, 
	since DOUBLE DEFAULT '0' NOT NULL, 
	token TEXT DEFAULT '' NOT NULL, 
	native TEXT DEFAULT '' NOT NULL, 
	failures INTEGER DEFAULT '0' NOT NULL, 
	not_before DOUBLE DEFAULT '0' NOT NULL, 
	ready_since DOUBLE DEFAULT '0' NOT NULL, 
	kill_at DOUBLE DEFAULT '0' NOT NULL, 
	cause TEXT DEFAULT '' NOT NULL, 
	reason TEXT DEFAULT '' NOT NULL, 
	node TEXT DEFAULT '' NOT NULL, 
	url TEXT DEFAULT '' NOT NULL, 
	http_status INTEGER DEFAULT '0' NOT NULL, 
	pid BIGINT DEFAULT '0' NOT NULL, 
	restarts INTEGER DEFAULT '0' NOT NULL, 
	exit_code INTEGER, 
	seq BIGINT DEFAULT '-1' NOT NULL, 
	last_seen DOUBLE DEFAULT '0' NOT NULL, 
	metrics TEXT DEFAULT '{}' NOT NULL, 
	CONSTRAINT pk_task PRIMARY KEY (workload, group_name, idx), 
	CONSTRAINT fk_task_workload FOREIGN KEY(workload) REFERENCES workload (name) ON DELETE CASCADE
);
INSERT INTO "task" VALUES('llama','replica',0,'local','ready',2,150.0,'llama-replica-0-2-x7k2p','4242',0,0.0,0.0,0.0,'','answers its probe','','',0,0,0,NULL,17,0.0,'{}');
CREATE TABLE workload (
	name TEXT NOT NULL, 
	uid TEXT DEFAULT '' NOT NULL, 
	kind TEXT DEFAULT '' NOT NULL, 
	backend TEXT DEFAULT '' NOT NULL, 
	"plan" TEXT NOT NULL, 
	spec TEXT DEFAULT '' NOT NULL, 
	running BOOLEAN NOT NULL, 
	generation BIGINT DEFAULT '0' NOT NULL, 
	counts TEXT DEFAULT '{}' NOT NULL, 
	created_at DOUBLE DEFAULT '0' NOT NULL, 
	changed_at DOUBLE DEFAULT '0' NOT NULL, 
	note TEXT DEFAULT '' NOT NULL, 
	phase TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_workload PRIMARY KEY (name)
);
INSERT INTO "workload" VALUES('llama','x7k2p','swarm','local','{"groups":[]}','replicas: 1',1,4,'{}',100.5,200.5,'','ready');
CREATE INDEX ix_allocation_workload_group_name_idx ON allocation (workload, group_name, idx);
CREATE INDEX ix_event_workload_id ON event (workload, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('event',1);
COMMIT;
