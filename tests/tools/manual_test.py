"""The man page, the completions, what --help says, and what is installed."""
import json
import os
import pty
import re
import select
import shutil
import subprocess
import tempfile

import pytest

from machine import BUILD, CLIENT, COMMAND, GIB, Machine, install, one_line


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **more)


def commands_in(text):
    found = text.split("Subcommands:")[1].split("\n\n")[0] if "Subcommands:" in text else ""
    return re.findall(r"^  ([\w-]+)  ", found, re.M)


def helps():
    """{subcommand: its --help}; "" is that of the command itself."""
    told = {"": run(COMMAND, "--help").stdout}
    for name in commands_in(told[""]):
        told[name] = run(COMMAND, name, "--help").stdout
        for inner in commands_in(told[name]):
            told[f"{name} {inner}"] = run(COMMAND, name, inner, "--help").stdout
    return told


def options(text):
    columns = re.findall(r"^  (-[\w,-]+)", text.split("Options:")[1].split("\n\n")[0], re.M)
    return {name for column in columns for name in column.split(",")}


def rendered(path):
    """The man page as a terminal shows it, without bold and without hyphenation."""
    done = run("groff", "-man", "-Tascii", "-P-c", "-rHY=0", "-rLL=200n", path)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return re.sub(".\b", "", done.stdout)


def test_every_help_teaches():
    told = helps()
    assert {"run", "queue", "status", "limit", "gc", "doctor", "metrics"} <= set(told), told.keys()
    for name, text in told.items():
        assert "Exit status" in text, f"{name} --help does not say its exit statuses"
        assert name in ("", "status", "cdi check-image") or "Examples:\n  fracgpu " + name in text, f"{name} --help has no example"
    statuses = re.findall(r"^  (\d+) +\S", told[""].split("Exit status")[1], re.M)
    assert statuses == ["0", "1", "2", "75", "125", "126", "127"], statuses


def test_the_man_page_says_what_help_says():
    with tempfile.NamedTemporaryFile(suffix=".1", mode="w", encoding="ascii") as page:
        done = run(COMMAND, "--manual")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        page.write(done.stdout)
        page.flush()
        with open(f"{BUILD}/tools/manual/fracgpu.1", encoding="ascii") as built:
            assert built.read() == done.stdout
        text = rendered(page.name)
        assert "\\" not in text.replace("\\(", ""), "something was not escaped"
        told = helps()
        for name, told_text in told.items():
            section = text if name == "" else re.split(rf"^ +fracgpu {name}$", text, maxsplit=1, flags=re.M)[1]
            section = re.split(r"^ +fracgpu \w+(?: [a-z-]+)?$|^EXIT STATUS$", section, maxsplit=1, flags=re.M)[0]
            for option in options(told_text):
                assert re.search(rf"^ +(-\w, )?{option}\b", section, re.M), f"{name} {option} is not in the man page"
            for line in told_text.splitlines():
                if line.startswith(f"  fracgpu {name} "):
                    assert line.strip() in section, f"not in the man page: {line}"
        for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES"):
            assert f"\n{heading}\n" in text, heading
        done = run("groff", "-man", "-ww", "-Tascii", "-z", page.name)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        if shutil.which("mandoc"):
            done = run("mandoc", "-T", "lint", "-W", "warning", page.name)
            assert done.returncode == 0, done.stdout
        else:
            pytest.skip("mandoc is not installed: only groff has read the page")


def top_level(told):
    return {name for name in told if name and " " not in name}


BASH = """source {script}
compopt() {{ :; }}  # works inside of a completion only
COMP_WORDS=({words}); COMP_CWORD=$(({cword})); _fracgpu; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


INSTALLED = {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"}  # the completions ask the command


def bash_offers(words, env=None):
    """What bash's function offers for the last of these words."""
    script = BASH.format(script=f"{BUILD}/tools/manual/fracgpu", words=" ".join(f"'{word}'" for word in words),
                         cword=len(words) - 1)
    done = run("bash", "--norc", "-c", script, env=env or INSTALLED)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return set(done.stdout.split())


