"""Runs a program as a machine would that allows less:
    limited.py [--memlock BYTES] [--no-io-uring] PROGRAM ARGUMENT..."""

import ctypes
import os
import platform
import resource
import struct
import sys

PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, CAP_IPC_LOCK = 24, 38, 22, 2, 14
IO_URING_SETUP = 425  # the same number on x86-64 and arm64
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM, as Docker's profile has it


def prctl(*arguments):
    if ctypes.CDLL(None, use_errno=True).prctl(*(ctypes.c_ulong(a) for a in arguments)) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {arguments[0]}")


def lock_little(bytes_max):
    try:
        prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)  # root's right to lock more; refused to whoever has none
    except OSError:
        pass
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (bytes_max, bytes_max))


def refuse_io_uring():
    assert platform.machine() in ("x86_64", "aarch64"), platform.machine()
    program = b"".join(
        struct.pack("=HBBI", *step)
        for step in [(LOAD_NUMBER, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, IO_URING_SETUP), (RETURN, 0, 0,
                                                                                     REFUSE), (RETURN, 0, 0, ALLOW)])
    steps = ctypes.create_string_buffer(program, len(program))
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(steps)))
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(filter_), 0, 0)


def main(words):
    while words and words[0].startswith("--"):
        if words[0] == "--memlock":
            lock_little(int(words[1]))
            words = words[2:]
        elif words[0] == "--no-io-uring":
            refuse_io_uring()
            words = words[1:]
        else:
            sys.exit(f"limited.py: unknown option {words[0]}")
    os.execv(words[0], words)


if __name__ == "__main__":
    main(sys.argv[1:])
