"""`supervise` in a process of its own, to be killed."""

import sys
from pathlib import Path

from addnorm.store import StudyFolder
from addnorm.supervision.executors.local import LocalExecutor
from addnorm.supervision.supervisor import supervise

COMMAND = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))

if __name__ == "__main__":
    executor = LocalExecutor(int(sys.argv[2]), command=COMMAND)
    supervise(StudyFolder(sys.argv[1]), executor, on_tick=lambda _: None, tick_s=0.02, backoff_s=0.01)
