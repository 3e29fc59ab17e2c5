"""What scripts/kernel_structure reads from machine code and compares: with listings made up here, so on every machine.
scripts/test runs it on the compiled plugin."""

import importlib.machinery
import importlib.util
import io
import json
import pathlib
import sys
import unittest
from contextlib import redirect_stderr, redirect_stdout

ROOT = pathlib.Path(__file__).resolve().parents[2]
loader = importlib.machinery.SourceFileLoader("kernel_structure", str(ROOT / "scripts" / "kernel_structure"))
reader = importlib.util.module_from_spec(importlib.util.spec_from_loader("kernel_structure", loader))
sys.dont_write_bytecode = True
loader.exec_module(reader)


def listing(*lines):
    """nvdisasm's, of one function; a line with a colon is a label."""
    text, at = [".text._Z1kv:", "        .type           _Z1kv,@function"], 0
    for line in lines:
        if line.endswith(":"):
            text.append(line)
        else:
            text.append(f"        /*{at:04x}*/                   {line} ;")
            at += 16
    return "\n".join(text)


def structure(*lines):
    return reader.structure(*reader.bodies(listing(*lines))["_Z1kv"])


class Structure(unittest.TestCase):
    def test_what_is_in_no_loop_is_not_counted(self):
        found = structure("LDL R1, [R2]", "LDG.E.128 R4, desc[UR4][R2.64]", "HMMA.16816.F32.BF16 R4, R8, R2, R4",
                          "CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64)", "@P0 BRA `(.L_x_1)", "EXIT",
                          ".L_x_1:", "EXIT")
        self.assertEqual({k: v for k, v in found.items() if v}, {"instructions": 7})

    def test_loops_are_what_branches_go_back_over(self):
        found = structure(".L_x_1:", "LDL R1, [R2]", "STL.64 [R2], R4", "LDG.E R4, desc[UR4][R2.64]",
                          "LDG.E.128.CONSTANT R4, desc[UR4][R2.64]", "@!P0 LDG.E.128 R4, desc[UR4][R2.64]",
                          "@P1 CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64)", "I2F.U64.RP R8, R12",
                          "CALL.REL.NOINC `($__internal_1_$__cuda_sm3x_div_rn_noftz_f32_slowpath)", "LD.E R2, [R4.64]",
                          "@P0 BRA `(.L_x_1)", "LDL R1, [R2]", "EXIT")
        self.assertEqual((found["local"], found["div64"], found["generic"]), (2, 2, 1))
        self.assertEqual((found["load_bytes"], found["loads"]), (16, 2))

    def test_products_are_those_of_the_innermost_loop_that_has_most(self):
        product = "HMMA.16816.F32.BF16 R4, R8, R2, R4"
        found = structure(".L_x_1:", *["IADD3 R1, R2, R3, R4"] * 20, ".L_x_2:", product, "NOP", "LDS R1, [R2]", product,
                          "LDS R1, [R2]", "LDS R1, [R2]", "@P0 BRA `(.L_x_2)", ".L_x_3:", product, "@P0 BRA `(.L_x_3)",
                          ".L_x_4:", "LDS R1, [R2]", "@P0 BRA `(.L_x_4)", "BRA `(.L_x_1)")
        self.assertEqual((found["mma"], found["mma_per_other"], found["loops"]), (2, 0.5, 4))
        self.assertEqual(structure(".L_x_1:", "HFMA2.MMA R1, -RZ, RZ, 0, 0", "BRA `(.L_x_1)")["mma"], 0)
        wide = "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24"
        self.assertEqual(structure(".L_x_1:", wide, "BRA `(.L_x_1)")["mma"], 1)

    def test_products_of_a_warpgroup_that_wait_for_each_other_have_a_fence_each(self):
        product = "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24"
        fence, wait = "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR.LE gsb0, 0x0"
        together = structure(fence, ".L_x_1:", fence, product, product, wait, "BRA `(.L_x_1)")
        apart = structure(fence, ".L_x_1:", fence, product, wait, fence, product, wait, "BRA `(.L_x_1)")
        self.assertEqual((together["fences"], apart["fences"]), (1, 2))

    def test_a_warp_waits_where_what_it_has_loaded_is_touched(self):
        load = "LDG.E.128 R{}, desc[UR4][R2.64]"
        together = structure(".L_x_1:", load.format(4), load.format(8), "FADD R1, R7, R8", "FADD R1, R9, R11",
                             "@P0 BRA `(.L_x_1)")
        apart = structure(".L_x_1:", load.format(4), "FADD R1, R4, R4", load.format(8), "@P0 BRA `(.L_x_1)")
        self.assertEqual((together["loop_waits"], apart["loop_waits"]), (1, 2))
        self.assertEqual((together["loop_bytes"], together["loop_issued"]), (32 * 32, 5))

    def test_operations_are_those_of_the_instructions_shape(self):
        for name, flops in (("HMMA.16816.F32.BF16", 4096), ("HMMA.1688.F32", 2048),
                            ("HGMMA.64x128x16.F32.BF16", 65536), ("FFMA", 0)):
            self.assertEqual(reader.Instruction(0, name + " R4, R8, R2, R4").flops(), flops)

    def test_the_depth_of_copies_is_what_a_wait_leaves_and_one(self):
        copy = "LDGSTS.E.BYPASS.128 [R1], desc[UR4][R2.64]"
        found = structure(copy, "LDGDEPBAR", ".L_x_1:", "DEPBAR.LE SB0, 0x2", copy, "LDGDEPBAR", "@P0 BRA `(.L_x_1)")
        self.assertEqual((found["depth"], found["load_bytes"]), (3, 16))
        self.assertEqual(structure(".L_x_1:", copy, "@P0 BRA `(.L_x_1)")["depth"], 1)

    def test_occupancy_is_limited_by_registers_threads_and_shared_memory(self):
        for arch, registers, threads, shared, expected in (("sm_90", 32, 256, 0, 1.0), ("sm_90", 128, 256, 0, 0.25),
                                                           ("sm_90", 33, 1024, 0, 0.5), ("sm_80", 32, 32, 0, 0.5),
                                                           ("sm_80", 32, 128, 80 << 10, 0.125),
                                                           ("sm_90", 32, 128, 80 << 10, 0.125),
                                                           ("sm_90", 32, 128, 74 << 10, 0.188),
                                                           ("sm_86", 255, 256, 0, 0.167), ("sm_89", 32, 32, 0, 0.5)):
            self.assertEqual(reader.occupancy(arch, registers, threads, shared), expected, (arch, registers))

    def test_bounds_of_launches_are_in_the_object(self):
        elf = (
            ".nv.info\n\tAttribute:\tEIATTR_REGCOUNT\n.nv.info._Z1kv\n\tAttribute:\tEIATTR_MAX_THREADS\n"
            "\tFormat:\tEIFMT_SVAL\n\tValue:\t0x80 0x2 0x1\n\t<0x11>\n"
        )
        self.assertEqual(reader.launch_bounds(elf), {"_Z1kv": 256})

    def test_names_are_short(self):
        symbol = "_ZN7moestro7kernels4cuda16attention_kernelINS1_4BF16ELi32ELi4EEEv20MoestroCudaAttentionl"
        self.assertEqual(reader.short_names([symbol]), {symbol: "attention_kernel<BF16,32,4>"})


