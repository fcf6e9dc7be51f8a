"""The audits report made-up functions that by their names have to do with memory, captures or entry points."""
import contextlib
import io
import os
import tempfile
import unittest

import audit
import library_audit

FOLDER = os.path.dirname(os.path.abspath(__file__))
HOOKS = os.path.join(FOLDER, "../../hooks")

CUDA = """
cuMemThing cuThingMem cuThingMemory cuThingAlloc cuThingFree cuThingReserve cuThingCommit cuThingEvict cuThingPin
cuArrayThing cuPoolThing cuHeapThing cuBufferThing cuThingResource cuThingSparse cuThingManaged cuThingPrefetch
cuThingDiscard cuThingAdvise cuThingMap cuThingUnmap cuThingBindAddr cuThingUnbind cuThingAttach cuThingDetach
cuThingPeerAccess cuThingAccessPeer cuDeviceGetAttributeThing cuDeviceGetPropertiesThing cuThingInit
cuIpcThing cuFabricThing cuThingImport cuThingExport cuExternalThing cuThingToShareable cuThingSharing cuThingRegister
cuThingUnregister cuMulticastThing cuLogicalEndpointThing cuCheckpointThing cuThingCreate cuThingDestroy cuThingRetain
cuThingRelease cuThingReset cuThingTrim cuThingSetLimit cuThingLoad cuThingUnload cuLaunchThing cuGraphInstantiateThing
cuGraphUploadThing cuGraphAddThing cuGraphCloneThing cuGraphThingNodeSetParams cuModuleThing cuLibraryThing cuLinkThing
cuGreenCtxThing cuThingGetFunction cuGetProcAddressThing cuGetEntryPoint cuThingGetPointer cuTexThing cuSurfThing
cuGraphicsThing cuThingGetInfo cuThingUsage cuThingBudget cuStreamBeginThingCapture cuStreamBeginRecaptureThing
cuStreamEndCaptureThing cuThingCapturing cuGLThing cuEGLThing cuMemAllocThing_v2 cuStreamBeginThingCapture_ptsz
""".split()
HIP = """
hipMemThing hipThingMem hipMallocThing hipThingAlloc hipThingFree hipArrayThing hipPoolThing hipThingManaged
hipThingPrefetch hipThingAdvise hipThingDiscard hipThingMap hipThingUnmap hipThingAttach hipThingPeerAccess hipIpcThing
hipThingImport hipThingExport hipExternalThing hipThingToShareable hipThingCreate hipThingDestroy hipThingRetain
hipThingRelease hipThingReset hipThingTrim hipThingSetLimit hipThingLoad hipThingUnload hipThingLaunch
hipThingInstantiate hipThingUpload hipModuleThing hipLibraryThing hipGetProcAddressThing hipGetThingEntryPoint
hipThingLink hipThingTex hipThingSurf hipThingGraphics hipThingPointer hipThingProperties hipThingRegister
hipThingGraph hipThingInit hipInitThing hipMallocThing_spt
""".split()
HARMLESS = ("cuMemcpyThingAsync", "cuMemsetThing", "cuStreamGetThing", "cuGraphThingGetId", "cuCtxSynchronizeThing")
HARMLESS_HIP = ("hipMemcpyThingAsync", "hipMemsetThing", "hipStreamGetThing", "hipThingSynchronize")


class Audit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run_audit(self, names, api="cuda"):
        """The exit status, and what is printed."""
        source = self.write("names.txt", "# A list.\n\n" + "".join(f"{name}  # new\n" for name in names))
        program = audit if api == "cuda" else library_audit
        left_alone = os.path.join(FOLDER, "left_alone.txt" if api == "cuda" else f"{api}_left_alone.txt")
        with contextlib.redirect_stdout(io.StringIO()) as output:
            status = program.audit(os.path.join(HOOKS, api, "functions.inc"), left_alone, source)
        return status, output.getvalue()

    def assert_reported(self, names, harmless, api):
        status, output = self.run_audit([*names, *harmless], api)
        self.assertEqual(status, 1)
        reported = {line.split()[0] for line in output.splitlines()[:-1]}
        self.assertEqual(reported, set(names))
        self.assertIn(f"{len(names) + len(harmless)} functions, {len(names)} of them looked at", output)

    def test_made_up_functions_of_cuda_are_reported(self):
        self.assert_reported(CUDA, HARMLESS, "cuda")

    def test_made_up_functions_of_hip_are_reported(self):
        self.assert_reported(HIP, HARMLESS_HIP, "hip")

    def test_a_short_list_passes_if_each_name_is_decided_about(self):
        # Hooked, left alone under its base name, and none of the audit's business.
        self.assertEqual(self.run_audit(["cuMemCreate", "cuMemAdvise_v9_ptsz", "cuCtxGetCurrent"])[0], 0)
        self.assertEqual(self.run_audit(["hipMalloc", "hipMemAdvise", "hipGetLastError"], "hip")[0], 0)

    def test_a_function_that_is_only_called_needs_a_reason(self):
        table = self.write("functions.inc", "FRACGPU_CALLED(pool, 1, cuMemThing, (int* value))\n")
        source = self.write("names.txt", "cuMemThing\n")
        for reason, status in (("", 1), ("no memory\n  cuMemThing\n", 0)):
            with contextlib.redirect_stdout(io.StringIO()) as output:
                self.assertEqual(audit.audit(table, self.write("left_alone.txt", reason), source), status)
            self.assertEqual("cuMemThing is only called" in output.getvalue(), status == 1)

    def test_what_is_not_read_correctly_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "names no function"):
            self.run_audit([])
        self.write("cuda.h", "#define CUDA_VERSION 12040\nCUresult CUDAAPI cuInit(unsigned int Flags);\n")
        with self.assertRaisesRegex(SystemExit, "only 1 functions found"):
            audit.read_names(self.folder)
