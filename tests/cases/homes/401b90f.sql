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
INSERT INTO "allocation" VALUES('herd.replica.0.1.srpvj55m','herd','replica',0,1,'local','','',1.79565996545837759969e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('herd.replica.1.1.srpvj55m','herd','replica',1,1,'local','','',1.79565996545837759969e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('herd.router.0.1.srpvj55m','herd','router',0,1,'local','','',1.79565996545837759969e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('train.script.0.1.nsh88t6d','train','script',0,1,'local','','',1.79565996656411361689e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('over.script.0.1.6x7qqtau','over','script',0,1,'local','@HOME@/workloads/over/script-0/attempt-1-6x7qqtau','@NODE@',1.79565996714544320106e+09,1.79565996726358461377e+09,1.79565996747105216979e+09,'ended',0,0,'','exit code 0','','');
INSERT INTO "allocation" VALUES('routed.prefill.0.1.9qhfzgnz','routed','prefill',0,1,'local','','',1.7956599682118222713e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('routed.decode.0.1.9qhfzgnz','routed','decode',0,1,'local','','',1.7956599682118222713e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('routed.decode.1.1.9qhfzgnz','routed','decode',1,1,'local','','',1.7956599682118222713e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('routed.frontend.0.1.9qhfzgnz','routed','frontend',0,1,'local','','',1.79565996855817794795e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('routed.gate.0.1.9qhfzgnz','routed','gate',0,1,'local','@HOME@/workloads/routed/gate-0/attempt-1-9qhfzgnz','@NODE@',1.79565996893870282171e+09,1.7956599690180397034e+09,1.79565996937026643755e+09,'ended',0,0,'','exit code 0','a request was answered with 8 tokens in 0.00 s
sglang:prompt_tokens_total of prefill: 0 → 7
','');
INSERT INTO "allocation" VALUES('ranks.rank.0.1.eagcdpsc','ranks','rank',0,1,'local','','',1.79565997009733748432e+09,0.0,0.0,'live',NULL,0,'','','','');
INSERT INTO "allocation" VALUES('ranks.rank.1.1.eagcdpsc','ranks','rank',1,1,'local','','',1.79565997009733748432e+09,0.0,0.0,'live',NULL,0,'','','','');
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
INSERT INTO "event" VALUES(1,1.79565996544924902922e+09,'herd','',0,'intent','','brought up','{}');
INSERT INTO "event" VALUES(2,1.79565996545859384537e+09,'herd','replica/0',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(3,1.79565996545861577982e+09,'herd','replica/1',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(4,1.79565996545862340927e+09,'herd','router/0',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(5,1.79565996547871375085e+09,'herd','replica/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(6,1.79565996547876095771e+09,'herd','replica/1',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(7,1.79565996547880291937e+09,'herd','router/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(8,1.7956599656055955887e+09,'herd','router/0',1,'move','starting','loading','{}');
INSERT INTO "event" VALUES(9,1.79565996568880629534e+09,'herd','replica/1',1,'move','starting','loading','{}');
INSERT INTO "event" VALUES(10,1.79565996570180726049e+09,'herd','replica/0',1,'move','starting','loading','{}');
INSERT INTO "event" VALUES(11,1.79565996586440181732e+09,'herd','router/0',1,'move','ready','answers its health probe','{}');
INSERT INTO "event" VALUES(12,1.79565996595192813867e+09,'herd','replica/1',1,'move','ready','answers its health probe','{}');
INSERT INTO "event" VALUES(13,1.79565996595200347901e+09,'herd','replica/0',1,'move','ready','answers its health probe','{}');
INSERT INTO "event" VALUES(14,1.79565996633770704271e+09,'herd','',0,'endpoint','','the endpoint is announced','{}');
INSERT INTO "event" VALUES(15,1.79565996656167650227e+09,'train','',0,'intent','','brought up','{}');
INSERT INTO "event" VALUES(16,1.79565996656425142289e+09,'train','script/0',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(17,1.79565996657053804398e+09,'train','script/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(18,1.79565996671300745013e+09,'train','script/0',1,'move','starting','running, not ready yet','{}');
INSERT INTO "event" VALUES(19,1.7956599667254226208e+09,'train','script/0',1,'move','ready','runs','{}');
INSERT INTO "event" VALUES(20,1.79565996714133667942e+09,'over','',0,'intent','','brought up','{}');
INSERT INTO "event" VALUES(21,1.79565996714567232129e+09,'over','script/0',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(22,1.79565996714985251425e+09,'over','script/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(23,1.79565996726369190216e+09,'over','script/0',1,'move','starting','running, not ready yet','{}');
INSERT INTO "event" VALUES(24,1.79565996726959323888e+09,'over','script/0',1,'move','ready','runs','{}');
INSERT INTO "event" VALUES(25,1.79565996753860616678e+09,'over','script/0',1,'move','done','exit code 0','{}');
INSERT INTO "event" VALUES(26,1.79565996820767474176e+09,'routed','',0,'intent','','brought up','{}');
INSERT INTO "event" VALUES(27,1.79565996821217274672e+09,'routed','prefill/0',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(28,1.79565996821219134326e+09,'routed','decode/0',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(29,1.7956599682122871876e+09,'routed','decode/1',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(30,1.79565996821229720116e+09,'routed','frontend/0',0,'move','waiting','held by `after` until these groups are ready: prefill, decode','{}');
INSERT INTO "event" VALUES(31,1.79565996821230196948e+09,'routed','gate/0',0,'move','waiting','held by `after` until these groups are ready: frontend','{}');
INSERT INTO "event" VALUES(32,1.79565996822966217989e+09,'routed','prefill/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(33,1.79565996822970581057e+09,'routed','decode/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(34,1.79565996822974205011e+09,'routed','decode/1',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(35,1795659968.30032,'routed','prefill/0',1,'move','starting','running, not ready yet','{}');
INSERT INTO "event" VALUES(36,1.79565996835127782821e+09,'routed','decode/0',1,'move','starting','running, not ready yet','{}');
INSERT INTO "event" VALUES(37,1.79565996835132718088e+09,'routed','decode/1',1,'move','starting','running, not ready yet','{}');
INSERT INTO "event" VALUES(38,1.79565996848053193099e+09,'routed','prefill/0',1,'move','ready','answers its health probe','{}');
INSERT INTO "event" VALUES(39,1.79565996855807042125e+09,'routed','decode/0',1,'move','ready','answers its health probe','{}');
INSERT INTO "event" VALUES(40,1.79565996855813670156e+09,'routed','decode/1',1,'move','ready','answers its health probe','{}');
INSERT INTO "event" VALUES(41,1.79565996855837440486e+09,'routed','frontend/0',1,'move','submitting','attempt 1: held by `after` until these groups are ready: decode','{}');
INSERT INTO "event" VALUES(42,1.79565996856281113623e+09,'routed','frontend/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(43,1.79565996865991806983e+09,'routed','frontend/0',1,'move','starting','running, not ready yet','{}');
INSERT INTO "event" VALUES(44,1.79565996893866324426e+09,'routed','frontend/0',1,'move','ready','answers its health probe','{}');
INSERT INTO "event" VALUES(45,1.79565996893889784813e+09,'routed','gate/0',1,'move','submitting','attempt 1: held by `after` until these groups are ready: frontend','{}');
INSERT INTO "event" VALUES(46,1.79565996894519114496e+09,'routed','gate/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(47,1.79565996901810026164e+09,'routed','gate/0',1,'move','starting','running, not ready yet','{}');
INSERT INTO "event" VALUES(48,1.79565996906768965716e+09,'routed','gate/0',1,'move','ready','runs','{}');
INSERT INTO "event" VALUES(49,1.79565996943004441265e+09,'routed','gate/0',1,'move','done','exit code 0','{}');
INSERT INTO "event" VALUES(50,1.79565996943362712855e+09,'routed','',0,'endpoint','','the endpoint is announced','{}');
INSERT INTO "event" VALUES(51,1.79565997009414744377e+09,'ranks','',0,'intent','','brought up','{}');
INSERT INTO "event" VALUES(52,1.79565997009757971764e+09,'ranks','rank/0',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(53,1.79565997009759712212e+09,'ranks','rank/1',1,'move','submitting','first attempt','{}');
INSERT INTO "event" VALUES(54,1.79565997010811734205e+09,'ranks','rank/0',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(55,1.79565997010816168783e+09,'ranks','rank/1',1,'move','pending','handed to the backend','{}');
INSERT INTO "event" VALUES(56,1.79565997020082283018e+09,'ranks','rank/0',1,'move','starting','running, not ready yet','{}');
INSERT INTO "event" VALUES(57,1.79565997025528407094e+09,'ranks','rank/1',1,'move','starting','running, not ready yet','{}');
INSERT INTO "event" VALUES(58,1.79565997026135087009e+09,'ranks','rank/0',1,'move','ready','runs','{}');
INSERT INTO "event" VALUES(59,1.79565997033321571351e+09,'ranks','rank/1',1,'move','ready','runs','{}');
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
INSERT INTO "lease" VALUES(1,'','@NODE@',16605,'454544','405f03d6-24b0-4267-85c3-9c62ffaaae33',1,0.0,1.79565997533868718146e+09);
CREATE TABLE meta (
	"key" TEXT NOT NULL, 
	value TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_meta PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('clock','{"boot": "405f03d6-24b0-4267-85c3-9c62ffaaae33", "offset": 1795655418.5484798}');
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
, cluster TEXT DEFAULT '' NOT NULL, boot TEXT DEFAULT '' NOT NULL);
CREATE TABLE remuda_revision (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT remuda_revision_pkc PRIMARY KEY (version_num)
);
INSERT INTO "remuda_revision" VALUES('0009');
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
	metrics TEXT DEFAULT '{}' NOT NULL, generation BIGINT DEFAULT '0' NOT NULL, submitted_at DOUBLE DEFAULT '0' NOT NULL, started_at DOUBLE DEFAULT '0' NOT NULL, limit_at DOUBLE DEFAULT '0' NOT NULL, pool_left_at DOUBLE DEFAULT '0' NOT NULL, requeues INTEGER DEFAULT '0' NOT NULL, pool_refusals INTEGER DEFAULT '0' NOT NULL, pool_failures INTEGER DEFAULT '0' NOT NULL, pool_nevers INTEGER DEFAULT '0' NOT NULL, quick_failures INTEGER DEFAULT '0' NOT NULL, never TEXT DEFAULT '' NOT NULL, ending TEXT DEFAULT '' NOT NULL, pool TEXT DEFAULT '' NOT NULL, restart_mark BIGINT DEFAULT '0' NOT NULL, released BOOLEAN DEFAULT 0 NOT NULL, yields_at DOUBLE DEFAULT '0' NOT NULL, loaded_at DOUBLE DEFAULT '0' NOT NULL, progress DOUBLE DEFAULT '0' NOT NULL, avoids INTEGER DEFAULT '0' NOT NULL, may_avoid INTEGER DEFAULT '2' NOT NULL, ports TEXT DEFAULT '{}' NOT NULL, 
	CONSTRAINT pk_task PRIMARY KEY (workload, group_name, idx), 
	CONSTRAINT fk_task_workload FOREIGN KEY(workload) REFERENCES workload (name) ON DELETE CASCADE
);
INSERT INTO "task" VALUES('herd','replica',1,'local','ready',1,1.79565996595180320735e+09,'herd.replica.1.1.srpvj55m','@HOME@/workloads/herd/replica-1/attempt-1-srpvj55m',0,1.79565996545837759969e+09,1.79565996595180320735e+09,0.0,'','answers its health probe','@NODE@','http://127.0.0.1:8010',200,16652,0,NULL,3,1.79565996595180320735e+09,'{}',1,1.79565996545837759969e+09,1.79565996568869566912e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2,'{}');
INSERT INTO "task" VALUES('herd','replica',0,'local','ready',1,1.79565996595180320735e+09,'herd.replica.0.1.srpvj55m','@HOME@/workloads/herd/replica-0/attempt-1-srpvj55m',0,1.79565996545837759969e+09,1.79565996595180320735e+09,0.0,'','answers its health probe','@NODE@','http://127.0.0.1:8011',200,16653,0,NULL,3,1.79565996595180320735e+09,'{}',1,1.79565996545837759969e+09,1.79565996570171761519e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2,'{}');
INSERT INTO "task" VALUES('herd','router',0,'local','ready',1,1.79565996586427927017e+09,'herd.router.0.1.srpvj55m','@HOME@/workloads/herd/router-0/attempt-1-srpvj55m',0,1.79565996545837759969e+09,1.79565996586427927017e+09,0.0,'','answers its health probe','@NODE@','http://127.0.0.1:@PORT1@',200,16651,0,NULL,3,1.79565996586427927017e+09,'{}',1,1.79565996545837759969e+09,1.79565996560547876353e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2,'{}');
INSERT INTO "task" VALUES('train','script',0,'local','ready',1,1.79565996672533392903e+09,'train.script.0.1.nsh88t6d','@HOME@/workloads/train/script-0/attempt-1-nsh88t6d',0,1.79565996656411361689e+09,1.79565996672533392903e+09,0.0,'','runs','@NODE@','',0,16718,0,NULL,2,1.79565996672533392903e+09,'{}',1,1.79565996656411361689e+09,1.79565996671289610864e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2,'{}');
INSERT INTO "task" VALUES('over','script',0,'local','done',1,1.79565996753847599036e+09,'over.script.0.1.6x7qqtau','@HOME@/workloads/over/script-0/attempt-1-6x7qqtau',0,0.0,0.0,0.0,'','exit code 0','@NODE@','',0,0,0,0,3,1.79565996747669148446e+09,'{}',1,1.79565996714544320106e+09,1.79565996726358461377e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2,'{}');
INSERT INTO "task" VALUES('routed','gate',0,'local','done',1,1.79565996942992258072e+09,'routed.gate.0.1.9qhfzgnz','@HOME@/workloads/routed/gate-0/attempt-1-9qhfzgnz',0,0.0,0.0,0.0,'','exit code 0','@NODE@','',0,0,0,0,2,1.79565996937615680699e+09,'{}',1,1.79565996893870282171e+09,1.7956599690180397034e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2,'{}');
INSERT INTO "task" VALUES('routed','decode',0,'local','ready',1,1.79565996855799102785e+09,'routed.decode.0.1.9qhfzgnz','@HOME@/workloads/routed/decode-0/attempt-1-9qhfzgnz',0,1.7956599682118222713e+09,1.79565996855799102785e+09,0.0,'','answers its health probe','@NODE@','http://127.0.0.1:20001',200,16817,0,NULL,3,1.79565996855666613583e+09,'{"prompt_tokens": 0.0, "generated_tokens": 0.0}',1,1.7956599682118222713e+09,1.79565996835121941561e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,1.79565996855666613583e+09,0.0,0,2,'{"nccl": 24746}');
INSERT INTO "task" VALUES('routed','prefill',0,'local','ready',1,1.79565996848037076e+09,'routed.prefill.0.1.9qhfzgnz','@HOME@/workloads/routed/prefill-0/attempt-1-9qhfzgnz',0,1.7956599682118222713e+09,1.79565996848037076e+09,0.0,'','answers its health probe','@NODE@','http://127.0.0.1:20000',200,16816,0,NULL,2,1.79565996848037076e+09,'{}',1,1.7956599682118222713e+09,1795659968.30026,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2,'{"nccl": 26937, "bootstrap": 20451}');
INSERT INTO "task" VALUES('routed','frontend',0,'local','ready',1,1.79565996893855524068e+09,'routed.frontend.0.1.9qhfzgnz','@HOME@/workloads/routed/frontend-0/attempt-1-9qhfzgnz',0,1.79565996855817794795e+09,1.79565996893855524068e+09,0.0,'','answers its health probe','@NODE@','http://127.0.0.1:@PORT2@',200,16837,0,NULL,3,1.79565996893855524068e+09,'{}',1,1.79565996855817794795e+09,1.79565996865986204152e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2,'{}');
INSERT INTO "task" VALUES('routed','decode',1,'local','ready',1,1.79565996855808520313e+09,'routed.decode.1.1.9qhfzgnz','@HOME@/workloads/routed/decode-1/attempt-1-9qhfzgnz',0,1.7956599682118222713e+09,1.79565996855808520313e+09,0.0,'','answers its health probe','@NODE@','http://127.0.0.1:20002',200,16818,0,NULL,3,1.79565996855664253232e+09,'{"prompt_tokens": 0.0, "generated_tokens": 0.0}',1,1.7956599682118222713e+09,1.79565996835129332537e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,1.79565996855664253232e+09,0.0,0,2,'{"nccl": 28073}');
INSERT INTO "task" VALUES('ranks','rank',0,'local','ready',1,1.79565997026127624515e+09,'ranks.rank.0.1.eagcdpsc','@HOME@/workloads/ranks/rank-0/attempt-1-eagcdpsc',0,1.79565997009733748432e+09,1.79565997026127624515e+09,0.0,'','runs','@NODE@','',0,16907,0,NULL,2,1.79565997026127624515e+09,'{}',1,1.79565997009733748432e+09,1.79565997020076274868e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2,'{}');
INSERT INTO "task" VALUES('ranks','rank',1,'local','ready',1,1.79565997033311080936e+09,'ranks.rank.1.1.eagcdpsc','@HOME@/workloads/ranks/rank-1/attempt-1-eagcdpsc',0,1.79565997009733748432e+09,1.79565997033311080936e+09,0.0,'','runs','@NODE@','',0,16908,0,NULL,2,1.79565997033311080936e+09,'{}',1,1.79565997009733748432e+09,1.79565997025524353974e+09,0.0,0.0,0,0,0,0,0,'','','',0,1,0.0,0.0,0.0,0,2,'{}');
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
	phase TEXT DEFAULT '' NOT NULL, paused BOOLEAN DEFAULT 0 NOT NULL, restart_mark BIGINT DEFAULT '0' NOT NULL, ends_at DOUBLE DEFAULT '0' NOT NULL, used_at DOUBLE DEFAULT '0' NOT NULL, usage TEXT DEFAULT '' NOT NULL, group_marks TEXT DEFAULT '{}' NOT NULL, 
	CONSTRAINT pk_workload PRIMARY KEY (name)
);
INSERT INTO "workload" VALUES('herd','srpvj55m','swarm','local','{"name":"herd","kind":"swarm","uid":"srpvj55m","backend":"local","place":{"env":{"LANG":"C.UTF-8","PATH":"/usr/bin:/bin","PYTHONPATH":"@SRC@"},"home":"@HOME@"},"groups":[{"name":"replica","role":"replica","count":2,"command":{"argv":["@PYTHON@","-m","tests.fakes.engine","--host","__REMUDA_HOST__","--port","__REMUDA_PORT__","--model","herd-1"],"env":{"REMUDA_PORT":"__REMUDA_PORT__","REMUDA_HOST":"__REMUDA_HOST__","REMUDA_MODEL":"herd-1"},"secret_env":{},"cwd":"@ROOT@","files":{},"needs":{},"outside":false,"image":"","mounts":[],"step_args":[],"workdir":""},"resources":{"gpus":0,"gpu_type":"","cpus":1,"threads_per_core":0,"mem_bytes":0,"whole_nodes":false,"nodes":1,"time_limit_s":0.0},"listen":{"port":8000,"fixed":false,"public":false},"ports":{},"probe":{"path":"/health","interval_s":0.3,"timeout_s":2.0,"startup_timeout_s":600.0,"stall_s":120.0,"unhealthy_restart_after_s":120.0,"bearer":""},"restart":{"policy":"on-failure","max_restarts":3,"backoff_initial_s":5.0,"backoff_max_s":60.0,"heal_after_s":600.0},"replace":{"policy":"always","max_failures":5,"backoff_initial_s":5.0,"backoff_max_s":300.0,"heal_after_s":600.0,"quick_s":0.0,"quick_limit":3,"until":0.0,"user_cancel":"replace"},"kill_grace_s":10.0,"log_level":"info","metrics_path":"","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":null,"backend":"","scan_log":true,"fatal_lines":[],"silence_s":0.0,"spread":null,"succession":null,"record_interval_s":0.0,"quorum":0,"after":[]},{"name":"router","role":"router","count":1,"command":{"argv":["@PYTHON@","-m","remuda.serving.smg_launcher","--model","herd-1","--control-key-env","REMUDA_ROUTER_CONTROL_KEY","--","--host","__REMUDA_HOST__","--port","__REMUDA_PORT__","--policy","cache_aware","--log-level","warn","--disable-tokenizer-autoload","--health-check-interval-secs","1","--health-check-timeout-secs","2","--health-failure-threshold","1","--health-success-threshold","1","--worker-startup-check-interval","1","--worker-startup-timeout-secs","10","--cb-failure-threshold","10","--cb-timeout-duration-secs","2","--cb-success-threshold","1","--history-backend","none","--shutdown-grace-period-secs","1","--request-timeout-secs","3600"],"env":{"HF_HUB_OFFLINE":"1","NO_COLOR":"1"},"secret_env":{"REMUDA_ROUTER_CONTROL_KEY":{"file":"@HOME@/workloads/herd/secrets/srpvj55m/router-control.key","env":""}},"cwd":"","files":{},"needs":{},"outside":false,"image":"","mounts":[],"step_args":[],"workdir":""},"resources":{"gpus":0,"gpu_type":"","cpus":0,"threads_per_core":0,"mem_bytes":0,"whole_nodes":false,"nodes":1,"time_limit_s":0.0},"listen":{"port":@PORT1@,"fixed":true,"public":false},"ports":{},"probe":{"path":"/health","interval_s":2.0,"timeout_s":10.0,"startup_timeout_s":60.0,"stall_s":0.0,"unhealthy_restart_after_s":60.0,"bearer":""},"restart":{"policy":"always","max_restarts":20,"backoff_initial_s":0.2,"backoff_max_s":5.0,"heal_after_s":60.0},"replace":{"policy":"always","max_failures":20,"backoff_initial_s":0.5,"backoff_max_s":30.0,"heal_after_s":10.0,"quick_s":0.0,"quick_limit":3,"until":0.0,"user_cancel":"replace"},"kill_grace_s":8.0,"log_level":"info","metrics_path":"","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":null,"backend":"","scan_log":false,"fatal_lines":[],"silence_s":0.0,"spread":null,"succession":null,"record_interval_s":0.0,"quorum":0,"after":[]}],"endpoint":{"host":"127.0.0.1","port":@PORT1@,"router":"router","model":"herd-1","ready":"all","wait_s":600.0,"api_key":null,"relay":"","behind":"","gate":""},"run_dir":"@HOME@/workloads/herd","spec_file":"herd.yaml","labels":{"engine":"command","model":"herd-1","router":"smg"},"lifetime_s":0.0,"idle_timeout_s":0.0,"ends_with":null}','{"kind": "swarm", "name": "herd", "model": "herd-1", "served_model_name": "herd-1", "replicas": 2, "gpus_per_replica": 0, "gpus_per_node": 4, "nodes": 1, "replicas_per_node": 2, "cpus_per_task": 1, "engine": "command", "command": ["@PYTHON@", "-m", "tests.fakes.engine", "--host", "{host}", "--port", "{port}", "--model", "herd-1"], "args": [], "spanning": "engine", "port": 8000, "home_directory": "@HOME@", "cwd": "@ROOT@", "env": {}, "secret_env": {}, "ready": "all", "wait_endpoint_s": 600.0, "lifetime": 0.0, "drain": 600.0, "idle_timeout": 0.0, "log_level": "info", "router": {"type": "smg", "policy": "cache_aware", "request_timeout": 3600.0, "args": []}, "watchdog": {"enabled": true, "probe_interval": 0.3, "http_path": "/health", "http_timeout": 2.0, "readiness_timeout": 600.0, "restart_policy": "on-failure", "unhealthy_restart_after": 120.0, "max_restarts": 3, "restart_backoff_initial": 5.0, "restart_backoff_max": 60.0, "kill_grace_seconds": 10.0, "log_level": "info", "ray": {"enabled": false, "probe_timeout_s": 120.0, "status_grace_s": 10.0, "probe_interval_s": 30.0}, "stall_after": 120.0, "heal_after": 600.0, "silence_after": 60.0, "replace": "always", "max_replacements": 5}, "profile": "", "backend": {"type": "local", "endpoint": {"host": "127.0.0.1"}}}',1,1,'{}',1.79565996544924902922e+09,1.79565996544924902922e+09,'brought up','announced',0,0,0.0,0.0,'','{}');
INSERT INTO "workload" VALUES('train','nsh88t6d','run','local','{"name":"train","kind":"run","uid":"nsh88t6d","backend":"local","place":{"env":{"LANG":"C.UTF-8","PATH":"/usr/bin:/bin","PYTHONPATH":"@SRC@"},"home":""},"groups":[{"name":"script","role":"script","count":1,"command":{"argv":["@HOME@/workloads/train/scripts/nsh88t6d/train.sh"],"env":{"REMUDA_SCRIPT_DIR":"@ROOT@"},"secret_env":{},"cwd":"@ROOT@","files":{},"needs":{},"outside":false,"image":"","mounts":[],"step_args":[],"workdir":""},"resources":{"gpus":0,"gpu_type":"","cpus":0,"threads_per_core":0,"mem_bytes":0,"whole_nodes":false,"nodes":1,"time_limit_s":0.0},"listen":null,"ports":{},"probe":null,"restart":{"policy":"never","max_restarts":3,"backoff_initial_s":5.0,"backoff_max_s":60.0,"heal_after_s":600.0},"replace":{"policy":"on-failure","max_failures":11,"backoff_initial_s":10.0,"backoff_max_s":300.0,"heal_after_s":86400.0,"quick_s":120.0,"quick_limit":3,"until":0.0,"user_cancel":"stop"},"kill_grace_s":60.0,"log_level":"info","metrics_path":"","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":{"heartbeat_interval_s":30.0,"heartbeat_grace_s":90.0,"progress_stall_s":0.0,"gpu_check":true,"scan_log":true,"warn_signal":"TERM","warn_before_s":90.0},"backend":"","scan_log":false,"fatal_lines":[],"silence_s":0.0,"spread":null,"succession":null,"record_interval_s":0.0,"quorum":0,"after":[]}],"endpoint":null,"run_dir":"@HOME@/workloads/train","spec_file":"train.sh","labels":{"mode":"run_once","script":"@ROOT@/train.sh"},"lifetime_s":0.0,"idle_timeout_s":0.0,"ends_with":null}','{"kind": "run", "script": "train.sh", "args": [], "backend": "local", "mode": "run_once", "keep_alive": 0.0, "gpus": 0, "nodes": 1, "time_limit": 0.0, "prefer": "max", "partitions": [], "heal_after": 86400.0, "quick_failure": 120.0, "heartbeat_interval": 30.0, "heartbeat_grace": 90.0, "progress_stall": 0.0, "backoff_base": 10.0, "backoff_max": 300.0, "blacklist_ttl": 43200.0, "blacklist_limit": 64, "no_blacklist": false, "retry_per_partition": 2, "reset_to_preferred": 3600.0, "hedge": false, "requeue": false, "signal": "TERM@90", "kill_grace": 60.0, "sbatch_args": [], "modules": [], "preamble": [], "env": {}, "secret_env": {}, "gpu_check": true, "profile": "", "checkpoint_every": 1800.0, "checkpoint_cost": 0.0, "restart_cost": 0.0}',1,1,'{}',1.79565996656167650227e+09,1.79565996656167650227e+09,'brought up','',0,0,0.0,0.0,'','{}');
INSERT INTO "workload" VALUES('over','6x7qqtau','run','local','{"name":"over","kind":"run","uid":"6x7qqtau","backend":"local","place":{"env":{"LANG":"C.UTF-8","PATH":"/usr/bin:/bin","PYTHONPATH":"@SRC@"},"home":""},"groups":[{"name":"script","role":"script","count":1,"command":{"argv":["@HOME@/workloads/over/scripts/6x7qqtau/over.sh"],"env":{"REMUDA_SCRIPT_DIR":"@ROOT@"},"secret_env":{},"cwd":"@ROOT@","files":{},"needs":{},"outside":false,"image":"","mounts":[],"step_args":[],"workdir":""},"resources":{"gpus":0,"gpu_type":"","cpus":0,"threads_per_core":0,"mem_bytes":0,"whole_nodes":false,"nodes":1,"time_limit_s":0.0},"listen":null,"ports":{},"probe":null,"restart":{"policy":"never","max_restarts":3,"backoff_initial_s":5.0,"backoff_max_s":60.0,"heal_after_s":600.0},"replace":{"policy":"on-failure","max_failures":11,"backoff_initial_s":10.0,"backoff_max_s":300.0,"heal_after_s":86400.0,"quick_s":120.0,"quick_limit":3,"until":0.0,"user_cancel":"stop"},"kill_grace_s":60.0,"log_level":"info","metrics_path":"","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":{"heartbeat_interval_s":30.0,"heartbeat_grace_s":90.0,"progress_stall_s":0.0,"gpu_check":true,"scan_log":true,"warn_signal":"TERM","warn_before_s":90.0},"backend":"","scan_log":false,"fatal_lines":[],"silence_s":0.0,"spread":null,"succession":null,"record_interval_s":0.0,"quorum":0,"after":[]}],"endpoint":null,"run_dir":"@HOME@/workloads/over","spec_file":"over.sh","labels":{"mode":"run_once","script":"@ROOT@/over.sh"},"lifetime_s":0.0,"idle_timeout_s":0.0,"ends_with":null}','{"kind": "run", "script": "over.sh", "args": [], "backend": "local", "mode": "run_once", "keep_alive": 0.0, "gpus": 0, "nodes": 1, "time_limit": 0.0, "prefer": "max", "partitions": [], "heal_after": 86400.0, "quick_failure": 120.0, "heartbeat_interval": 30.0, "heartbeat_grace": 90.0, "progress_stall": 0.0, "backoff_base": 10.0, "backoff_max": 300.0, "blacklist_ttl": 43200.0, "blacklist_limit": 64, "no_blacklist": false, "retry_per_partition": 2, "reset_to_preferred": 3600.0, "hedge": false, "requeue": false, "signal": "TERM@90", "kill_grace": 60.0, "sbatch_args": [], "modules": [], "preamble": [], "env": {}, "secret_env": {}, "gpu_check": true, "profile": "", "checkpoint_every": 1800.0, "checkpoint_cost": 0.0, "restart_cost": 0.0}',1,1,'{}',1.79565996714133667942e+09,1.79565996714133667942e+09,'brought up','',0,0,0.0,0.0,'','{}');
INSERT INTO "workload" VALUES('routed','9qhfzgnz','deployment','local','{"name":"routed","kind":"deployment","uid":"9qhfzgnz","backend":"local","place":{"env":{"LANG":"C.UTF-8","PATH":"/usr/bin:/bin","PYTHONPATH":"@SRC@"},"home":""},"groups":[{"name":"prefill","role":"prefill","count":1,"command":{"argv":["@PYTHON@","-m","sglang.launch_server","--model-path","@ROOT@/model","--served-model-name","tiny","--host","__REMUDA_HOST__","--port","__REMUDA_PORT__","--nccl-port","__REMUDA_PORT_nccl__","--disaggregation-mode","prefill","--disaggregation-bootstrap-port","__REMUDA_PORT_bootstrap__","--enable-metrics","--device","cpu"],"env":{"PYTHONPATH":"@STANDINS@"},"secret_env":{},"cwd":"","files":{},"needs":{},"outside":false,"image":"","mounts":[],"step_args":[],"workdir":""},"resources":{"gpus":0,"gpu_type":"","cpus":0,"threads_per_core":0,"mem_bytes":0,"whole_nodes":false,"nodes":1,"time_limit_s":0.0},"listen":{"port":0,"fixed":false,"public":false},"ports":{},"probe":{"path":"/health","interval_s":5.0,"timeout_s":5.0,"startup_timeout_s":1800.0,"stall_s":120.0,"unhealthy_restart_after_s":120.0,"bearer":""},"restart":{"policy":"on-failure","max_restarts":3,"backoff_initial_s":5.0,"backoff_max_s":60.0,"heal_after_s":600.0},"replace":{"policy":"always","max_failures":5,"backoff_initial_s":5.0,"backoff_max_s":300.0,"heal_after_s":600.0,"quick_s":0.0,"quick_limit":3,"until":0.0,"user_cancel":"replace"},"kill_grace_s":20.0,"log_level":"info","metrics_path":"/metrics","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":null,"backend":"","scan_log":true,"fatal_lines":["Scheduler hit an exception","Received sigquit from a child process","torch.OutOfMemoryError"],"silence_s":0.0,"spread":null,"succession":null,"record_interval_s":0.0,"quorum":0,"after":[]},{"name":"decode","role":"decode","count":2,"command":{"argv":["@PYTHON@","-m","sglang.launch_server","--model-path","@ROOT@/model","--served-model-name","tiny","--host","__REMUDA_HOST__","--port","__REMUDA_PORT__","--nccl-port","__REMUDA_PORT_nccl__","--disaggregation-mode","decode","--enable-metrics","--device","cpu"],"env":{"PYTHONPATH":"@STANDINS@"},"secret_env":{},"cwd":"","files":{},"needs":{},"outside":false,"image":"","mounts":[],"step_args":[],"workdir":""},"resources":{"gpus":0,"gpu_type":"","cpus":0,"threads_per_core":0,"mem_bytes":0,"whole_nodes":false,"nodes":1,"time_limit_s":0.0},"listen":{"port":0,"fixed":false,"public":false},"ports":{},"probe":{"path":"/health","interval_s":5.0,"timeout_s":5.0,"startup_timeout_s":1800.0,"stall_s":120.0,"unhealthy_restart_after_s":120.0,"bearer":""},"restart":{"policy":"on-failure","max_restarts":3,"backoff_initial_s":5.0,"backoff_max_s":60.0,"heal_after_s":600.0},"replace":{"policy":"always","max_failures":5,"backoff_initial_s":5.0,"backoff_max_s":300.0,"heal_after_s":600.0,"quick_s":0.0,"quick_limit":3,"until":0.0,"user_cancel":"replace"},"kill_grace_s":20.0,"log_level":"info","metrics_path":"/metrics","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":null,"backend":"","scan_log":true,"fatal_lines":["Scheduler hit an exception","Received sigquit from a child process","torch.OutOfMemoryError"],"silence_s":0.0,"spread":null,"succession":null,"record_interval_s":0.0,"quorum":0,"after":[]},{"name":"frontend","role":"router","count":1,"command":{"argv":["@PYTHON@","-m","remuda.serving.smg_launcher","--model","tiny","--control-key-env","REMUDA_ROUTER_CONTROL_KEY","--","--host","__REMUDA_HOST__","--port","__REMUDA_PORT__","--policy","cache_aware","--pd-disaggregation","--log-level","warn","--disable-tokenizer-autoload","--health-check-interval-secs","1","--health-check-timeout-secs","2","--health-failure-threshold","1","--health-success-threshold","1","--worker-startup-check-interval","1","--worker-startup-timeout-secs","10","--cb-failure-threshold","10","--cb-timeout-duration-secs","2","--cb-success-threshold","1","--history-backend","none","--shutdown-grace-period-secs","1","--request-timeout-secs","3600"],"env":{"HF_HUB_OFFLINE":"1","NO_COLOR":"1","PYTHONPATH":"@STANDINS@"},"secret_env":{"REMUDA_ROUTER_CONTROL_KEY":{"file":"@HOME@/workloads/routed/secrets/9qhfzgnz/router-control.key","env":""}},"cwd":"","files":{},"needs":{},"outside":false,"image":"","mounts":[],"step_args":[],"workdir":""},"resources":{"gpus":0,"gpu_type":"","cpus":0,"threads_per_core":0,"mem_bytes":0,"whole_nodes":false,"nodes":1,"time_limit_s":0.0},"listen":{"port":@PORT2@,"fixed":true,"public":false},"ports":{},"probe":{"path":"/health","interval_s":2.0,"timeout_s":10.0,"startup_timeout_s":60.0,"stall_s":0.0,"unhealthy_restart_after_s":60.0,"bearer":""},"restart":{"policy":"always","max_restarts":20,"backoff_initial_s":0.2,"backoff_max_s":5.0,"heal_after_s":60.0},"replace":{"policy":"always","max_failures":20,"backoff_initial_s":0.5,"backoff_max_s":30.0,"heal_after_s":10.0,"quick_s":0.0,"quick_limit":3,"until":0.0,"user_cancel":"replace"},"kill_grace_s":8.0,"log_level":"info","metrics_path":"","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":null,"backend":"","scan_log":false,"fatal_lines":[],"silence_s":0.0,"spread":null,"succession":null,"record_interval_s":0.0,"quorum":0,"after":["prefill","decode"]},{"name":"gate","role":"gate","count":1,"command":{"argv":["@PYTHON@","-m","remuda.control.gate","routed"],"env":{"REMUDA_HOME":"@HOME@"},"secret_env":{},"cwd":"","files":{},"needs":{},"outside":false,"image":"","mounts":[],"step_args":[],"workdir":""},"resources":{"gpus":0,"gpu_type":"","cpus":0,"threads_per_core":0,"mem_bytes":0,"whole_nodes":false,"nodes":1,"time_limit_s":0.0},"listen":null,"ports":{},"probe":null,"restart":{"policy":"never","max_restarts":3,"backoff_initial_s":5.0,"backoff_max_s":60.0,"heal_after_s":600.0},"replace":{"policy":"on-failure","max_failures":3,"backoff_initial_s":1.0,"backoff_max_s":300.0,"heal_after_s":600.0,"quick_s":0.0,"quick_limit":3,"until":0.0,"user_cancel":"replace"},"kill_grace_s":10.0,"log_level":"info","metrics_path":"","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":null,"backend":"local","scan_log":false,"fatal_lines":[],"silence_s":0.0,"spread":null,"succession":null,"record_interval_s":0.0,"quorum":0,"after":["frontend"]}],"endpoint":{"host":"127.0.0.1","port":@PORT2@,"router":"frontend","model":"tiny","ready":"all","wait_s":1800.0,"api_key":null,"relay":"","behind":"","gate":"gate"},"run_dir":"@HOME@/workloads/routed","spec_file":"routed.yaml","labels":{"engine":"sglang","model":"@ROOT@/model","router":"smg","frontend":"sglang-router","directory":"@HOME@/deployments/routed_1P_2D_20261126T022608"},"lifetime_s":0.0,"idle_timeout_s":0.0,"ends_with":null}','{"kind": "deployment", "name": "routed", "model": {"path": "@ROOT@/model", "name": "tiny", "precision": ""}, "engine": {"type": "sglang"}, "roles": {"prefill": {"nodes": 1, "workers": 1, "env": {}, "args": {}, "extra_args": [], "srun_options": {}, "critical": true}, "decode": {"nodes": 1, "workers": 2, "env": {}, "args": {}, "extra_args": [], "srun_options": {}, "critical": true}}, "gpu_type": "", "gpus_per_node": 4, "services": [], "frontend": {"type": "sglang-router", "replicas": 1, "args": {}, "env": {}, "placement": {"node": "head"}, "cpus": 4, "mem": "8GB", "host": "127.0.0.1"}, "dynamo": {"request_plane": "tcp"}, "env": {"PYTHONPATH": "@STANDINS@"}, "secret_env": {}, "mounts": {}, "allocation": "per-worker", "health_check": {"max_attempts": 180, "interval_seconds": 10.0, "fatal_log_markers": true, "extra_fatal_log_patterns": []}, "benchmark": {"type": "manual", "concurrencies": [], "req_rate": [Infinity], "random_range_ratio": 0.8, "num_prompts_mult": 10, "num_warmup_mult": 2, "use_chat_template": true, "command": [], "env": {}, "placement": {"node": "head"}}, "backend": {"type": "local", "endpoint": {"host": "127.0.0.1"}}, "identity": {}}',1,1,'{}',1.79565996820767474176e+09,1.79565996820767474176e+09,'brought up','announced',0,0,0.0,0.0,'','{}');
INSERT INTO "workload" VALUES('ranks','eagcdpsc','gang','local','{"name":"ranks","kind":"gang","uid":"eagcdpsc","backend":"local","place":{"env":{"LANG":"C.UTF-8","PATH":"/usr/bin:/bin","PYTHONPATH":"@SRC@"},"home":""},"groups":[{"name":"rank","role":"rank","count":2,"command":{"argv":["sleep","600"],"env":{"REPLICA_RANK":"__REMUDA_INDEX__","REPLICA_COUNT":"2","RUN_ID":"ranks","REMUDA_RENDEZVOUS":"file://@HOME@/workloads/ranks/rendezvous"},"secret_env":{},"cwd":"@ROOT@","files":{},"needs":{},"outside":false,"image":"","mounts":[],"step_args":[],"workdir":""},"resources":{"gpus":0,"gpu_type":"","cpus":0,"threads_per_core":0,"mem_bytes":0,"whole_nodes":false,"nodes":1,"time_limit_s":0.0},"listen":null,"ports":{},"probe":null,"restart":{"policy":"never","max_restarts":3,"backoff_initial_s":5.0,"backoff_max_s":60.0,"heal_after_s":600.0},"replace":{"policy":"on-failure","max_failures":11,"backoff_initial_s":10.0,"backoff_max_s":300.0,"heal_after_s":86400.0,"quick_s":120.0,"quick_limit":3,"until":0.0,"user_cancel":"stop"},"kill_grace_s":60.0,"log_level":"info","metrics_path":"","pools":[],"failover":{"retry_per_pool":2,"reset_to_preferred_s":3600.0,"hedge":false},"nodes":{"exclude":true,"ttl_s":43200.0,"limit":64},"watch":{"heartbeat_interval_s":30.0,"heartbeat_grace_s":90.0,"progress_stall_s":0.0,"gpu_check":true,"scan_log":true,"warn_signal":"TERM","warn_before_s":90.0},"backend":"","scan_log":false,"fatal_lines":[],"silence_s":0.0,"spread":null,"succession":null,"record_interval_s":0.0,"quorum":0,"after":[]}],"endpoint":null,"run_dir":"@HOME@/workloads/ranks","spec_file":"","labels":{"rendezvous":"file://@HOME@/workloads/ranks/rendezvous","run_id":"ranks"},"lifetime_s":0.0,"idle_timeout_s":0.0,"ends_with":null}','{"kind": "gang", "name": "ranks", "ranks": 2, "command": ["sleep", "600"], "args": [], "env": {}, "secret_env": {}, "resources": {"gpus": 0}, "mode": "elastic", "backend": "local", "timeout": 0.0, "max_retries": 10, "heal_after": 86400.0, "quick_failure": 120.0, "heartbeat_interval": 30.0, "heartbeat_grace": 90.0, "progress_stall": 0.0, "backoff_base": 10.0, "backoff_max": 300.0, "kill_grace": 60.0, "gpu_check": true, "profile": ""}',1,1,'{}',1.79565997009414744377e+09,1.79565997009414744377e+09,'brought up','',0,0,0.0,0.0,'','{}');
CREATE INDEX ix_allocation_workload_group_name_idx ON allocation (workload, group_name, idx);
CREATE INDEX ix_event_workload_id ON event (workload, id);
CREATE INDEX ix_node_evidence_node_at ON node_evidence (node, at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('event',59);
COMMIT;
