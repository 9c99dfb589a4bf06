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
	evidence TEXT DEFAULT '' NOT NULL, pool TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_allocation PRIMARY KEY (token)
);
INSERT INTO "allocation" VALUES('herd.replica.0.1.6m7jcewf','herd','replica',0,1,'local','','',1.79565995463420844074e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('herd.replica.1.1.6m7jcewf','herd','replica',1,1,'local','','',1.79565995463420844074e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('herd.router.0.1.6m7jcewf','herd','router',0,1,'local','','',1.79565995463420844074e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('train.script.0.1.kauc46eg','train','script',0,1,'local','','',1.79565995566127371788e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('over.script.0.1.h2bu434n','over','script',0,1,'local','@HOME@/workloads/over/script-0/attempt-1-h2bu434n','@NODE@',1.79565995614343500144e+09,1.79565995625330567355e+09,1.79565995626299428934e+09,'ended',0,0,'','exit code 0','','');
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
INSERT INTO "event" VALUES(1,1.79565995462779116626e+09,'herd','',0,'intent','','brought up','{}');
INSERT INTO "event" VALUES(2,1.79565995463439512258e+09,'herd','replica/0',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(3,1.7956599546344175339e+09,'herd','replica/1',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(4,1.79565995463442420955e+09,'herd','router/0',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(5,1.79565995466541600223e+09,'herd','replica/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(6,1.79565995466546058658e+09,'herd','replica/1',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(7,1.79565995466549229624e+09,'herd','router/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(8,1.79565995476432919497e+09,'herd','replica/1',1,'move','starting','loading','{}');
INSERT INTO "event" VALUES(9,1.79565995483986973763e+09,'herd','replica/0',1,'move','starting','loading','{}');
INSERT INTO "event" VALUES(10,1.79565995484971284868e+09,'herd','router/0',1,'move','starting','loading','{}');
INSERT INTO "event" VALUES(11,1.79565995487319135666e+09,'herd','replica/1',1,'move','ready','answers its health probe','{}');
INSERT INTO "event" VALUES(12,1.79565995495341706273e+09,'herd','replica/0',1,'move','ready','answers its health probe','{}');
INSERT INTO "event" VALUES(13,1.79565995509785890577e+09,'herd','router/0',1,'move','ready','answers its health probe','{}');
INSERT INTO "event" VALUES(14,1.79565995557520985599e+09,'herd','',0,'endpoint','','the endpoint is announced','{}');
INSERT INTO "event" VALUES(15,1.79565995565819287302e+09,'train','',0,'intent','','brought up','{}');
INSERT INTO "event" VALUES(16,1.79565995566139793393e+09,'train','script/0',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(17,1.79565995567236471176e+09,'train','script/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(18,1.79565995578150939941e+09,'train','script/0',1,'move','starting','running, not ready yet','{}');
INSERT INTO "event" VALUES(19,1.79565995579871821407e+09,'train','script/0',1,'move','ready','runs','{}');
INSERT INTO "event" VALUES(20,1.79565995613923525811e+09,'over','',0,'intent','','brought up','{}');
INSERT INTO "event" VALUES(21,1.79565995614356327053e+09,'over','script/0',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(22,1.79565995615304636956e+09,'over','script/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(23,1.79565995625340247155e+09,'over','script/0',1,'move','starting','running, not ready yet','{}');
INSERT INTO "event" VALUES(24,1.79565995626028966905e+09,'over','script/0',1,'move','ready','runs','{}');
INSERT INTO "event" VALUES(25,1.79565995632813906672e+09,'over','script/0',1,'move','done','exit code 0','{}');
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
INSERT INTO "lease" VALUES(1,'','@NODE@',13011,'453481','405f03d6-24b0-4267-85c3-9c62ffaaae33',1,0.0,1.79565995957355332372e+09);
CREATE TABLE meta (
	"key" TEXT NOT NULL, 
	value TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_meta PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('clock','{"boot": "405f03d6-24b0-4267-85c3-9c62ffaaae33", "offset": 1795655418.5484755}');
CREATE TABLE node_evidence (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	node TEXT DEFAULT '' NOT NULL, 
	device TEXT DEFAULT '' NOT NULL, 
	at DOUBLE DEFAULT '0' NOT NULL, 
	weight DOUBLE DEFAULT '1' NOT NULL, 
	kind TEXT DEFAULT '' NOT NULL, 
	workload TEXT DEFAULT '' NOT NULL, 
	token TEXT DEFAULT '' NOT NULL, 
	detail TEXT DEFAULT '' NOT NULL, 
	expires_at DOUBLE DEFAULT '0' NOT NULL
, cluster TEXT DEFAULT '' NOT NULL);
CREATE TABLE remuda_revision (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT remuda_revision_pkc PRIMARY KEY (version_num)
);
INSERT INTO "remuda_revision" VALUES('0007');
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
	metrics TEXT DEFAULT '{}' NOT NULL, generation BIGINT DEFAULT '0' NOT NULL, submitted_at DOUBLE DEFAULT '0' NOT NULL, started_at DOUBLE DEFAULT '0' NOT NULL, limit_at DOUBLE DEFAULT '0' NOT NULL, pool_left_at DOUBLE DEFAULT '0' NOT NULL, requeues INTEGER DEFAULT '0' NOT NULL, pool_refusals INTEGER DEFAULT '0' NOT NULL, pool_failures INTEGER DEFAULT '0' NOT NULL, pool_nevers INTEGER DEFAULT '0' NOT NULL, quick_failures INTEGER DEFAULT '0' NOT NULL, never TEXT DEFAULT '' NOT NULL, ending TEXT DEFAULT '' NOT NULL, pool TEXT DEFAULT '' NOT NULL, restart_mark BIGINT DEFAULT '0' NOT NULL, released BOOLEAN DEFAULT 0 NOT NULL, yields_at DOUBLE DEFAULT '0' NOT NULL, loaded_at DOUBLE DEFAULT '0' NOT NULL, progress DOUBLE DEFAULT '0' NOT NULL, avoids INTEGER DEFAULT '0' NOT NULL, may_avoid INTEGER DEFAULT '2' NOT NULL, 
	CONSTRAINT pk_task PRIMARY KEY (workload, group_name, idx), 
	CONSTRAINT fk_task_workload FOREIGN KEY(workload) REFERENCES workload (name) ON DELETE CASCADE
);
INSERT INTO "task" VALUES('herd','replica',0,'local','ready',1,1.79565995495333981515e+09,'herd.replica.0.1.6m7jcewf','@HOME@/workloads/herd/replica-0/attempt-1-6m7jcewf',0,1.79565995463420844074e+09,1.79565995495333981515e+09,0.0,'','answers its health probe','@NODE@','http://127.0.0.1:8009',200,13562,0,NULL,2,1.79565995495333981515e+09,'{}',1,1.79565995463420844074e+09,1.7956599548397710323e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2);
INSERT INTO "task" VALUES('herd','replica',1,'local','ready',1,1.79565995487310194967e+09,'herd.replica.1.1.6m7jcewf','@HOME@/workloads/herd/replica-1/attempt-1-6m7jcewf',0,1.79565995463420844074e+09,1.79565995487310194967e+09,0.0,'','answers its health probe','@NODE@','http://127.0.0.1:8008',200,13561,0,NULL,2,1.79565995487310194967e+09,'{}',1,1.79565995463420844074e+09,1.79565995476423048973e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2);
INSERT INTO "task" VALUES('herd','router',0,'local','ready',1,1.79565995509775924677e+09,'herd.router.0.1.6m7jcewf','@HOME@/workloads/herd/router-0/attempt-1-6m7jcewf',0,1.79565995463420844074e+09,1.79565995509775924677e+09,0.0,'','answers its health probe','@NODE@','http://127.0.0.1:@PORT1@',200,13563,0,NULL,3,1.79565995509775924677e+09,'{}',1,1.79565995463420844074e+09,1.79565995484963107113e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2);
INSERT INTO "task" VALUES('train','script',0,'local','ready',1,1.79565995579862570765e+09,'train.script.0.1.kauc46eg','@HOME@/workloads/train/script-0/attempt-1-kauc46eg',0,1.79565995566127371788e+09,1.79565995579862570765e+09,0.0,'','runs','@NODE@','',0,15197,0,NULL,2,1.79565995579862570765e+09,'{}',1,1.79565995566127371788e+09,1.79565995578140735625e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2);
INSERT INTO "task" VALUES('over','script',0,'local','done',1,1.79565995632801795006e+09,'over.script.0.1.h2bu434n','@HOME@/workloads/over/script-0/attempt-1-h2bu434n',0,0.0,0.0,0.0,'','exit code 0','@NODE@','',0,0,0,0,3,1.795659956265668869e+09,'{}',1,1.79565995614343500144e+09,1.79565995625330567355e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2);
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
	phase TEXT DEFAULT '' NOT NULL, paused BOOLEAN DEFAULT 0 NOT NULL, restart_mark BIGINT DEFAULT '0' NOT NULL, ends_at DOUBLE DEFAULT '0' NOT NULL, used_at DOUBLE DEFAULT '0' NOT NULL, usage TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_workload PRIMARY KEY (name)
);
INSERT INTO "workload" VALUES('herd','6m7jcewf','swarm','local','{"name":"herd","kind":"swarm","uid":"6m7jcewf","backend":"local","place":{"env":{"LANG":"C.UTF-8","PATH":"/usr/bin:/bin","PYTHONPATH":"@SRC@"},"home":"@HOME@"},"groups":[{"name":"replica","role":"replica","count":2,"command":{"argv":["@PYTHON@","-m","tests.fakes.engine","--host","__REMUDA_HOST__","--port","__REMUDA_PORT__","--model","herd-1"],"env":{"REMUDA_PORT":"__REMUDA_PORT__","REMUDA_HOST":"__REMUDA_HOST__","REMUDA_MODEL":"herd-1"},"secret_env":{},"cwd":"@ROOT@","needs":{},"outside":false},"resources":{"gpus":0,"gpu_type":"","cpus":1,"threads_per_core":0,"mem_bytes":0,"nodes":1,"time_limit_s":0.0},"listen":{"port":8000,"fixed":false,"public":false},"probe":{"path":"/health","interval_s":0.3,"timeout_s":2.0,"startup_timeout_s":600.0,"stall_s":120.0,"unhealthy_restart_after_s":120.0,"bearer":""},"restart":{"policy":"on-failure","max_restarts":3,"backoff_initial_s":5.0,"backoff_max_s":60.0,"heal_after_s":600.0},"replace":{"policy":"always","max_failures":5,"backoff_initial_s":5.0,"backoff_max_s":300.0,"heal_after_s":600.0,"quick_s":0.0,"quick_limit":3,"until":0.0,"user_cancel":"replace"},"kill_grace_s":10.0,"log_level":"info","metrics_path":"","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":null,"backend":"","scan_log":true,"silence_s":0.0,"spread":null,"succession":null},{"name":"router","role":"router","count":1,"command":{"argv":["@PYTHON@","-m","remuda.serving.smg_launcher","--model","herd-1","--control-key-env","REMUDA_ROUTER_CONTROL_KEY","--","--host","__REMUDA_HOST__","--port","__REMUDA_PORT__","--policy","cache_aware","--log-level","warn","--disable-tokenizer-autoload","--health-check-interval-secs","1","--health-check-timeout-secs","2","--health-failure-threshold","1","--health-success-threshold","1","--worker-startup-check-interval","1","--worker-startup-timeout-secs","10","--cb-failure-threshold","10","--cb-timeout-duration-secs","2","--cb-success-threshold","1","--history-backend","none","--shutdown-grace-period-secs","1","--request-timeout-secs","3600"],"env":{"HF_HUB_OFFLINE":"1","NO_COLOR":"1"},"secret_env":{"REMUDA_ROUTER_CONTROL_KEY":{"file":"@HOME@/workloads/herd/secrets/6m7jcewf/router-control.key","env":""}},"cwd":"","needs":{},"outside":false},"resources":{"gpus":0,"gpu_type":"","cpus":0,"threads_per_core":0,"mem_bytes":0,"nodes":1,"time_limit_s":0.0},"listen":{"port":@PORT1@,"fixed":true,"public":false},"probe":{"path":"/health","interval_s":2.0,"timeout_s":2.0,"startup_timeout_s":60.0,"stall_s":0.0,"unhealthy_restart_after_s":10.0,"bearer":""},"restart":{"policy":"always","max_restarts":20,"backoff_initial_s":0.2,"backoff_max_s":5.0,"heal_after_s":60.0},"replace":{"policy":"always","max_failures":20,"backoff_initial_s":0.5,"backoff_max_s":30.0,"heal_after_s":10.0,"quick_s":0.0,"quick_limit":3,"until":0.0,"user_cancel":"replace"},"kill_grace_s":8.0,"log_level":"info","metrics_path":"","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":null,"backend":"","scan_log":false,"silence_s":0.0,"spread":null,"succession":null}],"endpoint":{"host":"127.0.0.1","port":@PORT1@,"router":"router","model":"herd-1","ready":"all","wait_s":600.0,"api_key":null,"relay":""},"run_dir":"@HOME@/workloads/herd","spec_file":"herd.yaml","labels":{"engine":"command","model":"herd-1","router":"smg"},"lifetime_s":0.0,"idle_timeout_s":0.0}','{"kind": "swarm", "name": "herd", "model": "herd-1", "served_model_name": "herd-1", "replicas": 2, "gpus_per_replica": 0, "gpus_per_node": 4, "nodes": 1, "replicas_per_node": 2, "cpus_per_task": 1, "engine": "command", "command": ["@PYTHON@", "-m", "tests.fakes.engine", "--host", "{host}", "--port", "{port}", "--model", "herd-1"], "args": [], "spanning": "engine", "port": 8000, "home_directory": "@HOME@", "cwd": "@ROOT@", "env": {}, "secret_env": {}, "ready": "all", "wait_endpoint_s": 600.0, "lifetime": 0.0, "drain": 600.0, "idle_timeout": 0.0, "log_level": "info", "router": {"type": "smg", "policy": "cache_aware", "request_timeout": 3600.0, "args": []}, "watchdog": {"enabled": true, "probe_interval": 0.3, "http_path": "/health", "http_timeout": 2.0, "readiness_timeout": 600.0, "restart_policy": "on-failure", "unhealthy_restart_after": 120.0, "max_restarts": 3, "restart_backoff_initial": 5.0, "restart_backoff_max": 60.0, "kill_grace_seconds": 10.0, "log_level": "info", "ray": {"enabled": false, "probe_timeout_s": 120.0, "status_grace_s": 10.0, "probe_interval_s": 30.0}, "stall_after": 120.0, "heal_after": 600.0, "silence_after": 60.0, "replace": "always", "max_replacements": 5}, "backend": {"type": "local", "endpoint": {"host": "127.0.0.1"}}}',1,1,'{}',1.79565995462779116626e+09,1.79565995462779116626e+09,'brought up','announced',0,0,0.0,0.0,'');
INSERT INTO "workload" VALUES('train','kauc46eg','run','local','{"name":"train","kind":"run","uid":"kauc46eg","backend":"local","place":{"env":{"LANG":"C.UTF-8","PATH":"/usr/bin:/bin","PYTHONPATH":"@SRC@"},"home":""},"groups":[{"name":"script","role":"script","count":1,"command":{"argv":["@HOME@/workloads/train/scripts/kauc46eg/train.sh"],"env":{"REMUDA_SCRIPT_DIR":"@ROOT@"},"secret_env":{},"cwd":"@ROOT@","needs":{},"outside":false},"resources":{"gpus":0,"gpu_type":"","cpus":0,"threads_per_core":0,"mem_bytes":0,"nodes":1,"time_limit_s":0.0},"listen":null,"probe":null,"restart":{"policy":"never","max_restarts":3,"backoff_initial_s":5.0,"backoff_max_s":60.0,"heal_after_s":600.0},"replace":{"policy":"on-failure","max_failures":11,"backoff_initial_s":10.0,"backoff_max_s":300.0,"heal_after_s":86400.0,"quick_s":120.0,"quick_limit":3,"until":0.0,"user_cancel":"stop"},"kill_grace_s":60.0,"log_level":"info","metrics_path":"","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":{"heartbeat_interval_s":30.0,"heartbeat_grace_s":90.0,"progress_stall_s":0.0,"gpu_check":true,"scan_log":true,"warn_signal":"TERM","warn_before_s":90.0},"backend":"","scan_log":false,"silence_s":0.0,"spread":null,"succession":null}],"endpoint":null,"run_dir":"@HOME@/workloads/train","spec_file":"train.sh","labels":{"mode":"run_once","script":"@ROOT@/train.sh"},"lifetime_s":0.0,"idle_timeout_s":0.0}','{"kind": "run", "script": "train.sh", "args": [], "backend": "local", "mode": "run_once", "keep_alive": 0.0, "gpus": 0, "nodes": 1, "time_limit": 0.0, "prefer": "max", "partitions": [], "heal_after": 86400.0, "quick_failure": 120.0, "heartbeat_interval": 30.0, "heartbeat_grace": 90.0, "progress_stall": 0.0, "backoff_base": 10.0, "backoff_max": 300.0, "blacklist_ttl": 43200.0, "blacklist_limit": 64, "no_blacklist": false, "retry_per_partition": 2, "reset_to_preferred": 3600.0, "hedge": false, "requeue": false, "signal": "TERM@90", "kill_grace": 60.0, "sbatch_args": [], "modules": [], "preamble": [], "env": {}, "secret_env": {}, "gpu_check": true, "checkpoint_every": 1800.0, "checkpoint_cost": 0.0, "restart_cost": 0.0}',1,1,'{}',1.79565995565819287302e+09,1.79565995565819287302e+09,'brought up','',0,0,0.0,0.0,'');
INSERT INTO "workload" VALUES('over','h2bu434n','run','local','{"name":"over","kind":"run","uid":"h2bu434n","backend":"local","place":{"env":{"LANG":"C.UTF-8","PATH":"/usr/bin:/bin","PYTHONPATH":"@SRC@"},"home":""},"groups":[{"name":"script","role":"script","count":1,"command":{"argv":["@HOME@/workloads/over/scripts/h2bu434n/over.sh"],"env":{"REMUDA_SCRIPT_DIR":"@ROOT@"},"secret_env":{},"cwd":"@ROOT@","needs":{},"outside":false},"resources":{"gpus":0,"gpu_type":"","cpus":0,"threads_per_core":0,"mem_bytes":0,"nodes":1,"time_limit_s":0.0},"listen":null,"probe":null,"restart":{"policy":"never","max_restarts":3,"backoff_initial_s":5.0,"backoff_max_s":60.0,"heal_after_s":600.0},"replace":{"policy":"on-failure","max_failures":11,"backoff_initial_s":10.0,"backoff_max_s":300.0,"heal_after_s":86400.0,"quick_s":120.0,"quick_limit":3,"until":0.0,"user_cancel":"stop"},"kill_grace_s":60.0,"log_level":"info","metrics_path":"","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":{"heartbeat_interval_s":30.0,"heartbeat_grace_s":90.0,"progress_stall_s":0.0,"gpu_check":true,"scan_log":true,"warn_signal":"TERM","warn_before_s":90.0},"backend":"","scan_log":false,"silence_s":0.0,"spread":null,"succession":null}],"endpoint":null,"run_dir":"@HOME@/workloads/over","spec_file":"over.sh","labels":{"mode":"run_once","script":"@ROOT@/over.sh"},"lifetime_s":0.0,"idle_timeout_s":0.0}','{"kind": "run", "script": "over.sh", "args": [], "backend": "local", "mode": "run_once", "keep_alive": 0.0, "gpus": 0, "nodes": 1, "time_limit": 0.0, "prefer": "max", "partitions": [], "heal_after": 86400.0, "quick_failure": 120.0, "heartbeat_interval": 30.0, "heartbeat_grace": 90.0, "progress_stall": 0.0, "backoff_base": 10.0, "backoff_max": 300.0, "blacklist_ttl": 43200.0, "blacklist_limit": 64, "no_blacklist": false, "retry_per_partition": 2, "reset_to_preferred": 3600.0, "hedge": false, "requeue": false, "signal": "TERM@90", "kill_grace": 60.0, "sbatch_args": [], "modules": [], "preamble": [], "env": {}, "secret_env": {}, "gpu_check": true, "checkpoint_every": 1800.0, "checkpoint_cost": 0.0, "restart_cost": 0.0}',1,1,'{}',1.79565995613923525811e+09,1.79565995613923525811e+09,'brought up','',0,0,0.0,0.0,'');
CREATE INDEX ix_allocation_workload_group_name_idx ON allocation (workload, group_name, idx);
CREATE INDEX ix_event_workload_id ON event (workload, id);
CREATE INDEX ix_node_evidence_node_at ON node_evidence (node, at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('event',25);
COMMIT;
