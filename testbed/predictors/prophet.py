#!/usr/bin/env python3
"""An external predictor of Tuplane by the Python package prophet (pip install prophet).

Reads {"slot": n, "arrived": k} and answers {"forecast": [..]}, a line each, until its input ends. A model is fitted to
the last --memory slots after each --every slots; in between, the forecasts of the last fit are given, and before the
first fit the mean. Where prophet is not installed it says so and exits with 3.
"""

import argparse
import collections
import json
import logging
import os
import sys

START = "2000-01-01"


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--window", type=int, default=16, help="slots of a forecast")
    parser.add_argument("--period", type=int, help="slots after which arrivals repeat; by default prophet decides on "
                        "daily, weekly and yearly seasons")
    parser.add_argument("--slot-seconds", type=float, default=60.0, help="length of a slot in the model's calendar")
    parser.add_argument("--memory", type=int, default=2000, help="slots that a model is fitted to")
    parser.add_argument("--every", type=int, default=200, help="slots between two fits")
    parser.add_argument("--check", action="store_true", help="say the version of prophet, and end")
    options = parser.parse_args()
    for name in ("window", "memory", "every"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if options.period is not None and options.period < 2:
        parser.error("--period must be at least 2")
    if not options.slot_seconds > 0:
        parser.error("--slot-seconds must be above 0")
    return options


def fit(prophet, pandas, options, slot, counts):
    """Forecasts of the slots after `slot`, the last of `counts`, up to where the next fit is due."""
    step = pandas.Timedelta(seconds=options.slot_seconds)
    start = pandas.Timestamp(START) + (slot + 1 - len(counts)) * step
    known = pandas.DataFrame({"ds": [start + i * step for i in range(len(counts))], "y": list(counts)})
    if options.period is None:
        model = prophet.Prophet(uncertainty_samples=0)
    else:
        model = prophet.Prophet(uncertainty_samples=0, daily_seasonality=False, weekly_seasonality=False,
                                yearly_seasonality=False)
        days = options.period * options.slot_seconds / 86400.0
        model.add_seasonality("period", period=days, fourier_order=max(1, min(10, options.period // 2)))
    model.fit(known)
    ahead = len(counts) + options.every + options.window
    later = pandas.DataFrame({"ds": [start + i * step for i in range(len(counts), ahead)]})
    return [max(0.0, float(rows)) for rows in model.predict(later)["yhat"]]


def main():
    options = read_options()
    # This file bears the package's name: its own folder must not be searched for the package.
    own = os.path.dirname(os.path.abspath(__file__)) if "__file__" in globals() else os.getcwd()
    sys.path = [folder for folder in sys.path if os.path.abspath(folder or os.getcwd()) != own]
    logging.getLogger("prophet.plot").setLevel(logging.CRITICAL)
    logging.getLogger("cmdstanpy").disabled = True
    try:
        import pandas
        import prophet
    except ImportError as missing:
        print(f"{missing}: install the Python package prophet for this python3 (pip install prophet)", file=sys.stderr)
        return 3
    if options.check:
        print(f"prophet {prophet.__version__}, pandas {pandas.__version__}, Python {sys.version.split()[0]}")
        return 0
    # What the model's compiled part prints must not stand among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    counts = collections.deque(maxlen=options.memory)
    least = min(max(2 * (options.period or 0), 30), options.memory)
    ahead, since = None, 0
    for line in sys.stdin:
        said = json.loads(line)
        counts.append(said["arrived"])
        since += 1
        if len(counts) >= least and (ahead is None or since >= options.every):
            ahead, since = fit(prophet, pandas, options, said["slot"], counts), 0
        if ahead is None:
            forecast = [sum(counts) / len(counts)] * options.window
        else:
            forecast = ahead[since:since + options.window]
        print(json.dumps({"slot": said["slot"], "forecast": forecast}), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
