# Run by gdb: runs a program, stops it at each address of $DUMP_STOPS (hexadecimal, one a
# line, as in the file $DUMP_MODULE), and writes a JSON object for each stop to the pipe
# $DUMP_OUT: registers, and the variables of each frame that is inlined there, the innermost
# first. The program stands still until a line comes from the pipe $DUMP_ACK.
import json
import os
import random
import re

import gdb

GPR = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split()
ROUNDS = int(os.environ["DUMP_ROUNDS"])
MODULE = os.path.realpath(os.environ["DUMP_MODULE"])
LIST = 20  # elements of an array that are compared
WORK = 400  # values that are compared of one variable

rng = random.Random(1)
left = 0


def plain(v, depth=0):
    global left
    left -= 1
    if left < 0:
        return {"other": True}
    if v.is_optimized_out:
        return {"gone": True}
    t = v.type.strip_typedefs()
    code = t.code
    if code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        return plain(v.referenced_value(), depth)
    if code in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_ENUM):
        return {"int": str(int(v) & (2**64 - 1)), "wide": t.sizeof > 8}
    if code == gdb.TYPE_CODE_FLT:
        return {"float": repr(float(v))}
    if code == gdb.TYPE_CODE_PTR:
        out = {"int": str(int(v) & (2**64 - 1))}
        try:
            to = t.target().strip_typedefs()
            if to.sizeof == 1 and to.code in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_CHAR):
                out["text"] = v.string(encoding="latin-1")
        except Exception:
            pass
        return out
    if code == gdb.TYPE_CODE_ARRAY and depth < 5:
        lo, hi = t.range()
        if hi < lo:
            return {"other": True}  # of a length that no type tells
        out = {"list": [plain(v[i], depth + 1) for i in range(lo, min(hi + 1, lo + LIST))]}
        try:
            if t.target().strip_typedefs().sizeof == 1:
                out["text"] = v.string(encoding="latin-1")
        except Exception:
            pass
        return out
    if code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION) and depth < 5:
        out = {}
        for f in t.fields():
            if f.is_base_class or f.name is None or not hasattr(f, "bitpos") or f.artificial:
                continue
            out[f.name] = part(v, f, depth + 1)
        return {"struct": out}
    return {"other": True}


def part(v, f, depth):
    try:
        return plain(v[f], depth)
    except gdb.MemoryError:
        raise
    except gdb.error as e:  # what isn't there
        return {"gone": True} if "optimized out" in str(e) else {"other": True}


def entry(v, arg):
    global left
    left = WORK
    try:
        out = plain(v)
    except Exception as e:
        out = {"error": str(e)}
    out["arg"] = arg
    out["type"] = str(v.type)
    return out


def members(name, v):
    """A few members of what a pointer leads to."""
    try:
        t = v.type.strip_typedefs()
        if t.code != gdb.TYPE_CODE_PTR:
            return
        to = t.target().strip_typedefs()
        if to.code not in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION) or not v.is_optimized_out and int(v) == 0:
            return
        fields = [f for f in to.fields() if f.name and not f.is_base_class and hasattr(f, "bitpos") and not f.artificial]
        for f in rng.sample(fields, min(3, len(fields))):
            try:
                yield name + "->" + f.name, entry(v.dereference()[f], False)
            except Exception:
                pass
    except Exception:
        pass


def variables(frame):
    out = {}
    block = frame.block()
    while block is not None:
        for s in block:
            if not (s.is_argument or s.is_variable) or s.name in out:
                continue
            try:
                v = s.value(frame)
                out[s.name] = entry(v, s.is_argument)
                for name, m in members(s.name, v):
                    out[name] = m
            except Exception as e:
                out[s.name] = {"error": str(e), "arg": s.is_argument}
        if block.function is not None:
            break
        block = block.superblock
    return out


def of_unit(frame, have):
    """A few variables outside of functions."""
    out = {}
    block = frame.block()
    for b in (block.global_block, block.static_block):
        list_ = [s for s in b if s.is_variable and s.name not in have]
        for s in rng.sample(list_, min(3, len(list_))):
            try:
                out[s.name] = entry(s.value(), False)
            except Exception as e:
                out[s.name] = {"error": str(e), "arg": False}
    return out


def base_of(pid):
    for line in open("/proc/%d/maps" % pid):
        words = line.split(maxsplit=5)
        if len(words) > 5 and os.path.realpath(words[5].strip()) == MODULE:
            return int(words[0].split("-")[0], 16)
    return None


def whole_function(block):
    """Where the function of a block is: an inlined call has a place of its own, also one of the same function."""
    while block is not None and block.function is None:
        block = block.superblock
    return block and (block.function.name, block.start, block.end)


def enter_inlined(pc):
    """Steps into calls that are inlined here, which moves no register."""
    for _ in range(8):
        block = whole_function(gdb.block_for_pc(pc))
        if block is None or block == whole_function(gdb.newest_frame().block()):
            return
        gdb.execute("step", to_string=True)
        if int(gdb.newest_frame().read_register("rip")) != pc:
            return


