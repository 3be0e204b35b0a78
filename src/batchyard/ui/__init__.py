"""`batchyard ui`: a live page about the runs of one `.batchyard` folder, in a browser.

- access: which requests are answered; http_server: sockets, threads and their limits
- application: addresses and what each of them answers; parameters: checked values of a request
- run_list, run_reader: read runs, once for all tabs; streams: their changes as events
- run_model, child_table: the state of a run in the form that the page draws; pure
- logs: parts of logs; timeline: charts, drawn by the code of `batchyard report`
- actions: stop, retry and resume
- page/: the files that the browser gets
"""
