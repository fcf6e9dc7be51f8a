"""A launch chooses among the GPUs that the environment still shows, and never shows more."""
from machine import one_line


def chosen(m, arguments, extra):
    """What the command sees of CUDA's, ROCr's and HIP's lists, or the line of a refusal."""
    status, out, err = m.fracgpu("run", *arguments, "--", "sh", "-c",
                                 'echo "${CUDA_VISIBLE_DEVICES-unset} ${ROCR_VISIBLE_DEVICES-unset} ${HIP_VISIBLE_DEVICES-unset}"',
                                 extra=extra)
    if status == 0:
        return out.split("\n")[0]
    assert status == 125 and out == "" and one_line(err), (arguments, extra, status, out, err)
    return err


def test_nvidia(machine):
    m = machine("4xa100-40gb")
    uuids = m.uuids()
    half = ("--fraction", "0.5")

    def cuda(arguments, text, **more):
        return chosen(m, arguments, {"CUDA_VISIBLE_DEVICES": text, **more}).split(" ")[0]
    assert cuda(half, "2") == uuids[2]
    assert cuda(half, "3,1") in (uuids[1], uuids[3])
    assert cuda(("--count", "2"), "3,1") == f"{uuids[1]},{uuids[3]}"
    assert cuda(("--count", "2", "--gpus", "all"), "3,1") == f"{uuids[1]},{uuids[3]}"
    assert cuda(half, uuids[3]) == uuids[3]
    assert cuda(half, f" {uuids[3].lower()} ,-1") == uuids[3]
    # A prefix, if it is of one alone.
    short = next(uuids[2][:n] for n in range(5, 40) if sum(u.startswith(uuids[2][:n]) for u in uuids) == 1)
    assert cuda(half, short) == uuids[2]
    # Nothing counts from the first entry on that is of no device.
    for rest in ("-1", "9", "x", "", "0x1", "GPU-", "GPU-zzz", "1-3", "+1", "99999999999999999999"):
        assert cuda(half, f"2,{rest},0") == uuids[2], rest
        line = chosen(m, half, {"CUDA_VISIBLE_DEVICES": f"{rest},0"})
        assert "CUDA_VISIBLE_DEVICES" in line and "hides" in line, (rest, line)
    for empty in ("", "-1", " ", ","):
        assert "CUDA_VISIBLE_DEVICES" in chosen(m, half, {"CUDA_VISIBLE_DEVICES": empty})
    # As CUDA: one that stands there twice leaves nothing.
    assert "hides" in chosen(m, half, {"CUDA_VISIBLE_DEVICES": "0,0"})
    # What is named must be visible.
    for arguments in (("--fraction", "1=0.5"), ("--memory", "1=1GiB"), ("--memory", "1GiB", "--gpus", "1"),
                      ("--fraction", "0.5", "--gpus", "1-3"), ("--memory", "1GiB", "--gpus", "0-1"),
                      ("--count", "2")):
        line = chosen(m, arguments, {"CUDA_VISIBLE_DEVICES": "0"})
        assert "CUDA_VISIBLE_DEVICES '0'" in line, line
    assert cuda(("--fraction", "0=0.5"), "0") == uuids[0]
    assert cuda(("--memory", "1GiB", "--gpus", "0"), "0,1") == uuids[0]
    # One cap for all chooses nothing.
    for text in ("1", "", "-1", "nonsense"):
        assert cuda(("--memory", "1GiB"), text) == text
    status, out, _ = m.fracgpu("run", "--memory", "1GiB", "--", "env", extra={"CUDA_VISIBLE_DEVICES": ""})
    assert status == 0 and "\nFRACGPU_MEMORY_LIMIT=1GiB\n" in out, out
    # A dry run and a queue choose as a run does.
    status, out, _ = m.fracgpu("run", *half, "--dry-run", extra={"CUDA_VISIBLE_DEVICES": "3"})
    assert status == 0 and uuids[3] in out, out
    status, out, _ = m.fracgpu("queue", "--queue", "q=0.5", input="echo $CUDA_VISIBLE_DEVICES\n", extra={"CUDA_VISIBLE_DEVICES": "3"})
    assert status == 0 and out == uuids[3] + "\n", out


def test_nvidia_of_several_models(machine):
    m = machine("a100-40gb+h100-80gb")
    uuids = m.uuids()
    line = chosen(m, ("--fraction", "0.5"), {"CUDA_VISIBLE_DEVICES": "1"})
    assert "CUDA_DEVICE_ORDER" in line, line
    assert uuids[1] in chosen(m, ("--fraction", "0.5"), {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert uuids[1] in chosen(m, ("--fraction", "0.5"), {"CUDA_VISIBLE_DEVICES": uuids[1]})


def test_mig(machine):
    m = machine("h100-80gb-mig+a100-40gb")
    line = chosen(m, ("--fraction", "0.5"), {"CUDA_VISIBLE_DEVICES": "MIG-12345678-1234-1234-1234-123456789012"})
    assert "MIG" in line and "CUDA_VISIBLE_DEVICES" in line, line
    assert chosen(m, ("--memory", "1GiB"), {"CUDA_VISIBLE_DEVICES": "MIG-1"}).startswith("MIG-1 ")


def test_amd(machine):
    m = machine("4xmi210")
    half = ("--fraction", "0.5")
    names = [chosen(m, ("--fraction", f"{i}=0.5"), {}).split(" ")[1] for i in range(4)]
    assert len(set(names)) == 4

    def rocr(arguments, **extra):
        return chosen(m, arguments, extra).split(" ")[1:]
    assert rocr(half, ROCR_VISIBLE_DEVICES="2") == [names[2], "0"]
    assert rocr(half, ROCR_VISIBLE_DEVICES=f"{names[3]},1") == [names[1], "0"]
    # HIP counts what ROCr shows.
    assert rocr(half, ROCR_VISIBLE_DEVICES="3,2", HIP_VISIBLE_DEVICES="0") == [names[3], "0"]
    assert rocr(half, ROCR_VISIBLE_DEVICES="3,2", HIP_VISIBLE_DEVICES="1,5,0") == [names[2], "0"]
    assert rocr(half, HIP_VISIBLE_DEVICES="2,-1,0") == [names[2], "0"]
    assert rocr(half, HIP_VISIBLE_DEVICES="2,2,1") == [names[1], "0"], "HIP passes over what stands there twice"
    # Without a list of its own HIP takes CUDA's; an empty one is none.
    assert rocr(half, CUDA_VISIBLE_DEVICES="1") == [names[1], "0"]
    assert rocr(half, HIP_VISIBLE_DEVICES="", CUDA_VISIBLE_DEVICES="3") == [names[3], "0"]
    assert rocr(half, HIP_VISIBLE_DEVICES="") == [names[0], "0"]
    for extra in ({"ROCR_VISIBLE_DEVICES": ""}, {"ROCR_VISIBLE_DEVICES": "-1"}, {"ROCR_VISIBLE_DEVICES": "7,0"},
                  {"HIP_VISIBLE_DEVICES": "-1"}, {"HIP_VISIBLE_DEVICES": "4"}, {"HIP_VISIBLE_DEVICES": "00"},
                  {"CUDA_VISIBLE_DEVICES": "-1"}, {"ROCR_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "2"}):
        line = chosen(m, half, extra)
        assert "hides" in line and "_VISIBLE_DEVICES" in line, (extra, line)
    assert "ROCR_VISIBLE_DEVICES '0'" in chosen(m, ("--fraction", "1=0.5"), {"ROCR_VISIBLE_DEVICES": "0"})
