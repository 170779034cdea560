# Run by gdb: stops the program at each address of $DUMP_STOPS (hexadecimal,
# one a line, as in the file) a few times, and writes to $DUMP_OUT one JSON
# object per stop: registers, variables as gdb sees them, and the memory of the
# program and its stack.
import array
import base64
import itertools
import json
import os
import zlib

import gdb

GPR = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split()
ROUNDS = int(os.environ.get("DUMP_ROUNDS", "2"))

EXPRESSIONS = [x for x in os.environ.get("DUMP_EXPRESSIONS", "").split(";") if x]
SHOWN = os.environ.get("DUMP_SHOWN") == "1"


def plain(v, depth=0):
    if v.is_optimized_out:
        return {"gone": True}
    t = v.type.strip_typedefs()
    code = t.code
    if code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        return plain(v.referenced_value(), depth)
    if code in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_ENUM):
        return {"int": str(int(v) & (2**64 - 1))}
    if code == gdb.TYPE_CODE_FLT:
        return {"float": repr(float(v))}
    if code in (gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_FUNC):
        out = {"int": str(int(v) & (2**64 - 1))}
        try:
            if t.target().strip_typedefs().sizeof == 1 and t.target().strip_typedefs().code in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_CHAR):
                out["text"] = v.string(encoding="latin-1")
        except Exception:
            pass
        return out
    if code == gdb.TYPE_CODE_ARRAY and depth < 5:
        lo, hi = t.range()
        out = {"list": [plain(v[i], depth + 1) for i in range(lo, min(hi + 1, lo + 4096))]}
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
            out[f.name] = plain(v[f], depth + 1)
        return {"struct": out}
    return {"other": True}


def number(name):
    return int("".join(c for c in name if c.isdigit()))


def target(pointer, depth):
    return shown(pointer.dereference(), depth + 1) if int(pointer) else None


def printed(p, v, depth):
    """What a pretty printer makes of a value."""
    hint = p.display_hint() if hasattr(p, "display_hint") else None
    text = p.to_string() if hasattr(p, "to_string") else None
    if hint == "string":
        if hasattr(text, "value"):
            text = text.value().string(encoding="latin-1", length=text.length)
        elif isinstance(text, gdb.Value):
            text = text.string(encoding="latin-1")
        return {"text": text}
    kids = list(itertools.islice(p.children(), 1000)) if hasattr(p, "children") else []
    head = str(text)
    if hint == "map":
        return {"pairs": [[shown(kids[i][1], depth + 1), shown(kids[i + 1][1], depth + 1)] for i in range(0, len(kids) - 1, 2)]}
    if head.startswith("std::bitset"):
        bits = [False] * int(v.type.strip_typedefs().template_argument(0))
        for name, _ in kids:
            bits[number(name)] = True
        return {"list": [{"bool": b} for b in bits]}
    for kind in ("std::unique_ptr", "std::shared_ptr", "std::weak_ptr"):
        if head.startswith(kind):
            return target(kids[0][1], depth) if kids and "expired" not in head and "empty" not in head else None
    if head.startswith("std::optional"):  # whose printer gives what is in the value
        payload = v["_M_payload"]
        return shown(payload["_M_payload"]["_M_value"], depth + 1) if payload["_M_engaged"] else None
    if head.startswith("std::variant"):
        return {"variant": [int(head.split("index ")[1].split("]")[0]), shown(kids[0][1], depth + 1)]}
    if "duration" in head and hasattr(v, "type") and "duration" in str(v.type.strip_typedefs()):
        return shown(v["__r"], depth + 1)
    if hint == "array" or kids and all(name.startswith("[") for name, _ in kids) or head.startswith("std::") and not kids:
        return {"list": [shown(kid, depth + 1) if isinstance(kid, gdb.Value) else {"bool": kid} if isinstance(kid, bool) else {"int": str(kid)} for _, kid in kids]}
    return {"skip": head}


def shown(v, depth=0):
    """A value as a person wants to see it, by pretty printers where there are some."""
    if v.is_optimized_out or depth > 12:
        return {"skip": "optimized out"}
    t = v.type.strip_typedefs()
    code = t.code
    if code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        return shown(v.referenced_value(), depth)
    p = gdb.default_visualizer(v)
    if p is not None:
        return printed(p, v, depth)
    if code == gdb.TYPE_CODE_BOOL:
        return {"bool": bool(int(v))}
    if code == gdb.TYPE_CODE_ENUM:
        name = str(v)
        return {"text": name.split("::")[-1]} if name.replace("_", "").replace("::", "").isalnum() and not name.isdigit() else {"int": str(int(v))}
    if code == gdb.TYPE_CODE_INT and t.sizeof == 1 and t.name == "char" or code == gdb.TYPE_CODE_CHAR:
        return {"char": int(v) & (256 ** t.sizeof - 1)}
    if code == gdb.TYPE_CODE_INT:
        return {"int": str(int(v))}
    if code == gdb.TYPE_CODE_FLT:
        return {"float": repr(float(v))}
    if code == gdb.TYPE_CODE_PTR:
        to = t.target().strip_typedefs()
        if to.sizeof == 1 and to.code == gdb.TYPE_CODE_INT and str(to.unqualified()) == "char":
            return {"text": v.string(encoding="latin-1")} if int(v) else None
        return {"pointer": str(int(v) & (2**64 - 1))}
    if code == gdb.TYPE_CODE_ARRAY:
        lo, hi = t.range()
        to = t.target().strip_typedefs()
        if to.sizeof == 1 and str(to.unqualified()) == "char":
            return {"text": v.string(encoding="latin-1", length=hi - lo + 1).split("\0")[0]}
        return {"list": [shown(v[i], depth + 1) for i in range(lo, min(hi + 1, lo + 64))]}
    if code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        if str(t.unqualified()).startswith("std::array<"):
            return shown(v["_M_elems"], depth)
        if str(t.unqualified()).startswith("std::pair<"):
            return {"fields": {n: shown(v[n], depth + 1) for n in ("first", "second")}}
        out = {}
        for f in t.fields():
            if f.name is None or not hasattr(f, "bitpos") or f.artificial:
                continue
            out["<%s>" % f.type.strip_typedefs().unqualified() if f.is_base_class else f.name] = shown(v[f], depth + 1)
        return {"fields": out}
    return {"skip": str(t)}