def test_bash_offers():
    told = helps()
    assert bash_offers(["fracgpu", ""]) == top_level(told)
    assert bash_offers(["fracgpu", "cdi", ""]) == {"generate", "check-image"}
    assert bash_offers(["fracgpu", "cdi", "gen"]) == {"generate"}
    assert bash_offers(["fracgpu", "me"]) == {"metrics"}
    for name, text in told.items():
        words = ["fracgpu", *name.split(), "-"]
        assert bash_offers(words) == options(text), name
    assert bash_offers(["fracgpu", "run", "--fraction", "0.12"]) == {"0.125"}
    assert bash_offers(["fracgpu", "run", "--fraction", "=", "0.12"]) == {"0.125"}
    assert bash_offers(["fracgpu", "run", "--count", "=", ""]) >= {"1", "2", "4"}
    assert bash_offers(["fracgpu", "run", "--memory", ""]) == set()
    assert "true" in bash_offers(["fracgpu", "run", "--memory", "1GiB", "--", "tru"])
    assert bash_offers(["fracgpu", "run", "--", "cat", "/etc/passw"]) >= {"/etc/passwd"}
    assert bash_offers(["fracgpu", "queue", "/etc/passw"]) >= {"/etc/passwd"}
    # The command begins with its first word, behind -- or not.
    assert "true" in bash_offers(["fracgpu", "run", "--memory", "1GiB", "tru"])
    assert "true" in bash_offers(["fracgpu", "run", "--memory", "=", "1GiB", "--json", "tru"])
    assert bash_offers(["fracgpu", "run", "cat", "/etc/passw"]) >= {"/etc/passwd"}
    assert bash_offers(["fracgpu", "run", "cat", "--mem"]) == set()
    assert bash_offers(["fracgpu", "run", "--tenant", "run", "--mem"]) == {"--memory"}
    # Values.
    assert "30s" in bash_offers(["fracgpu", "run", "--wait", "=", ""])
    assert "30s" not in bash_offers(["fracgpu", "run", "--wait", ""])
    assert bash_offers(["fracgpu", "cdi", "generate", "--output", "/et"]) == {"/etc"}
    assert bash_offers(["fracgpu", "cdi", "generate", "--library", "/etc/passw"]) >= {"/etc/passwd"}
    prefix = f"completed-{os.getpid()}"
    names = [f"/dev/shm/fracgpu-{prefix}-{end}" for end in ("a", "$(touch x)", "b;c", "d e")]
    for name in names:
        with open(name, "wb"):
            pass
    try:
        for words in (["limit", prefix], ["status", prefix], ["run", "--tenant", prefix], ["gc", prefix]):
            assert bash_offers(["fracgpu", *words]) == {f"{prefix}-a"}, words
        if shutil.which("fish"):
            done = run("fish", "-c", f"source {BUILD}/tools/manual/fracgpu.fish; complete -C 'fracgpu gc {prefix}'",
                       env=INSTALLED)
            assert re.findall(rf"{prefix}\S*", done.stdout) == [f"{prefix}-a"], done
    finally:
        for name in names:
            os.unlink(name)


@pytest.mark.parametrize("words, told", [
    ([], ""), (["nonsense", ""], ""), (["run", "--fraction="], None), (["run", "--memory", "1GiB", ""], ":command 3\n"),
    (["run", "--", ""], ":command 2\n"), (["run", "--", "-x"], ":command 2\n"), (["report", ""], ":files\n"),
    (["report", "a", ""], ":files\n"),
    (["cdi", "generate", "--output="], ":files\n"), (["run", "--nonsense=x"], ""),
    (["queue", "--count", "--wait="], ""), (["limit", "no-such-tenant", ""], ""), (["--completion", "z"], "zsh\n"),
    (["x" * 100000], ""), (["run", "-"], None)])
