"""How scripts wait for other processes: for a condition, with a deadline, never for a time."""
import time


def until(what, holds, seconds=60.0):
    """What `holds` returns, once it is true. `what` says what was missing: a text, or a function that makes one."""
    end = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what() if callable(what) else what}: not within {seconds} s")
        time.sleep(0.02)
