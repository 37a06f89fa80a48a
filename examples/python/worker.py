#!/usr/bin/env python3
"""Hands tasks in, runs them and settles them, over HTTP, with nothing but Python's standard library.

    ekiden serve                                        # in one terminal
    python3 examples/python/worker.py --add 3 --drain   # in another

`--add N` hands N tasks in, `--drain` works until none is left, and without `--drain` it works until Ctrl-C.
The server is $EKIDEN_URL, or http://127.0.0.1:7707; the token, if the server asks for one, is $EKIDEN_TOKEN.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

LEASE_MS = 30_000
RETRIES = 8


class Refused(Exception):
    """The server understood and said no: the reason code says why, and repeating does not help."""

    def __init__(self, error):
        super().__init__(f"{error['reason_code']}: {error['message']} {error['context']}")
        self.reason_code = error["reason_code"]


class Ekiden:
    """One namespace of a server. Every request that writes has an id of its own, so it can be sent again after a lost reply."""

    def __init__(self, url, namespace="default", token=None):
        self.base = f"{url.rstrip('/')}/api/v1/namespaces/{namespace}"
        self.headers = {"content-type": "application/json"}
        if token:
            self.headers["authorization"] = f"Bearer {token}"

    def send(self, method, path, body=None, wait=0.0):
        data = None if body is None else json.dumps(body).encode()
        pause = 0.02
        for attempt in range(RETRIES):
            request = urllib.request.Request(self.base + path, data, self.headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=15 + wait) as answer:
                    text = answer.read()
                    return json.loads(text) if text else None
            except urllib.error.HTTPError as failed:
                error = json.loads(failed.read())["error"]
                if not error["retryable"] or attempt + 1 == RETRIES:
                    raise Refused(error) from None
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                if attempt + 1 == RETRIES:
                    raise
            time.sleep(pause)
            pause *= 2

    def enqueue(self, task_type, payload, **wishes):
        task = {"op_id": str(uuid.uuid4()), "task_type": task_type, "payload": payload, **wishes}
        return self.send("POST", "/tasks", task)["id"]

    def get(self, task_id):
        return self.send("GET", f"/tasks/{urllib.parse.quote(task_id, safe='')}")


class Worker:
    """Claims tasks, runs them one after another, and settles each with the claim for the next in one request."""

    def __init__(self, queue, handlers):
        self.queue = queue
        self.handlers = handlers
        self.runner = f"python-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.stopping = threading.Event()

    def beat(self):
        """A sign of life renews the leases of everything that this runner holds."""
        beat = {"lease_ms": LEASE_MS, "task_types": list(self.handlers), "pools": ["default"]}
        self.queue.send("PUT", f"/runners/{self.runner}", beat)

    def keep_beating(self):
        while not self.stopping.wait(LEASE_MS / 4_000):
            try:
                self.beat()
            except OSError as error:
                print(f"no sign of life got through: {error}", file=sys.stderr)

    def run(self, drain=False):
        self.beat()
        threading.Thread(target=self.keep_beating, daemon=True).start()
        settlements, done = [], 0
        while not self.stopping.is_set() or settlements:
            wait_ms = 0 if drain or self.stopping.is_set() else 20_000
            request = {"settlements": settlements}
            if not self.stopping.is_set():
                claim = {"id": str(uuid.uuid4()), "runner": self.runner, "task_types": list(self.handlers)}
                request["claim"] = {**claim, "limit": 1, "wait_ms": 0 if settlements else wait_ms}
            answer = self.queue.send("POST", "/settlements", request, wait_ms / 1_000)
            for settled in answer["settled"]:
                if "error" in settled:
                    print(f"not settled: {settled['error']['reason_code']}", file=sys.stderr)
            done += len(settlements)
            settlements = [self.run_one(leased) for leased in answer["tasks"]]
            if drain and not settlements:
                break
        self.stopping.set()
        self.queue.send("DELETE", f"/runners/{self.runner}")
        return done

    def run_one(self, leased):
        task, token = leased["task"], leased["token"]
        try:
            result = self.handlers[task["task_type"]](task["payload"], token)
            verdict = {"outcome": "succeeded", "result": result}
        except Exception as error:  # Whatever goes wrong in a handler is the attempt's failure, not the worker's.
            verdict = {"outcome": "failed", "error": f"{type(error).__name__}: {error}"}
        return {"id": str(uuid.uuid4()), "task_id": task["id"], "token": token, "verdict": verdict}


def greet(payload, token):
    print(f"attempt {token}: hello {payload['name']}", flush=True)
    return {"greeted": payload["name"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=int, default=0, metavar="N", help="hand N tasks in first")
    parser.add_argument("--drain", action="store_true", help="end when no task is left")
    wishes = parser.parse_args()
    url = os.environ.get("EKIDEN_URL", "http://127.0.0.1:7707")
    queue = Ekiden(url, token=os.environ.get("EKIDEN_TOKEN"))
    try:
        added = [queue.enqueue("greet", {"name": f"runner {n}"}) for n in range(wishes.add)]
        worker = Worker(queue, {"greet": greet})
        signal.signal(signal.SIGINT, lambda *_: worker.stopping.set())
        done = worker.run(drain=wishes.drain)
        print(f"{done} settled")
        for task_id in added:
            task = queue.get(task_id)
            print(task["id"], task["state"], json.dumps(task.get("result")))
    except Refused as refused:
        sys.exit(str(refused))
    except OSError as error:
        sys.exit(f"cannot reach {url}: {error}")


if __name__ == "__main__":
    main()