def frames(at):
    enter_inlined(at)
    frame = gdb.newest_frame()
    at = int(frame.read_register("rip"))
    out = []
    while frame is not None:
        fn = frame.function()
        out.append({"func": fn.name if fn else "", "inline": frame.type() == gdb.INLINE_FRAME, "vars": variables(frame)})
        if not out[-1]["inline"]:
            break
        frame = frame.older()
    out[0]["vars"].update(of_unit(gdb.newest_frame(), out[0]["vars"]))
    return out


def registers():
    frame = gdb.newest_frame()
    reg = lambda r: str(int(frame.read_register(r)) & (2**64 - 1))
    xmm = []
    for i in range(16):
        v = frame.read_register("xmm%d" % i)["v2_int64"]
        xmm.append([str(int(v[j]) & (2**64 - 1)) for j in range(2)])
    return {"gpr": [reg(r) for r in GPR], "fs": reg("fs_base"), "xmm": xmm}


class Finish(gdb.FinishBreakpoint):
    def __init__(self, frame, func, pc):
        super().__init__(frame, internal=True)
        self.silent = True
        self.func = func
        self.from_pc = pc
        self.hit = False

    def stop(self):
        self.hit = True
        return True

    def out_of_scope(self):
        pass


def main():
    for command in ("set pagination off", "set confirm off", "handle SIGURG nostop noprint pass", "handle SIGPIPE nostop noprint pass",
                    "handle SIGCHLD nostop noprint pass", "set language auto", "set breakpoint always-inserted on",
                    "set print thread-events off", "set max-value-size unlimited", "set startup-with-shell on", "set breakpoint pending on"):
        gdb.execute(command)
    gdb.execute("set print entry-values no")
    gdb.execute("starti %s >/dev/null" % os.environ["DUMP_ARGS"])
    inferior = gdb.selected_inferior()
    if base_of(inferior.pid) is None:  # a library
        start = re.search(r"AT_ENTRY\s.*?(0x[0-9a-f]+)", gdb.execute("info auxv", to_string=True))
        gdb.execute("break *" + start.group(1))  # where the loader is done; main may have no name
        gdb.execute("continue")
        gdb.execute("delete")
    bias = base_of(inferior.pid) if os.environ["DUMP_PIE"] == "1" else 0
    stops = {}
    for line in open(os.environ["DUMP_STOPS"]):
        at = int(line, 16) + bias
        b = gdb.Breakpoint("*%#x" % at, internal=True)
        b.silent = True
        stops[at] = b
    seen, finishing = {}, []
    out, ack = open(os.environ["DUMP_OUT"], "w"), open(os.environ["DUMP_ACK"])

    def say(record):
        out.write(json.dumps(record) + "\n")
        out.flush()
        return ack.readline().strip()

    while True:
        try:
            gdb.execute("continue", to_string=True)
        except gdb.error:
            break
        if not inferior.is_valid() or inferior.pid == 0:
            break
        frame = gdb.newest_frame()
        pc = int(frame.read_register("rip"))
        done = [f for f in finishing if f.hit]
        finishing = [f for f in finishing if not f.hit and f.is_valid()]
        for f in done:
            if f.return_value is not None:
                record = {"pc": str(f.from_pc), "bias": str(bias), "pid": inferior.pid, "return": True,
                          "frames": [{"func": f.func, "inline": False, "vars": {"$retval": entry(f.return_value, False)}}]}
                record.update(registers())
                if say(record) == "stop":
                    return
        if pc not in stops:
            if not done:
                sig = gdb.execute("info program", to_string=True)
                if "signal" in sig and "SIGTRAP" not in sig and seen.setdefault("signals", 0) < 50:
                    seen["signals"] += 1
                    continue
                if seen.setdefault("strange", 0) > 50:
                    break
                seen["strange"] += 1
            continue
        seen[pc] = seen.get(pc, 0) + 1
        if seen[pc] >= ROUNDS:
            stops[pc].delete()
            del stops[pc]
        if int(gdb.newest_frame().read_register("rip")) != pc:
            continue
        record = {"pc": str(pc), "bias": str(bias), "pid": inferior.pid, "frames": frames(pc)}
        if int(gdb.newest_frame().read_register("rip")) != pc:
            continue
        record.update(registers())
        answer = say(record)
        if answer == "stop":
            return
        if answer == "finish":
            try:
                f = gdb.newest_frame()
                while f.type() == gdb.INLINE_FRAME:
                    f = f.older()
                finishing.append(Finish(f, f.function().name, pc))
            except Exception:
                pass


try:
    main()
except Exception:
    import traceback
    traceback.print_exc()
gdb.execute("kill") if gdb.selected_inferior().pid else None
gdb.execute("quit")
