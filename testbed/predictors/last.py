#!/usr/bin/env python3
"""The smallest external predictor: what arrived in the last slot arrives in the next ones too.

Reads {"slot": n, "arrived": k} and answers {"forecast": [k, k, ..]}, a line each, until its input ends.
The options make the faults that Tuplane's tests want.
"""

import argparse
import json
import sys

options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
options.add_argument("--window", type=int, default=16, help="slots of a forecast")
options.add_argument("--hold", type=int, help="answer this slot's line only when the next one has come")
options.add_argument("--junk", type=int, help="answer this slot's line with what is no answer")
options.add_argument("--die", type=int, help="end at this slot's line")
options = options.parse_args()

held = []
for line in sys.stdin:
    said = json.loads(line)
    if said["slot"] == options.die:
        sys.exit(f"told to end at slot {options.die}")
    answer = json.dumps({"slot": said["slot"], "forecast": [said["arrived"]] * options.window})
    held.append("junk" if said["slot"] == options.junk else answer)
    if said["slot"] == options.hold:
        continue
    for answer in held:
        print(answer, flush=True)
    held.clear()
