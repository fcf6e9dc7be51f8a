"""What another user puts where a file is expected neither hangs nor misleads."""
import os
import socket
import subprocess

from machine import COMMAND, one_line


def hostile(path):
    """Each kind in turn, with the word that a message must have."""
    os.mkfifo(path, 0o666)
    yield "FIFO"
    os.unlink(path)
    for target in ("/no/such/file", "/dev/zero", "/etc/passwd"):
        os.symlink(target, path)
        yield "symbolic link"
        os.unlink(path)
    os.mkdir(path)
    yield "folder"
    os.rmdir(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    yield "socket"
    listener.close()
    os.unlink(path)


def test_in_the_place_of_the_claim_table(machine):
    m = machine("a100-40gb")
    for kind in hostile(m.claim_table):
        for arguments, wanted in ((("run", "--fraction", "0.5", "--", "echo", "ran"), 125), (("run", "--memory", "1GiB", "--", "echo", "ran"), 125),
                                  (("run", "--fraction", "0.5", "--dry-run"), 125), (("queue", "--queue", "a=1"), 1), (("gc",), 1)):
            status, out, err = m.fracgpu(*arguments, input="echo ran\n")
            assert status == wanted and "ran" not in out and one_line(err) and kind in err and m.claim_table in err, (kind, arguments, status, out, err)
        status, out, err = m.fracgpu("status")
        assert kind in err and "GPU 0" in out, (kind, status, out, err)
        status, out, err = m.fracgpu("metrics")
        assert "fracgpu_unreadable_files 1" in out or "unreadable" in out, (kind, status, err)
    # One that may not be read.
    if os.geteuid() == 0:
        with open(m.claim_table, "wb"):
            os.chmod(m.claim_table, 0o600)
        status, out, err = m.fracgpu("run", "--fraction", "0.5", "--", "echo", "ran", user=65534)
        assert status == 125 and one_line(err) and "user root" in err and "0600" in err, (status, out, err)


def test_in_the_place_of_a_ledger(machine):
    m = machine("a100-40gb")
    for kind in hostile(m.ledger("x")):
        status, out, err = m.fracgpu("status")
        assert m.ledger("x") in err and "GPU 0" in out, (kind, status, out, err)
        for arguments in (("explain", m.tenant("x")), ("limit", m.tenant("x"), "1GiB"), ("gc", m.tenant("x"))):
            status, out, err = m.fracgpu(*arguments)
            assert status == 1 and one_line(err) and m.ledger("x") in err, (kind, arguments, status, out, err)


def test_in_the_place_of_a_program_and_of_an_image(machine):
    m = machine("a100-40gb")
    path = f"{m.folder}/program"
    os.mkfifo(path, 0o777)
    status, _, err = m.fracgpu("run", "--memory", "1GiB", "--", path)
    assert status == 126 and one_line(err), (status, err)
    status, out, err = m.fracgpu("doctor", "--", path)
    assert status is not None
    if os.geteuid() == 0:
        os.makedirs(f"{m.folder}/bundle/rootfs/lib")
        os.mkfifo(f"{m.folder}/bundle/rootfs/lib/libc.so.6")
        with open(f"{m.folder}/bundle/config.json", "w", encoding="ascii") as file:
            file.write('{"root":{"path":"rootfs"}}')
        done = subprocess.run([COMMAND, "cdi", "check-image"], input=f'{{"bundle":"{m.folder}/bundle"}}', text=True, timeout=60,
                              capture_output=True, env=m.environment, check=False)
        assert done.returncode != 0 and done.stderr, done
