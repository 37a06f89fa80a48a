#!/usr/bin/env python3
"""A program that behaves like a coding agent, with nothing but the standard library: it works through a prompt step by step,
reports how far it is, asks before it does something that cannot be undone, and goes on with the answer.

    ekiden work --pool agents --kind prompt --exec "$PWD/examples/agent/agent.py"
    ekiden task add prompt '{"prompt":"tidy up; delete old files; say what was done"}' --pool agents
    ekiden task answer ID yes
"""

import json
import os
import signal
import sys

NEEDS_INPUT = 3


def say(**event):
    """One line of JSON through the side channel."""
    with open(os.environ["EKIDEN_EVENTS"], "w", encoding="utf-8") as events:
        events.write(json.dumps(event) + "\n")


def stop(*_):
    """Cancelled, out of time, or the runner ends: there is a moment to clean up."""
    print("stopping", flush=True)
    sys.exit(1)


def main():
    signal.signal(signal.SIGTERM, stop)
    prompt = os.environ.get("EKIDEN_PROMPT") or json.load(sys.stdin)["prompt"]
    answer = os.environ.get("EKIDEN_ANSWER")
    steps = [step.strip() for step in prompt.split(";") if step.strip()]
    done = []
    for number, step in enumerate(steps, start=1):
        say(type="progress", done=number - 1, total=len(steps), note=step)
        if "delete" in step:
            if answer is None:
                say(type="question", text=f"May I {step}?", choices=["yes", "no"], deadline_ms=3_600_000, default="no")
                sys.exit(NEEDS_INPUT)
            if answer != "yes":
                print(f"skipped: {step}", flush=True)
                continue
        print(f"done: {step}", flush=True)
        done.append(step)
    say(type="result", value={"done": done})


main()
