"""The seccomp filter of a program in the sandbox: what a calculation never calls fails with "operation not permitted".

Classic BPF over the number of the system call, as the kernel's `seccomp_data` lays it out: number at 0, architecture at
4, the low half of the first argument at 16. Source: seccomp(2); numbers: the kernel's syscall tables.
"""

import errno
import platform
import struct

from digitloss.errors import SandboxError

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_KILL, _ALLOW, _FAIL = 0x8000_0000, 0x7FFF_0000, 0x0005_0000
_CLONE_THREAD = 0x10000

_REFUSED: tuple[tuple[str, int, int | None], ...] = (
    # other processes
    ("fork", 57, None),
    ("vfork", 58, None),
    ("execve", 59, 221),
    ("execveat", 322, 281),
    ("kill", 62, 129),
    ("tkill", 200, 130),
    ("tgkill", 234, 131),
    ("rt_sigqueueinfo", 129, 138),
    ("rt_tgsigqueueinfo", 297, 240),
    ("pidfd_open", 434, 434),
    ("pidfd_send_signal", 424, 424),
    ("pidfd_getfd", 438, 438),
    ("ptrace", 101, 117),
    ("process_vm_readv", 310, 270),
    ("process_vm_writev", 311, 271),
    ("kcmp", 312, 272),
    # network
    ("socket", 41, 198),
    # memory that no limit counts
    ("memfd_create", 319, 279),
    ("memfd_secret", 447, 447),
    ("shmget", 29, 194),
    ("msgget", 68, 186),
    ("semget", 64, 190),
    ("mq_open", 240, 180),
    # namespaces, mounts and the kernel's larger surfaces
    ("unshare", 272, 97),
    ("setns", 308, 268),
    ("mount", 165, 40),
    ("umount2", 166, 39),
    ("pivot_root", 155, 41),
    ("chroot", 161, 51),
    ("open_tree", 428, 428),
    ("move_mount", 429, 429),
    ("fsopen", 430, 430),
    ("bpf", 321, 280),
    ("perf_event_open", 298, 241),
    ("userfaultfd", 323, 282),
    ("io_uring_setup", 425, 425),
    ("add_key", 248, 217),
    ("request_key", 249, 218),
    ("keyctl", 250, 219),
    ("open_by_handle_at", 304, 265),
)
_ARCHITECTURES = {"x86_64": (0xC000_003E, 56), "aarch64": (0xC000_00B7, 220)}
"""Number of the architecture, and of its `clone`."""
_CLONE3 = 435


def build_filter(machine: str = platform.machine()) -> bytes:
    """Return the filter for a machine.

    Raises:
        SandboxError: The numbers of its system calls are not here.
    """
    if machine not in _ARCHITECTURES:
        expected = " or ".join(_ARCHITECTURES)
        raise SandboxError(f"programs are isolated on {expected} only, this machine is {machine}")
    audit, clone = _ARCHITECTURES[machine]
    numbers = [x86 if machine == "x86_64" else arm for _, x86, arm in _REFUSED]
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, 0x4000_0000),  # x32
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
        (_JUMP_EQUAL, 0, 1, _CLONE3),  # its flags cannot be read here: the C library then calls clone
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
        (_JUMP_EQUAL, 0, 4, clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_ANY_BIT, 0, 1, _CLONE_THREAD),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
    ]
    for number in numbers:
        if number is None:
            continue
        code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _FAIL | errno.EPERM)]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)