def test_the_command_completes(words, told):
    done = run(COMMAND, "__complete", *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout if told is None else done.stdout == told, done


def with_command(machine):
    return {**machine.environment, "PATH": f"{BUILD}:{machine.environment['PATH']}"}


def test_the_machine_is_asked():
    """Each time: what GPUs there are, and what they can be divided into."""
    with Machine("2xh100-80gb-mig+mi300x+mi300x-cpx-nps4") as m:
        gpus = json.loads(m.fracgpu("status", "--json")[1])["gpus"]
        keys, numbers = {gpu["key"] for gpu in gpus}, [gpu["number"] for gpu in gpus]
        plain = {number for number in numbers if numbers.count(number) == 1}
        instances = {f"{gpu}:{i}" for gpu in (0, 1) for i in range(4)}
        assert plain == instances | {str(i) for i in range(2, 9)}, "the first two are of both vendors"
        shown = [gpu["key"] for gpu in gpus if gpu["mig_parent"]][5]

        def bash(*words, **more):
            return bash_offers(["fracgpu", *words], env={**with_command(m), **more})
        assert bash("run", "--gpus", "") == keys | plain | {"all"}
        assert bash("queue", "--gpus", "=", shown[:12]) == {shown}
        assert bash("run", "--gpus", "", CUDA_VISIBLE_DEVICES=shown) == {"all", "1:1", shown}, "others are hidden"
        assert bash("limit", "tenant", "1GiB", "--gpu", "") == keys | plain
        # In a list, and behind a colon, which makes words of its own.
        assert bash("run", "--gpus", f"{shown},al") == {f"{shown},all"}
        assert bash("run", "--gpus", "1", ":", "") == {"0", "1", "2", "3"}
        assert bash("run", "--gpus", "=", "1", ":") == {"0", "1", "2", "3"}
        assert bash("run", "--gpus", "0", ":", "1,1", ":", "3") == {"3"}
        assert bash("run", "--gpus", "1", ":", "2", "--memory", "1GiB", "--dr") == {"--dry-run"}
        assert bash("run", "--mig", "") >= {"auto", "never", "only", "existing", "1g.10gb", "3g.40gb", "1g.10gb+me"}
        assert bash("queue", "--mig", "7") == {"7g.80gb"}
        assert bash("run", "--partition", "") == {"spx", "cpx"}
        assert bash("partition", "") == {"0", "1"}
        assert bash("partition", "1", "--compute", "") == {"SPX", "DPX", "QPX", "CPX"}
        assert bash("partition", "1", "--memory", "=", "") == {"NPS1", "NPS2", "NPS4"}
        assert bash("run", "--memory", "") == set()
        # All that it offers is accepted.
        for option, others in (("--gpus", ["--memory", "1GiB"]), ("--mig", ["--memory", "1GiB"]),
                               ("--partition", ["--memory", "1GiB"])):
            for word in bash("run", option, ""):
                status, _, err = m.fracgpu("run", option, word, *others, "--dry-run")
                assert status in (0, 75) or "MIG mode" in err, (option, word, err)
        if shutil.which("fish"):
            def fish(line):
                done = run("fish", "-c", f"source {BUILD}/tools/manual/fracgpu.fish; complete -C {json.dumps(line)}",
                           env=with_command(m))
                assert (done.returncode, done.stderr) == (0, ""), done.stderr
                return {each.split("\t")[0] for each in done.stdout.splitlines()}
            assert fish("fracgpu run --gpus 1:") == {"1:0", "1:1", "1:2", "1:3"}
            assert fish(f"fracgpu run --gpus 0:1,{shown[:12]}") == {f"0:1,{shown}"}
            assert fish("fracgpu queue --mig 7") == {"7g.80gb"}
            assert fish("fracgpu partition 1 --memory N") == {"NPS1", "NPS2", "NPS4"}
    with Machine("a100-40gb") as m:
        assert bash("run", "--mig", "") == {"auto", "never", "only", "existing"} and bash("run", "--partition", "") == set()
    assert bash_offers(["fracgpu", "run", "--gpus", ""], env={"PATH": "/usr/bin:/bin"}) == set(), "not installed"


class Typist:
    """A person at a shell of this command line."""

    def __init__(self, *command, **variables):
        self.seen = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, {"TERM": "dumb", "PS1": "$ ", "HOME": "/nonexistent", **variables})

    def types(self, keys):
        os.write(self.terminal, keys.encode())

    def reads_until(self, pattern):
        while not re.search(pattern, self.seen):
            ready, _, _ = select.select([self.terminal], [], [], 60)
            assert ready, self.seen
            self.seen += os.read(self.terminal, 65536).decode()

    def leaves(self):
        self.types("exit\n")
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


@pytest.mark.parametrize("shell, flags, prepare", [
    pytest.param("bash", "--norc --noprofile -i", f"source {BUILD}/tools/manual/fracgpu", marks=needs("bash")),
    pytest.param("zsh", "-f -i", f"fpath=({BUILD}/tools/manual $fpath); autoload -Uz compinit; compinit -u -D", marks=needs("zsh"))])
