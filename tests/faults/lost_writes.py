"""Power cuts: what was written and not synced may be lost.

A run records its operations (record_writes.c). For a cut after each of them, the folder is rebuilt as a disk may hold it: a file
has what it had at its last sync, or all or some of what was written since; a folder has the names of its last sync, or also some of
the changes since. In every such state each folder with the name of a checkpoint must be intact, and one must be there that is as new as the
last whose rename was synced.
"""
import pathlib, random, shutil, subprocess

from bench import Tally, preloaded


class File:
    def __init__(self):
        self.synced, self.now = b"", bytearray()

    def write(self, offset, data):
        if len(self.now) < offset:
            self.now.extend(bytes(offset - len(self.now)))
        self.now[offset:offset + len(data)] = data

    def sync(self):
        self.synced = bytes(self.now)

    def after_cut(self, choose):
        kept = choose(3)
        if kept == 0 or self.now == self.synced:
            return self.synced
        least = len(self.synced) if self.now.startswith(self.synced) else 0
        return bytes(self.now if kept == 1 else self.now[:least + choose(len(self.now) - least + 1)])


class Folder:
    def __init__(self):
        self.synced, self.now = {}, {}

    def sync(self):
        self.synced = dict(self.now)

    def after_cut(self, choose):
        """The names of the last sync, and any of the changes since. A rename changes two names at once: never neither."""
        names = dict(self.synced)
        for name in sorted({*self.now, *self.synced}):
            if self.now.get(name) is not self.synced.get(name) and choose(2):
                names.pop(name, None)
                if name in self.now:
                    names[name] = self.now[name]
        for name, entry in self.synced.items(): # moved away, and the new name is lost: the old one is still there
            if name not in names and not any(entry is kept for kept in names.values()) and any(entry is moved for moved in self.now.values()):
                names[name] = entry
        for name in [n for n, entry in names.items() if n not in self.now and any(entry is names[m] for m in names if m != n)]:
            del names[name]
        return names


class Disk:
    def __init__(self, root):
        self.root, self.top = root, Folder()

    def parent(self, path):
        folder = self.top
        *way, name = pathlib.PurePath(path).relative_to(self.root).parts
        for part in way:
            folder = folder.now[part]
        return folder, name

    def entry(self, path):
        if pathlib.PurePath(path) == self.root:
            return self.top
        folder, name = self.parent(path)
        return folder.now[name]

    def apply(self, operation, path, offset, data):
        if operation == "sync":
            return self.entry(path).sync()
        if operation == "write":
            return self.entry(path).write(offset, data)
        if pathlib.PurePath(path) == self.root: # made before the run writes anything that counts
            return None
        folder, name = self.parent(path)
        if operation in ("create", "touch") and name not in folder.now:
            folder.now[name] = File()
        elif operation == "create":
            folder.now[name].now.clear()
        elif operation == "mkdir":
            folder.now[name] = Folder()
        elif operation == "remove":
            del folder.now[name]
        elif operation == "rename":
            moved = folder.now.pop(name)
            to, new = self.parent(data.decode())
            to.now[new] = moved

    def write_to(self, where, choose):
        def put(folder, at):
            at.mkdir()
            for name, entry in folder.after_cut(choose).items():
                if isinstance(entry, File):
                    (at / name).write_bytes(entry.after_cut(choose))
                else:
                    put(entry, at / name)
        shutil.rmtree(where, ignore_errors=True)
        put(self.top, where)

    def synced_checkpoints(self):
        """Steps of checkpoints whose name is on the disk, and that nobody has begun to delete."""
        return [int(name[5:]) for name, entry in self.top.synced.items() if is_checkpoint(name) and self.top.now.get(name) is entry]


def is_checkpoint(name):
    return name.startswith("step-") and name[5:].isdigit()


def read_records(prefix):
    records = []
    for file in prefix.parent.glob(prefix.name + ".*"):
        data, at = file.read_bytes(), 0
        while at < len(data):
            end = data.index(b"\n", at)
            time, name, size, offset, path = data[at:end].decode().split(" ", 4)
            at = end + 1 + int(size)
            records.append((int(time), name, path, int(offset), data[end + 1:at]))
    return sorted(records)


def record_run(bench):
    bench.clear("recorded")
    ended = bench.run(bench.arguments("recorded"), {"LD_PRELOAD": preloaded(bench, "record_writes"), "RECORD_LOG": str(bench.folder / "writes"),
                                                    "RECORD_UNDER": str(bench.folder / "recorded")})
    assert ended.status == 0, ended.output
    return [r for r in read_records(bench.folder / "writes") if pathlib.PurePath(r[2]).is_relative_to(bench.folder / "recorded")]


def fault_of(bench, state, wanted):
    """What is wrong with a folder after a cut. `wanted`: the step of a checkpoint that must be there, or 0."""
    found = sorted(int(p.name[5:]) for p in state.iterdir() if is_checkpoint(p.name))
    if (found[-1] if found else 0) < wanted:
        return f"has checkpoints {found}, and that of step {wanted} was synced"
    if found:
        verified = subprocess.run([bench.fsdpc, "checkpoint", "verify", state], capture_output=True, text=True)
        if verified.returncode != 0:
            return f"a checkpoint is damaged: {verified.stdout[-300:]}{verified.stderr[-300:]}"
    return None


def writes_lost(bench, full):
    tally = Tally()
    records = record_run(bench)
    disk, numbers, state = Disk(bench.folder / "recorded"), random.Random(5), bench.folder / "drift"
    for index, (_, operation, path, offset, data) in enumerate(records):
        disk.apply(operation, path, offset, data)
        if not full and index % 3 != 0:
            continue
        wanted = max(disk.synced_checkpoints(), default=0)
        states = [lambda n: 0, lambda n: min(1, n - 1)] + [numbers.randrange] * (12 if full else 1)
        for trial, choose in enumerate(states):
            disk.write_to(state, choose)
            fault = fault_of(bench, state, wanted)
            if fault is None and trial == 2 and index % (7 if full else 39) == 0: # as the one who goes on sees it
                bench.clear("cut")
                shutil.copytree(state, bench.folder / "cut")
                fault, _ = bench.recover("cut")
            tally.add(f"cut after {index + 1} of {len(records)}, {operation} {pathlib.PurePath(path).name}, state {trial}", fault)
    if not any(disk.synced_checkpoints()):
        tally.wrong.append("no checkpoint was synced")
    return tally


PARTS = {"writes_lost": writes_lost}
