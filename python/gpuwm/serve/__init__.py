"""gpuwm-serve: one address for many models, which take turns on the GPUs of this machine.

    gpuwm-serve models.toml

| module | what it does |
|---|---|
| `models` | reads and checks models.toml |
| `decision` | says who sleeps and who wakes: functions of what they are given, and nothing else |
| `turns` | the queue before each model, and the loop that carries decisions out |
| `supervisor` | the processes of engines |
| `proxy` | HTTP: requests to engines and answers to clients |
| `metrics` | counts for Prometheus |
| `commands` | `gpuwm-serve wake` and `reload`, both sides |
| `server` | start and end, and what it listens at |
| `gpuwmd` | what it asks gpuwmd |

`import gpuwm` imports nothing of it. It needs the extra `gpuwm-client[serve]`.
"""
