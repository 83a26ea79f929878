"""A second process that is in the middle of something."""

import contextlib
import multiprocessing

SPAWN = multiprocessing.get_context("spawn")


@contextlib.contextmanager
def process_at(target, *arguments):
    """A process that runs `target(*arguments, pause)`, as it stands when it has called `pause()`, where it waits: it
    goes on by `go_on()`, which waits for its end and gives its exit code. It is killed with the block at the latest."""
    mine, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_run, args=(target, arguments, theirs), daemon=True)
    process.start()
    theirs.close()  # so that a process that dies is noticed
    try:
        mine.recv()
        yield process, lambda: _go_on(process, mine)
    finally:
        process.kill()
        process.join()


def _run(target, arguments, channel):
    def pause():
        channel.send(None)
        channel.recv()

    target(*arguments, pause)


def _go_on(process, channel):
    channel.send(None)
    process.join()
    return process.exitcode
