"""iopub bytes of a streamed answer: they must grow with the text, not with its square."""

from __future__ import annotations

import sys

from common import Report, bench


def main() -> int:
    report = Report("iopub traffic")
    bytes_of: dict[int, int] = {}
    with bench() as place:
        kernel = place.kernel(extension=True, weigh=True)
        kernel.timed("%%agent\nping")
        for thousands in (1, 4, 16):
            begin = len(kernel.arrivals)
            seconds = kernel.timed(f"%%agent\nsay {thousands}k")[1]
            mine = [message.size for message in kernel.arrivals[begin:]]
            bytes_of[thousands] = sum(mine)
            text = len("".join(f"w{i} " for i in range(1000 * thousands)))
            note = f"{sum(map(bool, mine))} messages in {seconds:.1f} s, text {text / 1000:.0f} kB"
            report.row(f"{thousands},000 words", sum(mine) / 1000, None, "kB", note)
    report.row("4k words against 1k", bytes_of[4] / bytes_of[1], 5, "x")
    report.row("16k words against 4k", bytes_of[16] / bytes_of[4], 5, "x")
    return report.code


if __name__ == "__main__":
    sys.exit(main())