def variables(frame):
    out = {}
    block = frame.block()
    while block is not None:
        for s in block:
            if not (s.is_argument or s.is_variable) or s.name in out:
                continue
            try:
                out[s.name] = plain(s.value(frame))
                if SHOWN:
                    out[s.name]["shown"] = shown(s.value(frame))
            except Exception as e:
                out[s.name] = {"error": str(e)}
            out[s.name]["arg"] = s.is_argument
        if block.function is not None:
            break
        block = block.superblock
    return out


def resident(pid, lo, hi):
    """The runs of pages of a large mapping that the program has touched: of Go's
    heap, which starts anywhere and is mostly empty."""
    pages = array.array("Q")
    with open("/proc/%d/pagemap" % pid, "rb") as f:
        f.seek(lo // 4096 * 8)
        pages.frombytes(f.read((hi - lo) // 4096 * 8))
    start = None
    for i, p in enumerate(pages):
        there = p >> 62 != 0  # present or swapped
        if there and start is None:
            start = i
        elif not there and start is not None:
            yield lo + start * 4096, (i - start) * 4096
            start = None
    if start is not None:
        yield lo + start * 4096, (len(pages) - start) * 4096


def memory(inferior):
    out = []
    for line in open("/proc/%d/maps" % inferior.pid):
        words = line.split(maxsplit=5)
        path = words[5].strip() if len(words) > 5 else ""
        lo, hi = (int(x, 16) for x in words[0].split("-"))
        if "r" not in words[1] or "x" in words[1] or path.startswith("[v"):
            continue
        if path == "[stack]":
            lo = max(lo, int(gdb.newest_frame().read_register("rsp")) - 4096 & ~0xFFF)
        elif path not in ("[heap]", "") and not path.startswith("[anon") and os.path.realpath(path) != os.path.realpath(gdb.current_progspace().filename):
            continue
        for at, n in resident(inferior.pid, lo, hi) if hi - lo > 1 << 22 else [(lo, hi - lo)]:
            out.append({"at": str(at), "bytes": base64.b64encode(zlib.compress(bytes(inferior.read_memory(at, n)), 1)).decode()})
    return out


def main():
    gdb.execute("set pagination off")
    gdb.execute("set confirm off")
    gdb.execute("handle SIGURG nostop noprint pass")
    gdb.execute("set language auto")
    gdb.execute("starti >/dev/null")
    inferior = gdb.selected_inferior()
    exe = os.path.realpath(gdb.current_progspace().filename)
    base = None
    for line in open("/proc/%d/maps" % inferior.pid):
        words = line.split()
        if len(words) > 5 and os.path.realpath(words[5]) == exe:
            base = int(words[0].split("-")[0], 16)
            break
    bias = base if os.environ["DUMP_PIE"] == "1" else 0
    stops = {}
    for line in open(os.environ["DUMP_STOPS"]):
        at = int(line, 16) + bias
        stops[at] = gdb.Breakpoint("*%#x" % at)
    seen = {}
    with open(os.environ["DUMP_OUT"], "w") as out:
        while True:
            try:
                gdb.execute("continue")
            except gdb.error:
                break
            if not inferior.is_valid() or inferior.pid == 0:
                break
            frame = gdb.newest_frame()
            pc = int(frame.read_register("rip"))
            seen[pc] = seen.get(pc, 0) + 1
            if pc in stops and seen[pc] >= ROUNDS:
                stops[pc].enabled = False
            fn = frame.function()
            values = variables(frame)
            for text in EXPRESSIONS:
                try:
                    values[text] = plain(gdb.parse_and_eval(text))
                    values[text]["arg"] = False
                except gdb.error:
                    pass  # nothing of that name here
            reg = lambda r: str(int(frame.read_register(r)) & (2**64 - 1))
            xmm = []
            for i in range(16):
                v = frame.read_register("xmm%d" % i)["v2_int64"]
                xmm.append([str(int(v[j]) & (2**64 - 1)) for j in range(2)])
            record = {
                "pc": str(pc), "bias": str(bias), "func": fn.name if fn else "",
                "inline": frame.type() == gdb.INLINE_FRAME,
                "gpr": [reg(r) for r in GPR], "fs": reg("fs_base"), "xmm": xmm,
                "vars": values, "memory": memory(inferior),
            }
            out.write(json.dumps(record) + "\n")


main()
gdb.execute("kill") if gdb.selected_inferior().pid else None
gdb.execute("quit")