def test_a_person_completes(machine, shell, flags, prepare):
    m = machine("2xh100-80gb-mig")
    shown = [gpu["key"] for gpu in json.loads(m.fracgpu("status", "--json")[1])["gpus"] if gpu["mig_parent"]][5]
    person = Typist(shell, *flags.split(), **with_command(m))
    person.types(f"{prepare}\n")
    for keys, told in (("fracgpu gc --j\tno-such-tenant-at-all", '"claims_dropped"'),
                       ("fracgpu run --memory 1GiB --mig existing /bin/ech\tcompleted-$((1+1))", r"completed-2\n"),
                       ("fracgpu run --memory 1GiB --mig existing cat /etc/os-relea\t", "PRETTY_NAME="),
                       ("fracgpu run --gpus 1:1\t--memory 1GiB --dry-run", f"GPU 1:1 \\({shown}\\)"),
                       (f"fracgpu run --gpus=0:1,{shown[:12]}\t--memory 1GiB --dry-run",
                        f"GPU 0:1 [^\n]*\n+GPU 1:1 \\({shown}\\)")):
        person.types(f"{keys}\necho end$((1+1))\n")
        person.reads_until("end2")
        assert re.search(told, person.seen.replace("\r", "")), (shell, person.seen)
        person.seen = ""
    person.leaves()


@needs("zsh")
def test_zsh():
    folder = f"{BUILD}/tools/manual"
    done = run("zsh", "-f", "-n", f"{folder}/_fracgpu")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    # compinit finds it by its first line.
    done = run("zsh", "-f", "-c", f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D; echo $_comps[fracgpu]")
    assert done.stdout == "_fracgpu\n", done


@needs("fish")
def test_fish():
    folder = f"{BUILD}/tools/manual"
    assert run("fish", "--no-execute", f"{folder}/fracgpu.fish").returncode == 0

    def offers(line):
        done = run("fish", "-c", f"source {folder}/fracgpu.fish; complete -C {json.dumps(line)}", env=INSTALLED)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return {each.split("\t")[0] for each in done.stdout.splitlines() if not each.split("\t")[0].endswith("=")}
    told = helps()
    assert offers("fracgpu ") == top_level(told)
    assert offers("fracgpu cdi ") == {"generate", "check-image"}
    for name, text in told.items():
        words = f"fracgpu {name} --" if name else "fracgpu --"
        assert offers(words) == {option for option in options(text) if option.startswith("--")}, name
    assert offers("fracgpu run --fraction 0.12") == {"0.125"}
    assert "true" in offers("fracgpu run --memory 1GiB -- tru")
    assert "true" in offers("fracgpu run --memory 1GiB tru")
    assert "--memory" not in offers("fracgpu run --memory 1GiB cat --mem")
    assert "--wait=30s" in offers("fracgpu run --wait=")
    assert "--output=/etc/passwd" in offers("fracgpu cdi generate --output=/etc/passw")


def test_wrong_usage():
    for wrong in (["--completion", "tcsh"], ["--completion"], ["--manual=x"]):
        done = run(COMMAND, *wrong)
        assert (done.returncode, done.stdout) == (2, "") and one_line(done.stderr), (wrong, done)
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([COMMAND, "--manual"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and one_line(done.stderr), done


def test_what_is_installed_works(machine):
    m = machine("a100-40gb")
    install(f"{m.folder}/usr")
    installed = {os.path.relpath(os.path.join(folder, name), m.folder)
                 for folder, _, names in os.walk(f"{m.folder}/usr") for name in names}
    library = [name for name in installed if name.endswith("/libfracgpu.so")]
    assert len(library) == 1 and library[0].startswith("usr/lib"), installed
    for name in ("usr/bin/fracgpu", "usr/share/man/man1/fracgpu.1",
                 "usr/share/bash-completion/completions/fracgpu", "usr/share/zsh/site-functions/_fracgpu",
                 "usr/share/fish/vendor_completions.d/fracgpu.fish", "usr/share/fracgpu/dashboard.json"):
        assert name in installed, f"{name} is not installed: {installed}"
    done = run(f"{m.folder}/usr/bin/fracgpu", "run", "--memory", "1GiB", "--", CLIENT, "init", "retain", "total",
               env=m.environment)
    assert done.returncode == 0 and f"bytes={GIB}" in done.stdout, done