class Expectations(unittest.TestCase):
    FIGURES = dict(regs=32, stack=0, shared=0, threads=128, instructions=9, loops=1, local=0, generic=0, div64=0, mma=4,
                   fences=0, mma_per_other=0.4, depth=3, load_bytes=16, loads=2)

    def table(self, expected, *kernels, archs=("sm_80", "sm_90")):
        found = {arch: {f"k<{i}>": {**self.FIGURES, **k} for i, k in enumerate(kernels)} for arch in archs}
        return reader.measured(expected, found)

    def wrong(self, expected, *kernels):
        return reader.compared(expected, self.table(expected, *kernels), ["sm_80", "sm_90"])

    def test_the_worst_kernel_of_a_pattern_counts(self):
        expected = {"k<*>": {"mma_per_other": 0.4, "depth": 3, "occupancy": 1.0}}
        self.assertEqual(self.wrong(expected, {}), [])
        self.assertEqual(self.wrong(expected, {}, dict(mma_per_other=0.37)), [], "another compiler may differ a little")
        for worse in (dict(mma_per_other=0.3), dict(depth=2), dict(regs=64), dict(local=1), dict(div64=1),
                      dict(generic=1), dict(stack=8), dict(fences=1)):
            self.assertEqual(len(self.wrong(expected, {}, worse)), 2, worse)
        self.assertIn("k<*>, sm_80: local is 1, at most 0 is expected", self.wrong(expected, dict(local=1)))
        self.assertEqual(self.wrong({"other": {}}, {}), [f"other, sm_{n}: there is no such kernel" for n in (80, 90)])

    def test_a_limit_may_be_of_some_architectures(self):
        expected = {"k<*>": {"depth": {"sm_90": 4}, "local": {"sm_80": 2, "sm_90": 0}}}
        self.assertEqual([w.split(":")[0] for w in self.wrong(expected, dict(local=2))], ["k<*>, sm_90"] * 2)

    def test_a_kernel_of_one_architecture_is_missed_on_no_other(self):
        expected = {"a_kernel": {"only": ["sm_90"]}}
        self.assertEqual(reader.compared(expected, {}, ["sm_89"]), [])
        self.assertEqual(len(reader.compared(expected, {}, ["sm_89", "sm_90"])), 1)

    def test_updated_expectations_are_met(self):
        expected = {"k<*>": {"threads": 64, "shared": 100, "depth": 9}, "gone": {}}
        for kernels in (({},), ({}, dict(local=3, regs=99, mma=0, mma_per_other=0.0, depth=0))):
            with redirect_stderr(io.StringIO()) as said:
                new = reader.updated(expected, self.table(expected, *kernels))
            self.assertIn("no kernel gone", said.getvalue())
            self.assertEqual({k: new["k<*>"][k] for k in ("threads", "shared")}, {"threads": 64, "shared": 100})
            self.assertEqual(self.wrong(new, *kernels), [])
            self.assertNotEqual(self.wrong(new, dict(local=4)), [])

    def test_every_kernel_has_a_line_of_the_table(self):
        with redirect_stdout(io.StringIO()) as said:
            reader.printed(self.table({"k<*>": {}}, {}))
        self.assertEqual(len(said.getvalue().splitlines()), 3)
        self.assertIn("16 B x 2", said.getvalue())

    def test_the_file_names_known_limits_only(self):
        known = {"role", "threads", "shared", "only", *reader.AT_MOST, *reader.AT_LEAST}
        for pattern, kernel in json.loads(reader.EXPECTED.read_text()).items():
            self.assertLessEqual(set(kernel), known, pattern)


if __name__ == "__main__":
    unittest.main(verbosity=2)
