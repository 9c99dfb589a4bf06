"""A stand-in for Dynamo where its 1.7 GB are not installed: `python -m dynamo.mocker`, `python -m dynamo.frontend`.

What they do is seen of `ai-dynamo` 1.6.0, which `make deployment` runs.

| behaviour | what it stands for |
|---|---|
| a worker lists itself in the folder DYN_FILE_KV, and is gone from it when it ends | discovery by files |
| a worker answers `/health` at DYN_SYSTEM_HOST:DYN_SYSTEM_PORT | its system server |
| the frontend's `/health` is «healthy», and lists component and endpoint of each | it is so with an empty list |
| `/v1/models` names the model only when some `backend` is listed | a model is known by its decode worker |
| a request is refused with 503 as long as a component is not listed | `--enforce-disagg` |
| the frontend answers itself, a token every two milliseconds | the mocker's engine, and the way to it |
| a worker's `/metrics` has `dynamo_component_requests_total`, which each request moves | that of every worker has it |
"""
